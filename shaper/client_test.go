package shaper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// OfferMany answers each job on its own, in the order in which the jobs were given, and each
// tenant's jobs wait in that order; also if Redis forgot the scripts.
func TestOfferMany(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("full", Policy{Depth: 3})
	for _, name := range []string{"a", "b"} {
		w.set(name, Policy{Depth: 5000})
	}
	for round := range 2 {
		var specs []Spec
		want := map[string][]string{}
		for i := range 1700 {
			s := Spec{Tenant: []string{"a", "b", "a"}[i%3], ID: fmt.Sprint("r", round, "-", i), Type: "x"}
			switch {
			case i%100 == 7:
				s.Tenant = "full"
			case i%100 == 8:
				s.Type = "" // invalid
			default:
				want[s.Tenant] = append(want[s.Tenant], s.ID)
			}
			specs = append(specs, s)
		}
		w.must(w.rdb.ScriptFlush(t.Context()).Err())
		out := w.client.OfferMany(t.Context(), specs)
		if len(out) != len(specs) {
			t.Fatalf("%d outcomes of %d specs", len(out), len(specs))
		}
		accepted := 0
		for i, o := range out {
			s := specs[i]
			switch {
			case s.Type == "":
				if !errors.Is(o.Err, ErrInvalid) {
					t.Errorf("an invalid job: %+v", o)
				}
			case o.Err != nil || o.Result.ID != s.ID || o.Result.Tenant != s.Tenant:
				t.Fatalf("outcome %d of %s: %+v", i, s.ID, o)
			case s.Tenant == "full":
				if o.Result.Status == Accepted {
					accepted++
				}
			case o.Result.Status != Accepted || o.Result.Duplicate:
				t.Fatalf("outcome %d of %s: %+v", i, s.ID, o)
			}
		}
		if accepted != 3*(1-round) {
			t.Errorf("round %d: %d accepted into a bucket of 3", round, accepted)
		}
		for name, ids := range want {
			got := strings.Fields(w.waiting(name))
			if got = got[len(got)-len(ids):]; !slices.Equal(got, ids) {
				t.Errorf("round %d: the jobs of %s wait in another order than they were offered", round, name)
			}
		}
		w.pass(milli)
	}
}

// A job of a batch that comes back takes its place among the others of the batch.
func TestBatchesKeepTheirOrder(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1000, time.Second)})
	w.pool("p", 20)
	var want []string
	for batch := range 2 { // the first meets an idle tenant, the second a busy one
		var specs []Spec
		for i := range 15 {
			id := fmt.Sprintf("j%d-%d", batch, (i*7)%15) // neither sorted nor reversed
			want = append(want, id)
			specs = append(specs, Spec{Tenant: "a", ID: id, Type: "x"})
		}
		for _, o := range w.client.OfferMany(t.Context(), specs) {
			w.must(o.Err)
		}
		w.pass(milli)
	}
	if tickets, _, _ := w.release(20); len(tickets) != 20 {
		t.Fatalf("%d tickets", len(tickets))
	}
	w.pass(6 * second)
	w.release(0)
	if got := w.waiting("a"); got != strings.Join(want, " ") {
		t.Errorf("waiting %s, want %s", got, strings.Join(want, " "))
	}
}

// go-redis sends a call again if its reply was lost. The second one is told what the first one was.
func TestRepliesThatAreLost(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.set("a", Policy{Rate: rate(1000, time.Second), Depth: 10})
	w.pool("p", 9)
	c := &counter{}
	w.rdb.AddHook(c)
	lose := func() { c.lose.Store(c.n.Load() + 1) }

	lose()
	if r := w.offer(Spec{Tenant: "a"}); r.Status != Accepted || r.Duplicate || r.Position != 1 {
		t.Errorf("offer: %+v", r)
	}
	lose()
	for _, o := range w.client.OfferMany(t.Context(), []Spec{{Tenant: "a", ID: "x", Type: "x"}, {Tenant: "b", Type: "x", Delay: time.Hour}}) {
		if o.Err != nil || o.Result.Status != Accepted || o.Result.Duplicate {
			t.Errorf("in a batch: %+v", o)
		}
	}
	tickets, _, _ := w.release(1)
	lose()
	g, answer := w.enter(tickets[0], "p")
	if g == nil || g.Attempt != 1 {
		t.Fatalf("gate: %+v, %q", g, answer)
	}
	w.pass(milli)
	lose()
	became, next := w.finish(g, queue.Finish{Ending: queue.EndOK, Text: "r", Next: queue.NewToken("p")})
	if became != "done" || next == nil || next.ID != "x" || next.Attempt != 1 {
		t.Errorf("finish: %s, next %+v", became, next)
	}
	a, err := w.admin.Tenant(t.Context(), "a")
	w.must(err)
	if c := a.Counters; c.Accepted != 2 || c.Started != 1 || c.Done != 1 || a.Running != 1 {
		t.Errorf("counted %+v", a)
	}
}

