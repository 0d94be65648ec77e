package buckets

import (
	"os"
	"testing"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(askerVar); address != "" {
		os.Exit(runAsker(address))
	}
	testenv.Main(m)
}
