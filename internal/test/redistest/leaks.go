package redistest

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// forgiven is a go-redis client whose server went away: it looks for the server once a second, and
// so notices up to a second late that it has been closed.
var forgiven = goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")

// VerifyTestMain is a TestMain that runs the tests and then fails if they have left
// goroutines behind:
//
//	func TestMain(m *testing.M) { redistest.VerifyTestMain(m) }
func VerifyTestMain(m *testing.M) { os.Exit(Run(m)) }

// Run is VerifyTestMain for a TestMain that has something to do afterwards. It returns the exit
// code.
func Run(m *testing.M) int { return testenv.Run(m, forgiven) }

// VerifyNone fails the test if goroutines are left, besides those that opts forgive.
func VerifyNone(t testing.TB, opts ...goleak.Option) {
	t.Helper()
	testenv.NoLeaks(t, append(opts, forgiven)...)
}
