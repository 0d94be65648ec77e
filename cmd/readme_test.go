package cmd_test

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// shown is a command of the README, and what it is shown to print.
type shown struct {
	command string
	prints  []string
}

// fiveMinutes reads the commands of the section "Five minutes" of the README. Every block of it is
// a console.
func fiveMinutes(t *testing.T) (all []shown) {
	b, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(b), "\n## Five minutes\n")
	text, _, ended := strings.Cut(text, "\n## ")
	if !found || !ended {
		t.Fatal("the README has no section Five minutes")
	}
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch command, is := strings.CutPrefix(line, "$ "); {
		case strings.HasPrefix(line, "```") && !inside && line != "```console":
			t.Fatalf("%q: want ```console, for the test to run it", line)
		case strings.HasPrefix(line, "```"):
			inside = !inside
		case inside && is:
			all = append(all, shown{command: command})
		case inside && len(all) > 0:
			all[len(all)-1].prints = append(all[len(all)-1].prints, line)
		}
	}
	return all
}

// varies is what differs each time, or on another machine. So do the words of shaper verify about
// how punctual this machine is.
var varies = []struct {
	pattern *regexp.Regexp
	is      string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ][\d:.]+Z?|\b\d\d:\d\d:\d\d\.\d{3}\b`), "TIME"},
	{regexp.MustCompile(`\b[0-9a-v]{26}\b`), "ID"},
	{regexp.MustCompile(`starts at once|position \d+, starts in about [\dm.]+ ?s`), "WHEN"},
	{regexp.MustCompile(`^(spacing|windows|on time): .*`), "$1: …"},
	{regexp.MustCompile(`\d+(\.\d+)?( ?(µs|ms|s)\b)?`), "N"},
	{regexp.MustCompile(`\s+`), " "},
}

func alike(line string) string {
	for _, v := range varies {
		line = v.pattern.ReplaceAllString(line, v.is)
	}
	return strings.TrimSpace(line)
}

// compare fails the test unless got is what the README shows. In the README, … stands for
// anything: on a line of its own for any lines, else for a part of its line.
func (s shown) compare(t *testing.T, got string) {
	t.Helper()
	like := alike
	if s.command == "echo $?" || strings.HasPrefix(s.command, "shaper trace ") { // always the same
		like = strings.TrimSpace
	}
	var want, have strings.Builder
	for _, line := range s.prints {
		if line == "…" {
			want.WriteString(`(.*\n)*`)
			continue
		}
		want.WriteString(strings.ReplaceAll(regexp.QuoteMeta(like(line)), "…", ".*") + `\n`)
	}
	for line := range strings.Lines(strings.TrimRight(got, "\n")) {
		have.WriteString(like(line) + "\n")
	}
	if !regexp.MustCompile(`^` + want.String() + `$`).MatchString(strings.TrimPrefix(have.String(), "\n")) {
		t.Errorf("$ %s\n%s\nthe README shows\n%s\n", s.command, got, strings.Join(s.prints, "\n"))
	}
}

// TestFiveMinutes does what the README says, in its order. It does not build the programs, since it
// has them, and it gives the daemon a port and a folder other than those in the README, which may
// be in use here.
func TestFiveMinutes(t *testing.T) {
	t.Parallel()
	all := fiveMinutes(t)
	if len(all) < 10 || !strings.HasPrefix(all[0].command, "make build ") || !strings.HasPrefix(all[1].command, "shaper run ") {
		t.Fatalf("the section begins with %q, want make build and shaper run", all)
	}
	const usual, folder = "127.0.0.1:8080", "/home/me/.local/share/jobshaper"
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	free.Close()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	asShown := strings.NewReplacer(address, usual, data, folder)
	env := append(os.Environ(), "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "SHAPER_DATA_DIR="+data)

	run := exec.Command("sh", "-c", "exec "+all[1].command+" --listen "+address)
	run.Dir, run.Env = dir, env
	stderr, err := run.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	daemon := launch(t, run)
	log := ""
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		log += lines.Text() + "\n"
		if strings.Contains(lines.Text(), "listening") {
			break
		}
	}
	go func() { // what else it says does not matter
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
		}
	}()
	all[1].compare(t, asShown.Replace(log))

	var script strings.Builder
	for _, s := range all[2:] {
		fmt.Fprintf(&script, "%s\nstatus=$?; printf '\\001'; (exit $status)\n", strings.ReplaceAll(s.command, usual, address))
	}
	shell := exec.Command("sh")
	shell.Dir, shell.Env, shell.Stdin = dir, env, strings.NewReader(script.String())
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Errorf("the last command: %v", err)
	}
	outputs := strings.Split(string(out), "\x01")
	if len(outputs) != len(all[2:])+1 {
		t.Fatalf("%d commands of %d ran:\n%s", len(outputs)-1, len(all[2:]), out)
	}
	for i, s := range all[2:] {
		s.compare(t, asShown.Replace(outputs[i]))
	}
	if err := daemon.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	daemon.end(0)
}
