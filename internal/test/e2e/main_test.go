package e2e

import (
	"flag"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// processVar holds the role of a process that a test has started, as JSON.
const processVar = "JOBSHAPER_E2E_PROCESS"

// storeVar holds the URL of the store that all tests of this run use, each with a downstream of its own. Empty: each test
// has a server of its own. TestOnACluster sets it.
const storeVar = "JOBSHAPER_E2E_REDIS"

func TestMain(m *testing.M) {
	if role := os.Getenv(processVar); role != "" {
		os.Exit(runProcess(role))
	}
	// What runs in parallel here waits most of its time: more of it at a time than there are cores.
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = parallel.Value.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0))) // a number is what it takes
	}
	redistest.VerifyTestMain(m)
}
