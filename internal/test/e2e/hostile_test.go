package e2e

import (
	"context"
	"os/exec"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// TestHostileHandlers runs handlers and commands that do what they should not, two at a time,
// alongside those of a tenant that behaves. None of them exceeds the bound of its tenant, or hurts
// anybody else; all end, each with an error that can be read.
func TestHostileHandlers(t *testing.T) {
	notShort(t)
	t.Parallel()
	const timeout, most = 500 * time.Millisecond, 2
	ctx := context.Background()
	r := newRig(t)
	p := rate(20)
	p.MaxAttempts, p.MaxInFlight, p.Timeout = 1, most, timeout
	r.tenant("hostile", p)
	r.tenant("good", rate(20))
	daemon := r.start(role{Scheduler: true, Worker: true, Shell: true, Places: 10})

	type job struct {
		name string
		spec shaper.Spec
		ends shaper.State
	}
	jobs := []job{
		{"panics", shaper.Spec{Type: "play", Payload: play{Panic: true}.bytes()}, shaper.StateDead},
		{"ends its goroutine", shaper.Spec{Type: "play", Payload: play{Goexit: true}.bytes()}, shaper.StateDead},
		{"ignores its context for three times its time, and succeeds", shaper.Spec{Type: "play", Payload: play{For: 3 * timeout, Deaf: true}.bytes()}, shaper.StateDone},
		{"fails with 10 MB of rubbish", shaper.Spec{Type: "play", Payload: play{Rubbish: 10 << 20}.bytes()}, shaper.StateDead},
		{"takes a payload that is none", shaper.Spec{Type: "play", Payload: []byte("\xff\xfe")}, shaper.StateDead},
		{"writes 10 MB to stderr", shaper.Spec{Type: "sh", Payload: []byte(`head -c 10000000 /dev/zero | tr '\0' x >&2; exit 1`)}, shaper.StateDead},
		{"writes no text to stderr", shaper.Spec{Type: "sh", Payload: []byte(`printf '\377\376\033[31m\000' >&2; exit 1`)}, shaper.StateDead},
		{"exits with 1", shaper.Spec{Type: "sh", Payload: []byte(`exit 1`)}, shaper.StateDead},
		{"exits with 137", shaper.Spec{Type: "sh", Payload: []byte(`exit 137`)}, shaper.StateDead},
		{"kills itself", shaper.Spec{Type: "sh", Payload: []byte(`kill -9 $$`)}, shaper.StateDead},
		{"closes its stdout", shaper.Spec{Type: "sh", Payload: []byte(`exec 1>&- 2>&-; exit 0`)}, shaper.StateDone},
		{"ignores SIGTERM for three times its time", shaper.Spec{Type: "sh", Payload: []byte(`trap '' TERM; sleep 1.5`)}, shaper.StateDead},
		{"leaves a child behind", shaper.Spec{Type: "sh", Payload: []byte(`sleep 5 & exit 0`)}, shaper.StateDone},
	}
	if _, err := exec.LookPath("setsid"); err == nil { // the daemon ends by itself, after the job's time
		jobs = append(jobs, job{"forks a daemon that keeps the pipes", shaper.Spec{Type: "sh", Payload: []byte(`setsid sleep 3 & sleep 5`)}, shaper.StateDead})
	}
	for i := range jobs {
		s := &jobs[i].spec
		s.Tenant, s.ID = "hostile", shaper.NewID()
		result, err := offer(ctx, r.client, r.rec, *s)
		r.must(err)
		if result.Status != shaper.Accepted {
			t.Fatalf("%+v, want accepted", result)
		}
	}
	r.offer("good", 60, play{For: 10 * time.Millisecond})
	for _, j := range jobs {
		within, cancel := context.WithTimeout(ctx, patience)
		got, err := r.client.Wait(within, "hostile", j.spec.ID)
		cancel()
		r.must(err)
		if got.State != j.ends || got.State == shaper.StateDead && got.Error == "" || got.Charged != 1 {
			t.Errorf("a job that %s is %s after %d attempts, with error %.100q; want it %s", j.name, got.State, got.Charged, got.Error, j.ends)
		}
		if !utf8.ValidString(got.Error) || len(got.Error) > 4<<10+len("…") {
			t.Errorf("a job that %s has an error of %d bytes, valid %v", j.name, len(got.Error), utf8.ValidString(got.Error))
		}
		if got.State == shaper.StateDead {
			r.must(r.rec.Record(history.Event{Kind: history.End, Tenant: "hostile", ID: j.spec.ID, Outcome: history.Dead}))
		}
	}
	h := r.drained()
	r.refuse(history.InFlight(h, "hostile", most), history.Starts(h, perSecond(20)), history.Accounts(h))
	r.charged(h, "good", 1)
	if n, m := len(h.Of(history.Start).Tenant("good")), len(h.Of(history.Start).Tenant("hostile")); n != 60 || m != len(jobs) {
		t.Errorf("%d starts of jobs that behave and %d of those that do not, want 60 and %d", n, m, len(jobs))
	}
	daemon.terminate()
	daemon.end() // in good order, after all that
}
