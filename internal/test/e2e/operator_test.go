package e2e

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/shaper"
)

// operator is whoever calls a downstream from outside: a producer, or an operator at the command
// line.
type operator struct {
	rdb    redis.UniversalClient
	client *shaper.Client
	admin  *shaper.Admin
	gate   *queue.Gate
	rec    *history.Recorder

	downstream string
}

// newOperator returns an operator of a role's downstream; the caller must close it.
func newOperator(r role, opts redisurl.Config) (o *operator, err error) {
	o = &operator{downstream: r.Downstream}
	if o.rdb, err = redisurl.Open(unhurried(r.Redis), opts); err != nil {
		return nil, err
	}
	var errs [3]error
	o.client, errs[0] = shaper.NewClient(o.rdb, r.Downstream, shaper.ClientConfig{})
	o.admin, errs[1] = shaper.NewAdmin(o.rdb, r.Downstream)
	o.gate = queue.NewGate(queue.Open(o.rdb, r.Downstream))
	o.rec, errs[2] = history.Open(r.History)
	return o, errors.Join(errs[:]...)
}

func (o *operator) close() {
	o.rec.Close()
	o.rdb.Close()
}

// operate is an operator's process.
func (r role) operate(ctx context.Context) error {
	o, err := newOperator(r, redisurl.Config{})
	if err != nil {
		return err
	}
	defer o.close()
	return o.run(ctx, r.Operate)
}

// run makes one call of operations three times.
func (o *operator) run(ctx context.Context, call string) error {
	for n := range 3 {
		if err := operations[call].do(ctx, o, n); err != nil {
			return fmt.Errorf("%s, number %d: %w", call, n, err)
		}
	}
	return nil
}

// operation is a call of the downstream by people and producers.
type operation struct {
	// Makes the call the nth time, from 0; may be repeated as a whole.
	do func(ctx context.Context, o *operator, n int) error
	// Checks whether all three took effect; what it returns is wrong.
	check func(ctx context.Context, o *operator) (string, error)
}

// operations are named by the script that they call.
var operations = map[string]operation{
	"enqueue": {do: func(ctx context.Context, o *operator, n int) error {
		return o.offered(offer(ctx, o.client, o.rec, jobOf("a", n)))
	}},
	"pipeline": {do: func(ctx context.Context, o *operator, n int) error {
		specs := []shaper.Spec{jobOf("a", 10+n), jobOf("b", 10+n), jobOf("a", 20+n)}
		for _, s := range specs {
			if err := o.rec.Record(history.Event{Kind: history.Offer, Tenant: s.Tenant, ID: s.ID}); err != nil {
				return err
			}
		}
		for i, out := range o.client.OfferMany(ctx, specs) {
			if err := o.offered(out.Result, out.Err); err != nil {
				return err
			}
			if err := o.rec.Record(answer(history.Event{Tenant: specs[i].Tenant, ID: specs[i].ID}, out.Result)); err != nil {
				return err
			}
		}
		return nil
	}},
	"cancel": {func(ctx context.Context, o *operator, n int) error {
		s := later("c", n)
		if err := o.offered(o.client.Offer(ctx, s)); err != nil {
			return err
		}
		_, err := o.client.Cancel(ctx, s.Tenant, s.ID)
		return err
	}, func(ctx context.Context, o *operator) (string, error) {
		for n := range 3 {
			if job, err := o.client.Find(ctx, "c", later("c", n).ID); err != nil || job.State != shaper.StateCancelled {
				return fmt.Sprintf("job %d is %s, want cancelled", n, job.State), err
			}
		}
		return "", nil
	}},
	"dead": {func(ctx context.Context, o *operator, n int) error {
		_, _, err := o.admin.RequeueDead(ctx, "x", jobOf("x", n).ID) // it dies again
		return err
	}, func(ctx context.Context, o *operator) (string, error) {
		dead, err := o.admin.Dead(ctx, "x", 10)
		if len(dead) != 3 {
			return fmt.Sprintf("%d jobs are dead, want 3", len(dead)), err
		}
		for _, job := range dead {
			if job.Attempt < 2 {
				return fmt.Sprintf("job %s was never requeued", job.ID), err
			}
		}
		return "", err
	}},
	"purge": {func(ctx context.Context, o *operator, n int) error {
		if err := o.offered(o.client.Offer(ctx, later("p", n))); err != nil {
			return err
		}
		_, err := o.admin.Purge(ctx, "p")
		return err
	}, func(ctx context.Context, o *operator) (string, error) {
		t, err := o.admin.Tenant(ctx, "p")
		return wrong(t.Level() != 0, "%d jobs wait, want none", t.Level()), err
	}},
	"policy": {func(ctx context.Context, o *operator, n int) error {
		return o.admin.SetTenant(ctx, "g", rate(int64(n+1)))
	}, func(ctx context.Context, o *operator) (string, error) {
		t, err := o.admin.Tenant(ctx, "g")
		return wrong(t.Effective.Rate != rate(3).Rate, "the rate is %v, want 3/s", t.Effective.Rate), err
	}},
	"config": {func(ctx context.Context, o *operator, n int) error {
		p, err := o.admin.Downstream(ctx)
		if err != nil {
			return err
		}
		_, err = o.admin.Apply(ctx, p, map[string]shaper.Policy{"k": rate(int64(n + 1)), fmt.Sprint("k", n): rate(1)})
		return err
	}, func(ctx context.Context, o *operator) (string, error) {
		for tenant, want := range map[string]bool{"k": true, "k0": false, "k1": false, "k2": true} {
			t, err := o.admin.Tenant(ctx, tenant)
			if err != nil || t.Known != want || tenant == "k" && t.Effective.Rate != rate(3).Rate {
				return fmt.Sprintf("%s is known: %v, at %v; want %v, and 3/s for k", tenant, t.Known, t.Effective.Rate, want), err
			}
		}
		return "", nil
	}},
	"pause": {func(ctx context.Context, o *operator, n int) error {
		return o.admin.Pause(ctx, "a", time.Duration(n+1)*10*time.Millisecond)
	}, nil},
	"forget": {func(ctx context.Context, o *operator, n int) error {
		if err := o.admin.SetTenant(ctx, "f", rate(1)); err != nil {
			return err
		}
		return o.admin.Remove(ctx, "f")
	}, func(ctx context.Context, o *operator) (string, error) {
		_, err := o.admin.Tenant(ctx, "f")
		if errors.Is(err, shaper.ErrNotFound) {
			return "", nil
		}
		return "it is still known", err
	}},
	"find": {func(ctx context.Context, o *operator, n int) error {
		_, err := o.client.Find(ctx, "a", "nobody")
		if errors.Is(err, shaper.ErrNotFound) {
			return nil
		}
		return fmt.Errorf("%w, want %w", err, shaper.ErrNotFound)
	}, nil},
	"stats": {func(ctx context.Context, o *operator, _ int) error {
		_, err := o.admin.Stats(ctx, true)
		return err
	}, nil},
	"compare": mending("k"),
	"mend":    mending("m"),
	"giveback": {func(ctx context.Context, o *operator, n int) error {
		return o.gate.GiveBack(ctx, queue.Ticket{Tenant: "a", ID: jobOf("a", n).ID, Release: 1})
	}, nil},
}

