package cmd_test

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestVariables holds every flag of every command against the list of those that take an
// environment variable: the connection, the output, and the daemon's own. A variable that is set
// for a daemon must change no policy that a command sets beside it, and those that describe a job
// to its command (SHAPER_TENANT, SHAPER_DOWNSTREAM …) are read by none.
func TestVariables(t *testing.T) {
	store := []string{"SHAPER_DATA_DIR", "SHAPER_REDIS"}
	output := []string{"SHAPER_JSON"}
	want := map[string][]string{
		"enqueue": slices.Concat(store, output, []string{"SHAPER_WAIT_REPLICAS", "SHAPER_WAIT_REPLICAS_TIMEOUT"}),
		"shaper run": slices.Concat(store, []string{"SHAPER_ACCEPT_UNFIT_REDIS", "SHAPER_ADMIT", "SHAPER_CONCURRENCY", "SHAPER_CONFIG",
			"SHAPER_DEPARTURE_LOG", "SHAPER_DEPTH", "SHAPER_EXEC", "SHAPER_GRACE", "SHAPER_HTTP", "SHAPER_LISTEN", "SHAPER_LOG_FORMAT",
			"SHAPER_RATE", "SHAPER_RATELIMIT_HEADERS", "SHAPER_ROLES", "SHAPER_TOTAL_RATE", "SHAPER_VERBOSE", "SHAPER_WAIT_REPLICAS", "SHAPER_WAIT_REPLICAS_TIMEOUT"}),
	}
	variable := regexp.MustCompile(`\$SHAPER_[A-Z_]+`)
	seen := 0
	var walk func(words ...string)
	walk = func(words ...string) {
		program := filepath.Join(bin, words[0])
		help, err := exec.Command(program, append(slices.Clone(words[1:]), "--help")...).Output()
		if err != nil {
			t.Fatalf("%q --help: %v", words, err)
		}
		var got []string
		for _, v := range variable.FindAllString(string(help), -1) {
			got = append(got, v[1:])
		}
		slices.Sort(got)
		command := strings.Join(words, " ")
		expected, listed := want[command]
		if !listed && strings.Contains(string(help), "--redis") {
			expected = store
			if strings.Contains(string(help), "--json") {
				expected = slices.Concat(store, output)
			}
		}
		slices.Sort(expected)
		if !slices.Equal(got, expected) {
			t.Errorf("%s: its flags take %q, want %q", command, got, expected)
		}
		seen++
		subcommands, err := exec.Command(program, slices.Concat([]string{"__complete"}, words[1:], []string{""})...).Output()
		if err != nil {
			t.Fatalf("%q: %v", words, err)
		}
		for _, word := range strings.Fields(string(subcommands)) {
			walk(append(slices.Clone(words), word)...)
		}
	}
	walk("shaper")
	walk("enqueue")
	if seen < 30 {
		t.Errorf("only %d commands were seen", seen)
	}
}
