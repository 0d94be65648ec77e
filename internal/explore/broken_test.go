package explore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/explore"
	"github.com/jobshaper/jobshaper/internal/model"
)

// sound is the model; the queues below are that, and one thing is wrong with each.
type sound = *model.Downstream

// blind overlooks that Redis restarted.
type blind struct{ sound }

func (q blind) Restart() {}

// hasty lets the next slot of a tenant be a µs too early.
type hasty struct{ sound }

func (q hasty) Enter(k model.Ticket, token string) (*model.Grant, string) {
	g, why := q.sound.Enter(k, token)
	if g != nil {
		q.Tenants[g.Tenant].Timeline.Next--
	}
	return g, why
}

// careless misses a ticket two minutes later.
type careless struct{ sound }

func (q careless) Release(limit int, _, trip time.Duration) ([]model.Ticket, int64, bool) {
	return q.sound.Release(limit, 2*time.Minute, trip)
}

// trusting believes whoever reports the end of a job.
type trusting struct{ sound }

func (q trusting) Finish(reports ...model.Report) []model.Ended {
	for i, r := range reports {
		if j := q.Job(r.Tenant, r.ID); j != nil && j.State == model.Running {
			reports[i].Token = j.Token
		}
	}
	return q.sound.Finish(reports...)
}

// forgetful takes a repeated call to the gate for another one.
type forgetful struct{ sound }

func (q forgetful) Enter(k model.Ticket, token string) (*model.Grant, string) {
	for q.Tenants[k.Tenant].Owned(token) != nil {
		token += "x"
	}
	return q.sound.Enter(k, token)
}

// harsh charges each suspect with the crash.
type harsh struct{ sound }

func (q harsh) Release(limit int, ttl, trip time.Duration) ([]model.Ticket, int64, bool) {
	before := map[*model.Job]int64{}
	for _, t := range q.Tenants {
		for _, j := range t.Jobs {
			before[j] = j.Crashes - j.Blamed
		}
	}
	tickets, wait, more := q.sound.Release(limit, ttl, trip)
	for j, n := range before {
		j.Blamed += max(0, j.Crashes-j.Blamed-n)
	}
	return tickets, wait, more
}

// lenient blames nobody.
type lenient struct{ sound }

func (q lenient) Release(limit int, ttl, trip time.Duration) ([]model.Ticket, int64, bool) {
	for _, t := range q.Tenants {
		for _, j := range t.Jobs {
			j.Blamed = 0
		}
	}
	return q.sound.Release(limit, ttl, trip)
}

// repeating gives a start the number of the one before.
type repeating struct{ sound }

func (q repeating) Enter(k model.Ticket, token string) (*model.Grant, string) {
	g, why := q.sound.Enter(k, token)
	if g != nil && g.Attempt > 1 {
		g.Attempt--
	}
	return g, why
}

// losing loses jobs that fail.
type losing struct{ sound }

func (q losing) Finish(reports ...model.Report) []model.Ended {
	ended := q.sound.Finish(reports...)
	for i, r := range reports {
		if ended[i].Became == "retry" {
			delete(q.Tenants[r.Tenant].Jobs, r.ID)
			q.Tenants[r.Tenant].Later = model.New(q.Now, q.Policy).Due
		}
	}
	return ended
}

// brief gives workers no more time to beat when Redis restarts again.
type brief struct{ sound }

func (q brief) Release(limit int, ttl, trip time.Duration) ([]model.Ticket, int64, bool) {
	if q.Epoch > q.LastRelease {
		q.SparedUntil = 0
	}
	return q.sound.Release(limit, ttl, trip)
}

// moody does what it does by something that no key tells.
type moody struct{ sound }

func (q moody) Release(limit int, ttl, trip time.Duration) ([]model.Ticket, int64, bool) {
	if q.Tenants["a"].Took > 0 { // an estimate is made of it, and nothing else
		ttl /= 2
	}
	return q.sound.Release(limit, ttl, trip)
}

// An exploration that cannot fail shows nothing: each of these queues breaks a promise, and in one
// of the scenarios of TestScenarios that is found.
func TestBroken(t *testing.T) {
	scenarios := map[string]explore.Scenario{}
	for _, s := range explore.Scenarios(false) {
		scenarios[s.Name] = s
	}
	for _, tc := range []struct {
		what, scenario string
		breaks         func(*model.Downstream) explore.Queue
		want           string
	}{
		{"a restart is overlooked", "forget", func(d sound) explore.Queue { return blind{d} }, "from another start of its tenant"},
		{"a slot is early", "gate", func(d sound) explore.Queue { return hasty{d} }, "99999 µs from another start of its tenant"},
		{"a lost ticket is missed late", "gate", func(d sound) explore.Queue { return careless{d} }, "it takes 2m0s, more than 1m0s"},
		{"anybody may report an end", "crash", func(d sound) explore.Queue { return trusting{d} }, "that does not own it"},
		{"a repeated call is another one", "gate", func(d sound) explore.Queue { return forgetful{d} }, "took no process down"},
		{"all suspects are charged", "blame", func(d sound) explore.Queue { return harsh{d} }, "took no process down"},
		{"nobody is charged", "blame", func(d sound) explore.Queue { return lenient{d} }, "has taken 7 processes down"},
		{"attempts repeat", "ends", func(d sound) explore.Queue { return repeating{d} }, "attempt 1 of job1 starts after attempt 1"},
		{"what fails is lost", "ends", func(d sound) explore.Queue { return losing{d} }, "is not there"},
		{"a second restart takes the time to beat away", "away", func(d sound) explore.Queue { return brief{d} }, "to blame for 1 crashes"},
		{"a key leaves something out", "race", func(d sound) explore.Queue { return moody{d} }, "have the same key"},
	} {
		t.Run(tc.what, func(t *testing.T) {
			s := scenarios[tc.scenario]
			s.Break = tc.breaks
			r := explore.Explore(s, 0)
			if !strings.Contains(r.Broken, tc.want) {
				t.Errorf("%q is found, want %q", r.Broken, tc.want)
			}
			if len(r.Trace) == 0 {
				t.Error("and there is no trace")
			}
			t.Logf("%s\n%s", r.Broken, strings.Join(r.Trace, "\n")) // of interest to who changes a promise
		})
	}
}
