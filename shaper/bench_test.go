package shaper

import (
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// BenchmarkScripts measures one call of each script that every job needs, from one client;
// redis-µs/op is what it costs inside Redis. Preparations are not counted.
func BenchmarkScripts(b *testing.B) {
	payload := make([]byte, 200)
	spec := func() Spec { return Spec{Tenant: "a", Type: "bench", Payload: payload} }
	for _, bm := range []struct {
		name string
		n    int // calls that one preparation serves
		prep func(w *world, n int) []any
		call func(w *world, arg any)
	}{
		{"enqueue/busy tenant", 1000, func(w *world, n int) []any { w.offer(spec()); return make([]any, n) },
			func(w *world, _ any) { w.offer(spec()) }},
		{"enqueue/idle tenant", 1000, func(w *world, n int) []any { return newIDs(n) },
			func(w *world, id any) { s := spec(); s.Tenant = id.(string); w.offer(s) }},
		{"enqueue/100 in a call", 20, func(w *world, n int) []any { w.offer(spec()); return make([]any, n) },
			func(w *world, _ any) {
				specs := make([]Spec, 100)
				for i := range specs {
					specs[i] = spec()
				}
				w.client.OfferMany(w.t.Context(), specs)
			}},
		{"release/1 ticket", 500, func(w *world, n int) []any { offerN(w, n); w.credit(); return make([]any, n) },
			func(w *world, _ any) { w.release(1) }},
		{"release/50 tickets", 20, func(w *world, n int) []any { offerN(w, 50*n); w.credit(); return make([]any, n) },
			func(w *world, _ any) { w.release(50) }},
		{"release/nothing due", 1000, func(w *world, n int) []any { return make([]any, n) },
			func(w *world, _ any) { w.release(50) }},
		{"gate", 500, func(w *world, n int) []any { offerN(w, n); return tickets(w, n) },
			func(w *world, k any) { w.enter(k.(queue.Ticket), "p") }},
		{"finish", 500, func(w *world, n int) []any { offerN(w, n); return grants(w, tickets(w, n)) },
			func(w *world, g any) { w.finish(g.(*queue.Grant), queue.Finish{Ending: queue.EndOK}) }},
		{"finish and next", 500, func(w *world, n int) []any { offerN(w, 2*n); return grants(w, tickets(w, n)) },
			func(w *world, g any) {
				w.finish(g.(*queue.Grant), queue.Finish{Ending: queue.EndOK, Next: queue.NewToken("p")})
			}},
		{"gate, logged", 500, func(w *world, n int) []any {
			w.setDownstream(DownstreamPolicy{DepartureLog: 10_000})
			offerN(w, n)
			return tickets(w, n)
		}, func(w *world, k any) { w.enter(k.(queue.Ticket), "p") }},
		{"finish and next, logged", 500, func(w *world, n int) []any {
			w.setDownstream(DownstreamPolicy{DepartureLog: 10_000})
			offerN(w, 2*n)
			return grants(w, tickets(w, n))
		}, func(w *world, g any) {
			w.finish(g.(*queue.Grant), queue.Finish{Ending: queue.EndOK, Next: queue.NewToken("p"), Began: queue.BeganAfter(0)})
		}},
		{"beat/20 jobs", 500, func(w *world, n int) []any {
			offerN(w, 20)
			g := grants(w, tickets(w, 20))
			all := make([]any, n)
			for i := range all {
				all[i] = g
			}
			return all
		}, func(w *world, g any) {
			var own []queue.Held
			for _, o := range g.([]any) {
				own = append(own, queue.Held{Grant: o.(*queue.Grant)})
			}
			_, err := w.gate.Beat(w.t.Context(), "p", 1_000_000, time.Hour, own)
			w.must(err)
		}},
	} {
		b.Run(bm.name, func(b *testing.B) {
			rdb := redistest.Start(b).Client()
			var micros float64
			for done := 0; done < b.N; {
				b.StopTimer()
				w := on(b, rdb)
				w.set("a", Policy{Rate: rate(1_000_000, time.Second), Depth: 1_000_000, MaxInFlight: 1_000_000})
				w.pool("p", 1_000_000)
				n := min(bm.n, b.N-done)
				args := bm.prep(w, n)
				if err := rdb.ConfigResetStat(b.Context()).Err(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				for _, a := range args[:n] {
					bm.call(w, a)
				}
				b.StopTimer()
				micros += spent(b, rdb)
				done += n
			}
			b.ReportMetric(micros/float64(b.N), "redis-µs/op")
		})
	}
}

func newIDs(n int) []any {
	l := make([]any, n)
	for i := range l {
		l[i] = NewID()
	}
	return l
}

func offerN(w *world, n int) {
	specs := make([]Spec, n)
	for i := range specs {
		specs[i] = Spec{Tenant: "a", Type: "bench", Payload: make([]byte, 200)}
	}
	w.client.OfferMany(w.t.Context(), specs)
}

func tickets(w *world, n int) (l []any) {
	for len(l) < n {
		w.credit()
		got, _, _ := w.release(min(50, n-len(l)))
		for _, k := range got {
			l = append(l, k)
		}
	}
	return l
}

func grants(w *world, tickets []any) (l []any) {
	for _, k := range tickets {
		g, _ := w.enter(k.(queue.Ticket), "p")
		l = append(l, g)
	}
	return l
}

var usec = regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`)

// spent is how long Redis has run scripts, in µs.
func spent(b *testing.B, rdb *redis.Client) float64 {
	b.Helper()
	info, err := rdb.Info(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	m := usec.FindStringSubmatch(info)
	if m == nil {
		return 0
	}
	us, _ := strconv.ParseFloat(m[1], 64)
	return us
}
