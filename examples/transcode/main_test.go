package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
	"github.com/jobshaper/jobshaper/shaper"
)

func TestMain(m *testing.M) { redistest.VerifyTestMain(m) }

// few tenants' jobs take a little over two seconds; each tenant is refused at least once.
var few = []tenant{
	{name: "studio", policy: shaper.Policy{Rate: buckets.PerSecond(10), Weight: 3, Depth: 4},
		bursts: 2, burst: 8, every: 500 * time.Millisecond, patient: true},
	{name: "clips", policy: shaper.Policy{Rate: buckets.PerSecond(5), Weight: 2, Depth: 3},
		bursts: 1, burst: 6, every: time.Second},
}

func TestFFmpeg(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "ffmpeg")
	r := runFew(t, "ffmpeg")
	probe, err := exec.LookPath("ffprobe")
	if err != nil {
		t.Skip("no ffprobe to look at the outputs with")
	}
	for _, path := range outputsOf(t, r.dir, "*.mp4") {
		b, err := exec.Command(probe, "-v", "error", "-show_entries", "stream=codec_name,width", "-of", "csv=p=0", path).Output()
		if got, want := strings.Join(strings.Fields(string(b)), " "), "mpeg4,160 aac"; err != nil || got != want {
			t.Errorf("%s: streams %q (%v), want %q", path, got, err, want)
		}
	}
}

func TestNothingInstalled(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	r := runFew(t, "auto")
	for _, path := range outputsOf(t, r.dir, "*.jpg") {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		img, format, err := image.Decode(f)
		_ = f.Close()
		if err != nil || format != "jpeg" || img.Bounds().Dx() < 120 {
			t.Errorf("%s: %s %v", path, format, err)
		}
	}
}

// runFew runs the program, and checks that what it reports adds up, whatever the tool.
func runFew(t *testing.T, tool string) report {
	t.Helper()
	var out bytes.Buffer
	r, err := run(t.Context(), options{out: filepath.Join(t.TempDir(), "out"), tool: tool, tenants: few}, &out)
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range r.accounts {
		if len(a.refusals) == 0 || a.accepted() == 0 || len(a.starts) != a.done || a.accepted() != a.done {
			t.Errorf("%s: %d accepted, %d refused, %d starts, %d done", a.tenant.name, a.accepted(), len(a.refusals), len(a.starts), a.done)
		}
		if a.shortestWait <= 0 {
			t.Errorf("%s: refused without a time to try again", a.tenant.name)
		}
		if a.tenant.patient && a.done != a.files() {
			t.Errorf("%s: %d of %d files done, want all", a.tenant.name, a.done, a.files())
		}
		if !a.tenant.patient && len(a.offers) != a.files() {
			t.Errorf("%s: %d offers of %d files, want one each", a.tenant.name, len(a.offers), a.files())
		}
	}
	all := r.total()
	if want := fmt.Sprintf("checked: %d starts of 2 tenants, ", all.done); !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "all 8 promises held\n") {
		t.Errorf("the report does not end with %q, and that all promises held", want)
	}
	s := spacingOf(all.starts)
	least := time.Duration(all.done-1)*all.interval() - 2*shaper.DefaultTolerance
	first, last := all.starts[0], all.starts[0]
	for _, at := range all.starts {
		first, last = minTime(first, at), maxTime(last, at)
	}
	if took := last.Sub(first); took < least {
		t.Errorf("%d starts within %v, want at least %v", s.n, took, least)
	}
	if n := len(outputsOf(t, r.dir, "*")); n != all.done || r.decoded != n {
		t.Errorf("%d outputs, %d decoded, want %d", n, r.decoded, all.done)
	}
	return r
}

// outputsOf lists the outputs of all tenants.
func outputsOf(t *testing.T, dir, pattern string) []string {
	t.Helper()
	var out []string
	for _, tenant := range few {
		paths, err := filepath.Glob(filepath.Join(dir, tenant.name, pattern))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, paths...)
	}
	return out
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// An interrupt lets running jobs end, and cancels the rest: every accepted job is accounted for.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &trigger{text: regexp.MustCompile(`(?m)^ +\d+ s │.*│ +[1-9]\d*$`), hit: cancel} // a second in which something started
	r, err := run(ctx, options{out: t.TempDir(), tool: "go", tenants: few}, out)
	t.Log(out.String())
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want it to be cancelled", err)
	}
	all := r.total()
	if r.whole || all.done == 0 || all.cancelled == 0 || all.stored != all.done+all.cancelled || all.done != len(all.starts) {
		t.Errorf("%d stored, %d starts, %d done, %d cancelled", all.stored, len(all.starts), all.done, all.cancelled)
	}
	if !strings.Contains(out.String(), "ended early") {
		t.Error("report does not say that it ended early")
	}
}

// trigger calls hit when text is written.
type trigger struct {
	text *regexp.Regexp
	hit  func()

	mu      sync.Mutex // guards what follows
	written bytes.Buffer
}

func (w *trigger) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.text.Match(p) {
		w.hit()
	}
	return w.written.Write(p)
}

func (w *trigger) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.written.String()
}

func TestUnknownTool(t *testing.T) {
	_, err := run(t.Context(), options{out: t.TempDir(), tool: "sox", tenants: few}, &bytes.Buffer{})
	if want := `-tool "sox": want auto, ffmpeg or go`; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
