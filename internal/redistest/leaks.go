package redistest

import (
	"testing"

	"go.uber.org/goleak"
)

// VerifyTestMain is a TestMain that runs the tests and then fails if they have left
// goroutines behind:
//
//	func TestMain(m *testing.M) { redistest.VerifyTestMain(m) }
//
// It forgives one: a go-redis client whose server went away looks for it once a
// second, and notices up to a second late that it has been closed.
func VerifyTestMain(m *testing.M) {
	goleak.VerifyTestMain(m, LeakOptions()...)
}

// LeakOptions are what VerifyTestMain forgives, for goleak's other calls.
func LeakOptions() []goleak.Option {
	return []goleak.Option{
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"),
	}
}
