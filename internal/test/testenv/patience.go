package testenv

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Patience bounds every wait of a test for what must happen. Only a broken system reaches it, even
// on a machine that gives a test a fifth of a core. A test that needs to be told of a failure
// sooner is about something else.
const Patience = time.Minute

// Long leaves a test out of the short ones, `go test -short`, which end within 10 s for a package.
// does says what takes the test so long.
func Long(t testing.TB, does string) {
	t.Helper()
	if testing.Short() {
		t.Skip(does)
	}
}

// leaks looks for leftover goroutines until there are none. goleak by itself looks for half a
// second, and a busy machine may need as long to end one.
func leaks(opts []goleak.Option) (err error) {
	for begun := time.Now(); time.Since(begun) < Patience/4; {
		if err = goleak.Find(opts...); err == nil {
			return nil
		}
	}
	return err
}

// NoLeaks fails the test if goroutines are left, besides those that opts forgive.
func NoLeaks(t testing.TB, opts ...goleak.Option) {
	t.Helper()
	if err := leaks(opts); err != nil {
		t.Error(err)
	}
}

// Abreast lets n tests for each core run in parallel, unless -parallel says how many, for a package
// whose tests wait most of their time. A TestMain calls it first.
func Abreast(n int) {
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = parallel.Value.Set(strconv.Itoa(n * runtime.GOMAXPROCS(0))) // it takes a number
	}
}

// Main is a TestMain that runs the tests, and then fails if they have left goroutines behind,
// besides those that opts forgive.
func Main(m *testing.M, opts ...goleak.Option) { os.Exit(Run(m, opts...)) }

// Run is Main for a TestMain that has something to do afterwards. It returns the exit code.
func Run(m *testing.M, opts ...goleak.Option) int {
	code := m.Run()
	if code == 0 {
		if err := leaks(opts); err != nil {
			fmt.Fprintf(os.Stderr, "goroutines are left: %v\n", err)
			code = 1
		}
	}
	return code
}
