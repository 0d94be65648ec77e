package e2e

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/history"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/shaper"
)

var (
	soakFor  = flag.Duration("soak.for", 8*time.Second, "how long TestSoak breaks things")
	soakSeed = flag.Uint64("soak.seed", 0, "what TestSoak draws from; 0 = the clock")
)

// soakMix are the jobs of a soak: most do what they should.
var soakMix = mix{
	{60, play{}},
	{20, play{For: 10 * time.Millisecond}},
	{10, play{For: 50 * time.Millisecond}},
	{3, play{Fail: 1}},
	{2, play{Fail: 100}},
	{1, play{First: time.Second}},
	{1, play{For: 10 * time.Second}},                   // until its time is over, or it is cancelled
	{1, play{For: 300 * time.Millisecond, Deaf: true}}, // longer than its time
	{1, play{Throttle: 100 * time.Millisecond}},
	{1, play{Panic: true}},
	{1, play{Goexit: true}},
}

// soakCap is the most jobs of a tenant that are in flight in a soak.
const soakCap = 10

// TestSoak breaks everything at random, for 8 s in `make test`, and for as long as one likes in
// `make soak FOR=1h SEED=7`: daemons and producers are killed, stopped and terminated, Redis is
// killed and forgets its scripts, tenants are paused and change their rates, jobs fail, panic, hang
// and are cancelled. Each job is posted to a sink, which wants a new connection for each. Afterwards
// everything that was promised is checked over the whole history, and spacing over what the sink saw.
func TestSoak(t *testing.T) {
	notShort(t)
	t.Parallel()
	seed := *soakSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	r := newServerRig(t, redistest.AOF(), redistest.Acknowledged())
	keepHistory(r, seed, soakCap)
	s := newStorm(r, seed, kinds)
	r.downstream(shaper.DownstreamPolicy{Lease: 2 * time.Second, MaxCrashes: 10})
	for i, n := range []int64{3, 5, 7, 10, 13, 17, 20, 25} {
		tenant := fmt.Sprintf("t%d", i)
		s.tenants, s.rates[tenant] = append(s.tenants, tenant), buckets.PerSecond(n)
		r.tenant(tenant, shaper.Policy{Depth: 2 * int(n), MaxInFlight: soakCap, MaxAttempts: 3, Backoff: quickly, Timeout: 200 * time.Millisecond})
		s.setRate(tenant, s.rates[tenant])
	}
	const grace = 500 * time.Millisecond
	s.spared = 1
	sink := r.closingSink()
	keepArrivals(r, seed, sink)
	works := role{Worker: true, Target: sink.url, Lean: true, Places: 30, Grace: grace}
	both := works
	both.Scheduler, both.TicketTTL = true, time.Second
	checked := both
	checked.checked = *soakFor < time.Minute
	s.daemons = r.startAll(checked, both, works)
	for i := range 2 { // together somewhat more than what may leave
		s.producers = append(s.producers, r.start(role{Stream: &stream{Rates: s.offered(0.6), Seed: seed + uint64(i), Mix: soakMix}}))
	}

	begun, told := time.Now(), time.Now()
	old := s.daemons[0]
	var young int64 // what the daemon that is spared held after a quarter of the time
	var level sampler
	s.rage(*soakFor, 500*time.Millisecond, func() {
		s.ledger.look(5 * time.Second)
		level.sample(r)
		if time.Since(told) > time.Minute {
			told = time.Now()
			t.Logf("%v: %d starts, %d jobs have not ended", time.Since(begun).Round(time.Second), s.ledger.starts, len(s.ledger.open))
		}
		if young == 0 && time.Since(begun) > *soakFor/4 {
			young = old.resident()
		}
	})
	s.mendAll()
	for _, p := range s.producers {
		p.terminate()
		p.end()
	}
	for tenant, rate := range s.rates {
		s.setRate(tenant, rate)
	}
	s.settle()

	report, err := history.Judge(r.path, history.Terms{Tolerance: shaper.DefaultTolerance, Slack: time.Millisecond, InFlight: soakCap})
	r.must(err)
	r.weather.refuse(t, report.Starts, report.Violations())
	arrivals, err := history.Arrivals(r.path, sink.path, history.Terms{Tolerance: shaper.DefaultTolerance, Slack: onTheWay})
	r.must(err)
	r.weather.refuse(t, arrivals.Starts, arrivals.Violations())
	if arrivals.Starts < report.Starts/2 {
		t.Errorf("%d arrivals of %d starts: there is nothing to judge", arrivals.Starts, report.Starts)
	}
	s.conserved()
	s.tidy()
	fresh := r.start(old.role)
	now, want := old.goroutines(), fresh.goroutines()
	if now > want+20 {
		t.Errorf("a daemon has %d goroutines after %v, a new one %d", now, time.Since(begun), want)
	}
	grown := old.resident()
	if *soakFor >= time.Minute && grown > young*5/4+16<<20 {
		t.Errorf("a daemon held %d MB after a quarter of the time, and %d MB in the end", young>>20, grown>>20)
	}
	if len(level.over) > 0 {
		t.Errorf("the bound was passed %d times of %d: %v", len(level.over), level.n, level.over[0])
	}
	t.Logf("at the sink: %d arrivals: spacing %d, windows %d, slots %d, early %d; least gap %v of interval %v", arrivals.Starts,
		len(arrivals.Found["spacing"]), len(arrivals.Found["windows"]), len(arrivals.Found["slots"]), len(arrivals.Found["on time"]),
		arrivals.LeastGap.Round(time.Microsecond), arrivals.Interval.Round(time.Microsecond))
	t.Logf("soak %v seed %d: %v; %d looks at the bound; daemon of %v: %d goroutines (new: %d), %d MB (after a quarter: %d MB)",
		*soakFor, seed, report, level.n, time.Since(begun).Round(time.Second), now, want, grown>>20, young>>20)
}