func TestOfferChecksItsInput(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	before := w.dump()
	for name, s := range map[string]Spec{
		"headers \"k\"": {Type: "x", Headers: map[string]string{"k": "a\xffb"}}, // JSON would change it
		`"\xff"`:        {Type: "x", Headers: map[string]string{"\xff": "v"}},
		"tenant":        {Tenant: "a}b", Type: "x"},
		"id":            {ID: "-x", Type: "x"},
		"type":          {Type: "a b"},
		"delay":         {Type: "x", Delay: -1},
		"at":            {Type: "x", Delay: 1, At: time.Now()},
		"payload":       {Type: "x", Payload: make([]byte, DefaultMaxPayload+1)},
		"headers of":    {Type: "x", Headers: map[string]string{"k": strings.Repeat("v", DefaultMaxPayload)}},
		"65537 bytes":   {Type: "x", Payload: make([]byte, DefaultMaxPayload-1), Headers: map[string]string{"k": "v"}},
		"max_attempts":  {Type: "x", MaxAttempts: -1},
		"timeout":       {Type: "x", Timeout: time.Microsecond},
		"retention":     {Type: "x", Retention: time.Second},
		"max_wait":      {Type: "x", MaxWait: time.Microsecond},
	} {
		if _, err := w.client.Offer(t.Context(), s); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v, want an error that names it", name, err)
		}
	}
	if w.dump() != before {
		t.Error("invalid input left a trace")
	}
}

func TestEnqueueTakesAsynqsTasks(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	task := asynq.NewTask("mail", []byte("body"))
	r, err := w.client.Enqueue(t.Context(), "a", task, asynq.MaxRetry(3), asynq.Timeout(time.Minute), asynq.TaskID("j"), MaxWait(time.Hour))
	if err != nil || r.ID != "j" || r.Status != Accepted {
		t.Fatalf("%+v, %v", r, err)
	}
	if j := w.job("a", "j"); j.Type != "mail" || string(j.Payload) != "body" {
		t.Errorf("%+v", j)
	}
	for _, refused := range []struct {
		option        asynq.Option
		name, instead string
	}{
		{asynq.Queue("q"), "Queue(", "the tenant"}, {asynq.Unique(time.Hour), "Unique(", "TaskID"},
		{asynq.Group("g"), "Group(", "a job that stands for the group"}, {asynq.Deadline(time.Now()), "Deadline(", "MaxWait"},
	} {
		_, err := w.client.Enqueue(t.Context(), "a", task, refused.option)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), refused.name) || !strings.Contains(err.Error(), refused.instead) {
			t.Errorf("%v: got %v, want an error that names it and %s", refused.option, err, refused.instead)
		}
	}
	if _, err := w.client.Enqueue(t.Context(), "a", asynq.NewTaskWithHeaders("mail", nil, map[string]string{"k": "\xed\xa0\xbd"})); !errors.Is(err, ErrInvalid) {
		t.Errorf("a header that is no text: %v", err)
	}
	if _, err := w.client.Enqueue(t.Context(), "a", asynq.NewTask("mail", nil, asynq.MaxRetry(1))); !errors.Is(err, ErrInvalid) {
		t.Errorf("a task with options inside: %v", err)
	}
}

func TestWaitForAJob(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.pool("p", 1)
	w.offer(Spec{Tenant: "a", ID: "a1", Retention: time.Hour})
	w.offer(Spec{Tenant: "a", ID: "a2"})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := w.client.Wait(ctx, "a", "a1"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("waiting for a job that does not end: %v", err)
	}
	w.finish(w.start(), queue.Finish{Ending: queue.EndOK, Text: "result"})
	if j, err := w.client.Wait(withTimeout(t), "a", "a1"); err != nil || j.State != StateDone || string(j.Result) != "result" {
		t.Errorf("%+v, %v", j, err)
	}
	if _, err := w.client.Wait(withTimeout(t), "a", "nobody"); !errors.Is(err, ErrNotFound) {
		t.Errorf("waiting for nobody: %v", err)
	}
}
