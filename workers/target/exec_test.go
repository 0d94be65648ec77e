//go:build unix

package target

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers"
)

func newExecTest(t *testing.T, cfg ExecConfig) asynq.Handler {
	t.Helper()
	noLeaks(t)
	h, err := NewExec(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// sh returns a command that runs script, with args as $1 and on.
func sh(script string, args ...string) []string {
	return append([]string{"/bin/sh", "-c", script, "sh"}, args...)
}

func TestExecExitStatus(t *testing.T) {
	for _, tc := range []struct{ script, want, text string }{
		{"exit 0", ok, ""},
		{"exit 1", failed, "sh: exit status 1"},
		{"exit 64", hopeless, "exit status 64"},
		{"exit 65", hopeless, "exit status 65"},
		{"exit 66", failed, "exit status 66"},
		{"exit 75", throttled, "exit status 75"},
		{"exit 137", failed, "exit status 137"},
		{"kill -9 $$", failed, "signal: killed"},
		{"kill -15 $$", failed, "signal: terminated"},
		{"echo why >&2; exit 3", failed, "sh: exit status 3: why"},
	} {
		t.Run(tc.script, func(t *testing.T) {
			h := newExecTest(t, ExecConfig{Argv: sh(tc.script)})
			err := h.ProcessTask(testContext(t), asynq.NewTask("x", nil))
			got := meaningOf(t, err, time.Second)
			if got != tc.want || (err != nil && !strings.Contains(err.Error(), tc.text)) {
				t.Errorf("%s, %v; want %s, %s", got, err, tc.want, tc.text)
			}
		})
	}
}

func TestExecInputAndResult(t *testing.T) {
	h := newExecTest(t, ExecConfig{Argv: []string{"cat"}})
	payload := bytes.Repeat([]byte("0123456789abcde\n"), 60<<10/16)
	ctx := testContext(t)
	if err := h.ProcessTask(ctx, asynq.NewTask("x", payload)); err != nil {
		t.Fatal(err)
	}
	if got := workers.ResultFrom(ctx); !bytes.Equal(got, payload[:workers.MaxResult]) {
		t.Errorf("result of %d bytes", len(got))
	}
}

// A command need not read its stdin, even where the payload is more than a pipe holds.
func TestExecStdinUnread(t *testing.T) {
	for _, size := range []int{60 << 10, 1 << 20} {
		h := newExecTest(t, ExecConfig{Argv: []string{"true"}})
		if err := h.ProcessTask(testContext(t), asynq.NewTask("x", make([]byte, size))); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func TestExecNoShell(t *testing.T) {
	dir := t.TempDir()
	h := newExecTest(t, ExecConfig{
		Argv: []string{"printf", `%s\0`, "{v}", "--opt={v}", "$HOME", "*", "{job.id}"}, Dir: dir,
	})
	for _, value := range []string{
		"; touch X", "$(touch X)", "`touch X`", "| touch X", "&& touch X", "a\ntouch X", `"; touch X; "`, "'; touch X; '",
		"*", "~", "a b", "", "{job.tenant}", "{{v}}", "%s", "\u202e", "a\r\n\x1b[2J",
	} {
		payload, _ := json.Marshal(map[string]string{"v": value})
		ctx := testContext(t)
		if err := h.ProcessTask(ctx, asynq.NewTask("x", payload)); err != nil {
			t.Errorf("%q: %v", value, err)
			continue
		}
		got := strings.Split(strings.TrimSuffix(string(workers.ResultFrom(ctx)), "\x00"), "\x00")
		if want := []string{value, "--opt=" + value, "$HOME", "*", "j-1"}; !slices.Equal(got, want) {
			t.Errorf("arguments %q, want %q", got, want)
		}
	}
	for _, payload := range []string{
		`{"v": "--output=X"}`, `{"v": "-o"}`, `{"v": "-"}`, `{"v": "a\u0000b"}`, `{"v": {}}`, `{"w": 1}`, `; touch X`, ``,
	} {
		ctx := testContext(t)
		err := h.ProcessTask(ctx, asynq.NewTask("x", []byte(payload)))
		if !errors.Is(err, asynq.SkipRetry) || workers.ResultFrom(ctx) != nil {
			t.Errorf("%s: got %v, result %q", payload, err, workers.ResultFrom(ctx))
		}
	}
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("a payload made %v", files)
	}
}

func TestExecArgumentTooLong(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("limits differ")
	}
	h := newExecTest(t, ExecConfig{Argv: []string{"echo", "{v}"}})
	payload, _ := json.Marshal(map[string]string{"v": strings.Repeat("x", 1<<20)})
	if err := h.ProcessTask(testContext(t), asynq.NewTask("x", payload)); !errors.Is(err, asynq.SkipRetry) {
		t.Errorf("got %v", err)
	}
}

func TestExecEnvironment(t *testing.T) {
	t.Setenv("REDIS_URL", "redis://:s3cret@127.0.0.1")
	t.Setenv("SHAPER_REDIS", "redis://:s3cret@127.0.0.1")
	t.Setenv("HOME", "/home/s3cret")
	h := newExecTest(t, ExecConfig{Argv: []string{"env"}, Env: map[string]string{"LANG": "C", "EMPTY": ""}})
	want := []string{
		"EMPTY=", "LANG=C", "PATH=" + os.Getenv("PATH"), "SHAPER_ATTEMPT=3", "SHAPER_DOWNSTREAM=mail", "SHAPER_JOB_ATTEMPT=3",
		"SHAPER_JOB_DOWNSTREAM=mail", "SHAPER_JOB_ID=j-1", "SHAPER_JOB_SLOT=1732950000123456", "SHAPER_JOB_TENANT=acme",
		"SHAPER_JOB_TYPE=mail:send", "SHAPER_SLOT=1732950000123456", "SHAPER_TENANT=acme", "SHAPER_TYPE=mail:send",
	}
	for range 2 { // the second job must not see the first one's
		ctx := testContext(t)
		if err := h.ProcessTask(ctx, asynq.NewTask("x", nil)); err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSpace(string(workers.ResultFrom(ctx))), "\n")
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("environment %q, want %q", got, want)
		}
	}
}

