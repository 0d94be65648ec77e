package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/app/verify"
	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/shaper"
)

// verified judges the rig's departure log.
func (r *rig) verified() verify.Findings {
	r.t.Helper()
	v, err := verify.Log(context.Background(), r.name, r.admin, verify.Options{})
	r.must(err)
	return v
}

// TestVerify drains a backlog of jobs that fail at first, with chains, a pause, a changed rate and
// a daemon that is killed. The departure log says of each start what its handler wrote down, and by
// it all promises held. Then the log is forged: each forgery is named.
func TestVerify(t *testing.T) {
	notShort(t)
	t.Parallel()
	const jobs = 60
	r := newRig(t)
	p := rate(20)
	p.Backoff = shaper.Backoff{Min: 10 * time.Millisecond, Max: 50 * time.Millisecond}
	r.tenant("a", p)
	r.tenant("b", rate(10))
	r.downstream(shaper.DownstreamPolicy{DepartureLog: 10_000, Lease: 2 * time.Second})
	daemons := r.startBoth(2)
	r.offer("a", jobs/2, play{For: 5 * time.Millisecond})
	r.offer("a", jobs/2, play{For: 5 * time.Millisecond, Fail: 1})
	r.offer("b", 5, play{Throttle: 200 * time.Millisecond})
	r.starts(20)
	r.must(r.admin.Pause(context.Background(), "a", 0))
	r.must(r.admin.Resume(context.Background(), "a"))
	daemons[0].kill()
	r.starts(40)
	r.tenant("a", rate(25))
	h := r.drained()

	v := r.verified()
	found := v.Violations()
	for i := range found { // by the clock of stalls
		found[i].At = history.Now() - int64(time.Since(v.Wall(found[i])))
	}
	r.refuse(found)
	r.sameAsLogged(h)
	if seen := strings.Join(v.Seen, "; "); !strings.Contains(seen, "1 change of a tenant's rate") || !strings.Contains(seen, "1 pause by hand") {
		t.Errorf("seen %q, want a changed rate and a pause", seen)
	}

	last := h.Of(history.Start)[len(h.Of(history.Start))-1]
	for _, forged := range []struct {
		name    string
		entries []string // %d is a slot long after all others
		want    []string // checks that must find something, and what they name
	}{
		{"a slot too close", []string{"g a forged 1 %d 0 25/1000000 - 20000 0", "g a close 1 %d1 0 25/1000000 - 20000 0"}, []string{"slots: tenant a, job close"}},
		{"a start before its slot", []string{"g a early 1 %d 0 25/1000000 - 20000 0", "f a early 1 done -3000 5000"},
			[]string{"on time: tenant a, job early: 3ms before its slot"}},
		{"a start that is late", []string{"g a late 1 %d 0 25/1000000 - 20000 0", "f a late 1 done 20001 25000"},
			[]string{"on time: tenant a, job late: 20.001ms after its slot"}},
		{"an attempt that is repeated", []string{fmt.Sprintf("g a %s %d %%d 0 25/1000000 - 20000 0", last.ID, last.Attempt)},
			[]string{"attempts: tenant " + last.Tenant + ", job " + last.ID + ": attempt", "duplicated: tenant"}},
		{"two ends", []string{fmt.Sprintf("f %s %s %d retry 5 9", last.Tenant, last.ID, last.Attempt)}, []string{"ends: tenant " + last.Tenant + ", job " + last.ID}},
	} {
		slot := time.Now().Add(time.Hour).UnixMicro()
		var ids []string
		for _, e := range forged.entries {
			e = strings.Replace(e, "%d1", fmt.Sprint(slot+39_999), 1)
			id, err := r.rdb.XAdd(context.Background(), &redis.XAddArgs{Stream: "shaper:{" + r.name + "}:log",
				Values: []string{"e", strings.Replace(e, "%d", fmt.Sprint(slot), 1)}}).Result()
			r.must(err)
			ids = append(ids, id)
		}
		v := r.verified()
		var b strings.Builder
		r.must(v.Print(&b))
		if v.Held() {
			t.Errorf("%s: held\n%s", forged.name, &b)
		}
		for _, want := range forged.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: no %q in\n%s", forged.name, want, &b)
			}
		}
		r.must(r.rdb.XDel(context.Background(), "shaper:{"+r.name+"}:log", ids...).Err())
	}
	if v := r.verified(); len(v.Violations()) != len(found) {
		t.Errorf("without the forgeries: %s; want what was before, %v", v.Line(), found)
	}
}

// sameAsLogged compares the starts of a history with those of the departure log.
func (r *rig) sameAsLogged(h history.History) {
	r.t.Helper()
	type slot struct {
		tenant, id string
		attempt    int
		slot       int64
	}
	type told struct {
		began, ended bool
		late         time.Duration
	}
	slots, last := map[slot]*told{}, map[slot]slot{} // by start without its slot: its last slot
	r.must(r.admin.DepartureLog(context.Background(), 0, func(e shaper.LogEntry) error {
		s := slot{e.Tenant, e.ID, e.Attempt, 0}
		switch e.Kind {
		case shaper.LogGranted:
			s.slot = e.Slot.UnixMicro()
			slots[s] = &told{}
			last[slot{e.Tenant, e.ID, e.Attempt, 0}] = s
		case shaper.LogEnded:
			*slots[last[s]] = told{e.Began, true, e.Late}
		}
		return nil
	}))
	ends := 0
	for _, e := range h.Of(history.Start) {
		s := slot{e.Tenant, e.ID, e.Attempt, e.Slot}
		l := slots[s]
		if l == nil {
			r.t.Errorf("%+v started, and its slot is not in the log", s)
			continue
		}
		if !l.ended {
			continue // its process was killed
		}
		ends++
		// The handler read the wall clock after the worker looked at its own, and Redis is on the
		// same machine.
		if late := e.Wall - e.Slot; !l.began || l.late.Microseconds() > late+1000 {
			r.t.Errorf("%+v began %d µs after its slot, and %+v by the log", s, late, *l)
		}
	}
	if ends < len(h.Of(history.Start))-20 {
		r.t.Errorf("the log has the ends of %d starts, want all of %d but those of the process that was killed", ends, len(h.Of(history.Start)))
	}
}
