package e2e

import (
	"os"
	"testing"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// processVar holds the role of a process that a test has started, as JSON.
const processVar = "JOBSHAPER_E2E_PROCESS"

// storeVar holds the URL of the store that all tests of this run use, each with a downstream of its
// own. If it is empty, each test has a server of its own. TestOnACluster sets it.
const storeVar = "JOBSHAPER_E2E_REDIS"

func TestMain(m *testing.M) {
	if role := os.Getenv(processVar); role != "" {
		os.Exit(runProcess(role))
	}
	testenv.Abreast(4)
	code := redistest.Run(m)
	lean.remove()
	os.Exit(code)
}