// offered returns the tenants' rates times a factor.
func (s *storm) offered(factor float64) map[string]buckets.Rate {
	out := map[string]buckets.Rate{}
	for tenant, rate := range s.rates {
		rate.Period = time.Duration(float64(rate.Period) / factor).Truncate(time.Microsecond)
		out[tenant] = rate
	}
	return out
}

// settle waits until every accepted job has come to its end, and nothing is left in the queue.
func (s *storm) settle() {
	s.t.Helper()
	begun := time.Now()
	for looked := begun; ; time.Sleep(20 * time.Millisecond) {
		s.ledger.read()
		stats, err := s.admin.Stats(context.Background(), false)
		empty := err == nil && stats.Level()+stats.Out+stats.Running == 0
		if empty && len(s.ledger.open) == 0 {
			return
		}
		if empty && time.Since(looked) > 200*time.Millisecond { // those still open ended without a handler, or are lost
			s.ledger.look(0)
			looked = time.Now()
		}
		if time.Since(begun) > patience {
			s.t.Errorf("not drained within %v: %d jobs have not ended; %+v %v", patience, len(s.ledger.open), stats, err)
			return // the checks name the jobs
		}
	}
}

// tidy fails the test unless Redis soon holds nothing that it should not.
func (s *storm) tidy() {
	s.t.Helper()
	var left []string
	for begun := time.Now(); time.Since(begun) < patience/6; time.Sleep(100 * time.Millisecond) {
		if left = leftovers(s.rig); len(left) == 0 {
			return
		}
	}
	s.t.Errorf("left in Redis: %s", strings.Join(left, "; "))
}

// conserved fails the test unless each accepted job was counted as ended once: a report that
// counted twice, or a job that vanished, would upset the sum.
func (s *storm) conserved() {
	s.t.Helper()
	all, err := s.admin.Tenants(context.Background())
	s.must(err)
	for _, t := range all {
		c := t.Counters
		if sum := c.Done + c.Cancelled + c.Expired + c.Dropped + c.Forgotten + int64(t.Dead); sum != c.Accepted {
			s.t.Errorf("tenant %s: %d accepted, and %d ends: %+v, %d are dead", t.Name, c.Accepted, sum, c, t.Dead)
		}
	}
}

// sampler looks at levels, while producers offer.
type sampler struct {
	n    int
	over []string
}

// sample looks at all tenants, in one script. New arrivals find room in the depth, and what comes
// back was in flight.
func (l *sampler) sample(r *rig) {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	all, err := r.admin.Tenants(ctx)
	if err != nil {
		return // Redis is away
	}
	l.n++
	for _, t := range all {
		busy, most := t.Out+t.Running, t.Effective.MaxInFlight
		if busy > most || t.Level()+busy > t.Effective.Depth+most {
			l.over = append(l.over, fmt.Sprintf("tenant %s: %d wait, %d in flight; depth %d, max_in_flight %d", t.Name, t.Level(), busy, t.Effective.Depth, most))
		}
	}
}