func TestExecDir(t *testing.T) {
	dir, _ := filepath.EvalSymlinks(t.TempDir())
	h := newExecTest(t, ExecConfig{Argv: []string{"/bin/sh", "-c", "pwd -P"}, Dir: dir})
	ctx := testContext(t)
	if err := h.ProcessTask(ctx, asynq.NewTask("x", nil)); err != nil || strings.TrimSpace(string(workers.ResultFrom(ctx))) != dir {
		t.Errorf("ran in %q, %v; want %q", workers.ResultFrom(ctx), err, dir)
	}
}

func TestExecHugeOutput(t *testing.T) {
	const script = `head -c 10000000 /dev/zero | tr '\0' e >&2; head -c 10000000 /dev/zero | tr '\0' o; echo "last words" >&2; exit 1`
	h := newExecTest(t, ExecConfig{Argv: sh(script)})
	err := h.ProcessTask(testContext(t), asynq.NewTask("x", nil))
	if text := err.Error(); len(text) > 4<<10 || !strings.HasPrefix(text, "sh: exit status 1: …e") || !strings.HasSuffix(text, "elast words") {
		t.Errorf("error of %d bytes: %.40s … %s", len(text), text, text[max(0, len(text)-40):])
	}
}

func TestExecErrorTextIsClean(t *testing.T) {
	h := newExecTest(t, ExecConfig{Argv: sh(`printf '\377\376a\r\nlevel=INFO msg=forged\033[2J\0b' >&2; exit 1`)})
	text := h.ProcessTask(testContext(t), asynq.NewTask("x", nil)).Error()
	if want := "sh: exit status 1: \uFFFDa level=INFO msg=forged b"; text != want || !utf8.ValidString(text) {
		t.Errorf("got %q, want %q", text, want)
	}
}

// A command that is away for a while, as in an upgrade, is worth another attempt.
func TestExecCommandVanished(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tool")
	if err := os.Symlink("/bin/sh", path); err != nil {
		t.Fatal(err)
	}
	h := newExecTest(t, ExecConfig{Argv: []string{path, "-c", "exit 0"}})
	os.Remove(path)
	err := h.ProcessTask(testContext(t), asynq.NewTask("x", nil))
	if err == nil || errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

func TestExecWantsAJob(t *testing.T) {
	h := newExecTest(t, ExecConfig{Argv: []string{"true"}})
	if err := h.ProcessTask(t.Context(), asynq.NewTask("x", nil)); !errors.Is(err, errNoJob) {
		t.Errorf("got %v", err)
	}
}

func TestExecConfig(t *testing.T) {
	echo := []string{"echo"}
	for _, tc := range []struct {
		cfg   ExecConfig
		field string
	}{
		{ExecConfig{}, "target.exec"},
		{ExecConfig{Argv: []string{""}}, "target.exec"},
		{ExecConfig{Argv: []string{"no-such-command-anywhere"}}, "target.exec"},
		{ExecConfig{Argv: []string{"/"}}, "target.exec"},
		{ExecConfig{Argv: []string{"{payload.cmd}"}}, "target.exec"},
		{ExecConfig{Argv: []string{"{cmd}"}}, "target.exec"},
		{ExecConfig{Argv: []string{"/bin/{job.tenant}"}}, "target.exec"},
		{ExecConfig{Argv: []string{"echo", "a\x00b"}}, "target.exec"},
		{ExecConfig{Argv: []string{"echo", "{job.name}"}}, "target.exec"},
		{ExecConfig{Argv: echo, Env: map[string]string{"A=B": "s3cret"}}, "target.env"},
		{ExecConfig{Argv: echo, Env: map[string]string{"": "s3cret"}}, "target.env"},
		{ExecConfig{Argv: echo, Env: map[string]string{"A": "s3cret\x00"}}, "target.env"},
		{ExecConfig{Argv: echo, Env: map[string]string{"SHAPER_TENANT": "other"}}, "target.env"},
		{ExecConfig{Argv: echo, Env: map[string]string{"SHAPER_JOB_TENANT": "other"}}, "target.env"},
		{ExecConfig{Argv: echo, Dir: "/no/such/dir"}, "target.dir"},
		{ExecConfig{Argv: echo, Dir: "/dev/null"}, "target.dir"},
		{ExecConfig{Argv: echo, KillDelay: -1}, "target.kill_delay"},
		{ExecConfig{Argv: echo, ThrottleAfter: -1}, "target.throttle_after"},
		{ExecConfig{Argv: echo, ThrottleAfter: 25 * time.Hour}, "target.throttle_after"},
	} {
		_, err := NewExec(tc.cfg)
		var fe *shaper.FieldError
		if !errors.As(err, &fe) || fe.Field != tc.field || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: got %v, want an error of %s", tc.cfg, err, tc.field)
		}
	}
}
