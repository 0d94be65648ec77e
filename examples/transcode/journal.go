package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers"
)

// journal writes down what producers were told and what the transcoder saw, when it happened.
// It is safe for concurrent use.
type journal struct {
	note  func(string) // tells the user of a refusal
	begun time.Time    // set by begin, before anything else is called

	mu      sync.Mutex // guards what follows
	records []*record  // one for each tenant
	running int        // handlers that run now
	busiest int        // the most of them at a time
}

// record is the journal of one tenant.
type record struct {
	tenant                    tenant
	offers, refusals, starts  []time.Time
	noted                     time.Time     // when the user was last told of a refusal
	shortestWait, longestWait time.Duration // before trying again, as refusals said; zero if there were none
}

func (r *record) accepted() int { return len(r.offers) - len(r.refusals) }

func newJournal(tenants []tenant, note func(string)) *journal {
	j := &journal{note: note}
	for _, t := range tenants {
		j.records = append(j.records, &record{tenant: t})
	}
	return j
}

// of returns the record of a tenant of the farm. The journal must be locked.
func (j *journal) of(tenant string) *record {
	return j.records[slices.IndexFunc(j.records, func(r *record) bool { return r.tenant.name == tenant })]
}

func (j *journal) begin() { j.begun = time.Now() }

// recordOffer writes down the answer to an offer made at an instant. Of refusals that come close
// together, the user is told about the first.
func (j *journal) recordOffer(tenant string, at time.Time, result shaper.Result) {
	if text := j.enterOffer(tenant, at, result); text != "" {
		j.note(text)
	}
}

// quiet is how long the user is not told about a tenant's further refusals: until about its next
// burst.
const quiet = 2 * time.Second

func (j *journal) enterOffer(tenant string, at time.Time, result shaper.Result) (note string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.of(tenant)
	r.offers = append(r.offers, at)
	if result.Status == shaper.Accepted {
		return ""
	}
	wait := result.RetryAfter
	if len(r.refusals) == 0 {
		r.shortestWait = wait
	}
	r.shortestWait, r.longestWait = min(r.shortestWait, wait), max(r.longestWait, wait)
	r.refusals = append(r.refusals, at)
	if at.Sub(r.noted) < quiet {
		return ""
	}
	r.noted = at
	return fmt.Sprintf("%s refused (%s), try again in %s ms; %s %s", result.ID, result.Reason, ms(wait, 0), tenant, r.tenant.manner())
}

// manner is what a tenant does when it is refused.
func (t tenant) manner() string {
	if t.patient {
		return "tries again"
	}
	return "gives up"
}

// recordStarts is middleware: it writes down when a handler starts, which is what the transcoder
// sees, and how many run.
func (j *journal) recordStarts(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		at := time.Now()
		job, _ := workers.JobFrom(ctx)
		j.mu.Lock()
		r := j.of(job.Tenant)
		r.starts = append(r.starts, at)
		j.running++
		j.busiest = max(j.busiest, j.running)
		j.mu.Unlock()
		defer func() {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.running--
		}()
		return next.ProcessTask(ctx, task)
	})
}

// frame is what there is to show at an instant.
type frame struct {
	begun, now time.Time
	lanes      []lane
	starts     []time.Time // of all tenants, in order
	running    int
}

// lane is one tenant's part of a frame.
type lane struct {
	record
	waiting int
	done    int
}

// frame joins the journal with what the store says.
func (j *journal) frame(stats shaper.Stats) frame {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := frame{begun: j.begun, now: time.Now(), running: j.running}
	for _, r := range j.records {
		l := lane{record: *r}
		l.offers, l.refusals, l.starts = slices.Clone(r.offers), slices.Clone(r.refusals), slices.Clone(r.starts)
		for _, info := range stats.ByTenant {
			if info.Name == r.tenant.name {
				l.waiting, l.done = info.Level(), int(info.Counters.Done)
			}
		}
		f.lanes = append(f.lanes, l)
		f.starts = append(f.starts, l.starts...)
	}
	slices.SortFunc(f.starts, time.Time.Compare)
	return f
}

// account is what became of a tenant's files, according to the journal and the store.
func (j *journal) account(info shaper.TenantInfo) account {
	j.mu.Lock()
	defer j.mu.Unlock()
	c := info.Counters
	return account{record: *j.of(info.Name), stored: int(c.Accepted), done: int(c.Done), failed: int(c.Dead), cancelled: int(c.Cancelled)}
}

// most returns the largest number of handlers that ran at a time.
func (j *journal) most() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.busiest
}
