package shaper

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// The scripts and keys.go build the same names: jobs in every state leave exactly the keys that
// keys.go knows.
func TestKeysTwin(t *testing.T) {
	w := newWorld(t, redistest.Open(t))
	w.pool("p", 9)
	applied, err := w.admin.Apply(t.Context(),
		DownstreamPolicy{DepartureLog: 100, Admit: rules(t, "fixed_window 3000/d name=each", "fixed_window 5000/d name=all per=downstream")},
		map[string]Policy{"T": {Rate: rate(1000, time.Second)}})
	w.must(err)
	_, err = w.admin.LookAtConfig(t.Context(), applied.Digest, time.Second)
	w.must(err)
	for _, id := range []string{"dead", "done", "running", "out"} {
		w.offer(Spec{Tenant: "T", ID: id, Retention: time.Hour})
	}
	w.finish(w.start(), queue.Finish{Ending: queue.EndDead})
	w.finish(w.start(), queue.Finish{Ending: queue.EndOK, Next: queue.NewToken("p")})
	w.pass(second)
	w.offer(Spec{Tenant: "T", ID: "overtaken"})
	tickets, _, _ := w.release(2)
	if len(tickets) != 2 {
		t.Fatalf("%d tickets", len(tickets))
	}
	displaced, _ := w.enter(tickets[1], "p")
	w.finish(displaced, queue.Finish{Ending: queue.EndBack})
	w.offer(Spec{Tenant: "T", ID: "later", Delay: time.Minute})
	w.offer(Spec{Tenant: "T", ID: "waiting"})
	w.pool("p", 0)
	w.release(1) // the tenant's time has come, and there is no place for it
	w.offer(Spec{Tenant: "U", ID: "due"})

	q := w.q
	want := []string{q.DownstreamKey(), q.DueKey(), q.ReadyKey(), q.OutKey(), q.RunKey(), q.PoolsKey(), q.TenantsKey(), q.LogKey(), q.NamedKey(), q.ConfigsKey(),
		q.TenantKey("T"), q.WaitKey("T"), q.BackKey("T"), q.LaterKey("T"), q.JobsKey("T"), q.StateKey("T"), q.OutsKey("T"), q.DeadKey("T"), q.EndKey("T", "done"), q.PageKey("T", 0), q.EndsKey(), q.GaveKey(),
		q.ReceiptKey(displaced.Token),
		q.TenantKey("U"), q.WaitKey("U"), q.JobsKey("U"), q.AdmitKey("each", "T"), q.AdmitKey("each", "U"), q.AdmitKey("all", "")}
	got, err := w.rdb.Keys(t.Context(), "*").Result()
	w.must(err)
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("keys in Redis\n%s\nby keys.go\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, k := range want {
		if !strings.HasPrefix(k, "shaper:{"+q.Downstream+"}:") {
			t.Errorf("%s does not carry the hash tag of its downstream", k)
		}
	}
}
