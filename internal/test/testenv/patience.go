package testenv

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Patience bounds every wait of a test for what must happen. Only a broken system reaches it, on a machine, too, that
// gives a test a fifth of a core. A test that needs to be told of a failure sooner is about something else.
const Patience = time.Minute

// leaks looks for goroutines that are left until there are none. goleak by itself looks for half a second, which a
// busy machine may take to end one.
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

// Main is a TestMain that runs the tests, and then fails if they have left goroutines behind, besides those that opts forgive.
func Main(m *testing.M, opts ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		if err := leaks(opts); err != nil {
			fmt.Fprintf(os.Stderr, "goroutines are left: %v\n", err)
			code = 1
		}
	}
	os.Exit(code)
}