// mending takes a job of a tenant out of the books, and has them mended. Otherwise the job would be
// left for ever.
func mending(tenant string) operation {
	return operation{func(ctx context.Context, o *operator, n int) error {
		s := later(tenant, n)
		if err := o.offered(o.client.Offer(ctx, s)); err != nil {
			return err
		}
		if err := o.rdb.ZRem(ctx, "shaper:{"+o.downstream+"}:z:"+tenant, s.ID).Err(); err != nil {
			return err
		}
		if _, err := o.admin.Books(ctx, true); err != nil {
			return err
		}
		_, err := o.admin.Purge(ctx, tenant)
		return err
	}, nil}
}

// jobOf is a job that runs for a moment, under an id that does not change.
func jobOf(tenant string, n int) shaper.Spec {
	return shaper.Spec{Tenant: tenant, ID: fmt.Sprintf("%s-operator-%d", tenant, n), Type: "play", Payload: play{For: time.Millisecond}.bytes()}
}

// later is a job that is due when the test is long over.
func later(tenant string, n int) shaper.Spec {
	s := jobOf(tenant, n)
	s.Delay = time.Hour
	return s
}

// offered turns a refusal into an error.
func (o *operator) offered(r shaper.Result, err error) error {
	if err == nil && r.Status != shaper.Accepted {
		err = fmt.Errorf("%+v, want accepted", r)
	}
	return err
}

func wrong(is bool, format string, args ...any) string {
	if !is {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// bury makes three dead jobs of tenant x.
func (r *rig) bury() {
	r.t.Helper()
	r.tenant("x", shaper.Policy{MaxAttempts: 1, Rate: rate(100).Rate})
	for n := range 3 {
		s := jobOf("x", n)
		s.Payload = play{Fail: 1000}.bytes()
		// Without an answer, since nobody waits for its end.
		r.must(r.rec.Record(history.Event{Kind: history.Offer, Tenant: s.Tenant, ID: s.ID}))
		result, err := r.client.Offer(context.Background(), s)
		r.must(err)
		if result.Status != shaper.Accepted {
			r.t.Fatalf("%+v, want accepted", result)
		}
	}
	r.eventually("three jobs are dead", func() bool {
		dead, err := r.admin.Dead(context.Background(), "x", 10)
		return err == nil && len(dead) == 3
	})
}

// check waits until a call of operations has had its effect.
func (r *rig) check(o *operator, call string) {
	r.t.Helper()
	check := operations[call].check
	if check == nil {
		return
	}
	var said string
	var err error
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(10 * time.Millisecond) {
		if said, err = check(context.Background(), o); said == "" && err == nil {
			return
		}
	}
	r.t.Errorf("%s: %s (%v)", call, said, err)
}