// leftovers returns what is in Redis and should not be, once all jobs have ended: keys that stay
// for ever besides policies, a departure log, dead jobs, and what asynq has of workers that were
// killed recently (its own recoverer clears that within some minutes).
func leftovers(r *rig) (out []string) {
	r.t.Helper()
	ctx := context.Background()
	ours := "shaper:{" + r.name + "}:"
	var tasks, known int64
	for _, key := range r.lasting() {
		rest, isOurs := strings.CutPrefix(key, ours)
		kind, tenant, ofTenant := strings.Cut(rest, ":")
		switch {
		case isOurs && !ofTenant && (rest == "d" || rest == "tenants" || rest == "log"):
		case isOurs && ofTenant && (kind == "t" || kind == "x"):
		case isOurs && ofTenant && (kind == "j" || kind == "s"):
			n, err := r.rdb.HLen(ctx, key).Result()
			r.must(err)
			dead, err := r.rdb.ZCard(ctx, ours+"x:"+tenant).Result()
			r.must(err)
			if n != dead {
				out = append(out, fmt.Sprintf("%s holds %d jobs, and %d are dead", key, n, dead))
			}
		case strings.HasPrefix(key, "asynq:{shaper-"+r.name+"}:t:"):
			tasks++
		case strings.HasPrefix(key, "asynq:"):
		case os.Getenv(storeVar) != "" && !isOurs && strings.HasPrefix(key, "shaper:{"): // of a test beside this one
		default:
			out = append(out, fmt.Sprintf("%s stays for ever", key))
		}
	}
	pipe := r.rdb.Pipeline()
	pending, active := pipe.LLen(ctx, "asynq:{shaper-"+r.name+"}:pending"), pipe.LLen(ctx, "asynq:{shaper-"+r.name+"}:active")
	retry, archived := pipe.ZCard(ctx, "asynq:{shaper-"+r.name+"}:retry"), pipe.ZCard(ctx, "asynq:{shaper-"+r.name+"}:archived")
	_, err := pipe.Exec(ctx)
	r.must(err)
	if known = pending.Val() + active.Val() + retry.Val() + archived.Val(); tasks != known {
		out = append(out, fmt.Sprintf("asynq has %d tickets, and knows of %d", tasks, known))
	}
	return out
}

// lasting returns the keys that have no time to live.
func (r *rig) lasting() (out []string) {
	r.t.Helper()
	ctx := context.Background()
	for cursor := uint64(0); ; {
		keys, next, err := r.rdb.Scan(ctx, cursor, "*", 1000).Result()
		r.must(err)
		ttls := make([]*redis.DurationCmd, len(keys))
		_, err = r.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, key := range keys {
				ttls[i] = p.PTTL(ctx, key)
			}
			return nil
		})
		r.must(err)
		for i, key := range keys {
			if ttls[i].Val() == -1 {
				out = append(out, key)
			}
		}
		if cursor = next; cursor == 0 {
			slices.Sort(out)
			return slices.Compact(out) // a scan may show a key twice
		}
	}
}

// keepHistory keeps the history of a test that fails, and says how to check it again.
func keepHistory(r *rig, seed uint64, inFlight int) {
	r.t.Cleanup(func() {
		if !r.t.Failed() {
			return
		}
		if kept := r.keep(r.path, seed, ""); kept != "" {
			r.t.Logf("the history is kept; to check it again: go run ./internal/history/histcheck -in-flight %d %s", inFlight, kept)
		}
	})
}

// keepArrivals keeps what the sink of a test that fails saw.
func keepArrivals(r *rig, seed uint64, s *sink) {
	r.t.Cleanup(func() {
		if !r.t.Failed() {
			return
		}
		if kept := r.keep(s.path, seed, "-arrivals"); kept != "" {
			r.t.Logf("what the sink saw is kept; to check it again: histcheck -slack %v -arrivals %s, and the history", onTheWay, kept)
		}
	})
}

// keep copies a file to where it outlives the test, and returns its name; "" if that failed.
func (r *rig) keep(file string, seed uint64, suffix string) string {
	kept := filepath.Join("..", "..", "soak-history", fmt.Sprintf("%s-%d%s", r.t.Name(), seed, suffix))
	if err := copyFile(file, kept); err != nil {
		r.t.Logf("%s could not be kept: %v", file, err)
		return ""
	}
	if abs, err := filepath.Abs(kept); err == nil {
		kept = abs
	}
	return kept
}

func copyFile(from, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if e := out.Close(); err == nil {
		err = e
	}
	return err
}
