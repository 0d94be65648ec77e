package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// suiteVar says, with the value cluster, that TestOnACluster runs every test of this package and
// not only the main ones.
const suiteVar = "JOBSHAPER_E2E"

// onACluster are the tests of the main job, each with what it is about.
var onACluster = []string{
	"TestSixtyAtOnce/three_daemons",           // spacing, and kill -9 of a daemon
	"TestFirstInFirstOut/100_per_second,_3_d", // one by one, and a batch
	"TestTheBoundHolds",
	"TestRefusedLeavesNoTrace",
	"TestRetriesAreSpaced",
	"TestThrottledWaits",
	"TestInFlightIsBounded",
	"TestCrashedJobStartsAgain/short_lease",
	"TestTicketsMayBeDoubled",
	"TestSameIDIsOneJob",
	"TestCancelledJobs",
	"TestExpiredJobs",
}

// TestOnACluster runs tests of this package again, on a Redis Cluster that they share.
func TestOnACluster(t *testing.T) {
	notShort(t)
	cluster := redistest.StartCluster(t)
	rerun(t, cluster.URL(), onACluster, os.Getenv(suiteVar) == "cluster")
}

// rerun runs tests of this package again, on the store of a URL that they share; with all it runs
// every test, some of which need a server of their own and skip themselves. If tests are about
// milliseconds, the caller should not run in parallel with others.
func rerun(t *testing.T, url string, tests []string, all bool) {
	t.Helper()
	if os.Getenv(storeVar) != "" {
		t.Skip("this is the second run")
	}
	args := []string{"-test.v", "-test.timeout=9m"}
	if all {
		args = append(args, "-test.parallel=1") // one cluster on the same cores: rates are not kept beside storms
	} else {
		args = append(args, "-test.run="+anyOf(tests))
	}
	var out bytes.Buffer
	for again := false; ; again = true {
		weather := watch(t)
		run := exec.Command(lean.ofProcesses(t), args...)
		run.Env = append(os.Environ(), storeVar+"="+url, leanVar+"="+lean.known())
		out.Reset()
		run.Stdout, run.Stderr = &out, &out
		err := run.Run()
		if err == nil {
			break
		}
		// Promises about time hold while the machine lets processes run. If it did not, the test
		// gets one more run; a second failure is a fault.
		if again || weather.calm() {
			t.Fatalf("%v; %s", err, tail(out.Bytes(), 32<<10))
		}
		t.Logf("once more, since the machine stalled for up to %v: %v; %s", weather.longest(), err, tail(out.Bytes(), 8<<10))
	}
	passed := strings.Count(out.String(), "\n--- PASS: ")
	for line := range strings.Lines(out.String()) {
		if strings.Contains(line, "--- SKIP") {
			t.Log("not there: ", strings.TrimSpace(line))
		}
	}
	if names := map[string]bool{}; passed < len(tests) {
		for _, m := range regexp.MustCompile(`(?m)^--- PASS: (\w+)`).FindAllStringSubmatch(out.String(), -1) {
			names[m[1]] = true
		}
		t.Errorf("%d tests passed, want %d or more: %v", passed, len(tests), names)
	}
	t.Logf("%d tests passed", passed)
}

// anyOf is a pattern of -test.run for several tests.
func anyOf(names []string) string {
	patterns := make([]string, len(names))
	for i, name := range names {
		test, sub, _ := strings.Cut(name, "/")
		patterns[i] = "^" + test + "$/" + sub
	}
	return strings.Join(patterns, "|")
}
