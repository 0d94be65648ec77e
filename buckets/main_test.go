package buckets

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if address := os.Getenv(askerVar); address != "" {
		os.Exit(runAsker(address))
	}
	goleak.VerifyTestMain(m)
}
