package testenv

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// recorder is a test that notes how it ended. Like the real one it leaves its
// goroutine by Goexit, so Need must be called on a goroutine of its own.
type recorder struct {
	testing.TB
	outcome, text string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.outcome, r.text = "failed", fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Skipf(format string, args ...any) {
	r.outcome, r.text = "skipped", fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func need(name string) *recorder {
	r := &recorder{outcome: "ran"}
	done := make(chan struct{})
	go func() {
		defer close(done)
		Need(r, name)
	}()
	<-done
	return r
}

func TestNeedWithoutTheProgram(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, row := range []struct{ require, want string }{
		{"", "skipped"},
		{"ffmpeg", "skipped"},
		{"redis", "failed"},
		{"ffmpeg, redis", "failed"},
		{"redis-server", "skipped"}, // the list holds our names, not commands
	} {
		t.Setenv(RequireVar, row.require)
		if got := need("redis"); got.outcome != row.want || !strings.Contains(got.text, "redis-server") {
			t.Errorf("%s=%q: %s with %q, want %s and the missing command's name",
				RequireVar, row.require, got.outcome, got.text, row.want)
		}
	}
}

func TestFindUnknownName(t *testing.T) {
	if _, err := Find("postgres"); err == nil || !strings.Contains(err.Error(), `"postgres"`) {
		t.Errorf("Find(postgres) = %v, want an error that names it", err)
	}
}
