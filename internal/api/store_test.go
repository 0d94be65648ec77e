package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/breaker"
	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/internal/test/faultproxy"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/shaper"
)

// told is a store that answers as it is told to, and counts what it is asked.
type told struct {
	mu            sync.Mutex
	err           error
	offers, finds int
	allowed       time.Duration // how much time the last call had
}

func (c *told) tell(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *told) asked() (offers, finds int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offers, c.finds
}

func (c *told) OfferMany(ctx context.Context, _ []shaper.Spec) []shaper.Offered {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.offers++
	deadline, _ := ctx.Deadline()
	c.allowed = time.Until(deadline)
	return []shaper.Offered{{Err: c.err}}
}

func (c *told) Find(context.Context, string, string) (shaper.Job, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finds++
	if c.err != nil {
		return shaper.Job{}, c.err
	}
	return shaper.Job{}, shaper.ErrNotFound
}

func storeOn(t *testing.T, client Client) *store {
	s := &store{client: client, downstream: "d", timeout: storeTimeout, probes: newProbes(), log: slog.New(slog.DiscardHandler)}
	t.Cleanup(s.probes.stop)
	return s
}

// redisError is what Redis says.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

var _ redis.Error = redisError("")

func storeErr(err error) error { return fmt.Errorf("enqueue: %w: %w", shaper.ErrStore, err) }

// While a store is away no request waits for it: probes, one at a time, find out when it is back,
// and no producer is needed for that.
func TestStoreIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &told{err: storeErr(context.DeadlineExceeded)}
		s := storeOn(t, client)
		for range breaker.After {
			if _, err := s.offer(t.Context(), shaper.Spec{}); errors.Is(err, errSpared) || !errors.Is(err, shaper.ErrStore) {
				t.Fatalf("before it opened: %v", err)
			}
		}
		for range 100 {
			_, offered := s.offer(t.Context(), shaper.Spec{})
			_, found := s.find(t.Context(), "a", "j")
			if !errors.Is(offered, errSpared) || !errors.Is(found, errSpared) || !s.away() {
				t.Fatalf("while it is open: %v, %v", offered, found)
			}
		}
		time.Sleep(4*breaker.For + breaker.For/2)
		synctest.Wait()
		if offers, finds := client.asked(); offers != breaker.After || finds != 4 {
			t.Errorf("%d offers and %d probes, want %d and 4", offers, finds, breaker.After)
		}
		client.tell(nil)
		time.Sleep(breaker.For)
		synctest.Wait()
		if s.away() {
			t.Error("the store is back, and nobody has noticed")
		}
		if _, err := s.offer(t.Context(), shaper.Spec{}); err != nil {
			t.Errorf("an offer to a store that is back: %v", err)
		}
		time.Sleep(time.Minute)
		if _, finds := client.asked(); finds != 5 {
			t.Errorf("%d probes, want none of a store that answers", finds-5)
		}
	})
}

// Close ends the search for a store that stays away.
func TestCloseEndsProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := storeOn(t, &told{err: shaper.ErrStore})
		for range breaker.After {
			_, _ = s.offer(t.Context(), shaper.Spec{})
		}
		s.probes.stop()
		s.probes.start(func(context.Context) { t.Error("begun after the end") })
	}) // which fails while a goroutine is left
}

// Only errors that say that the store is away count, not those about a request, its keys or its
// client.
func TestWhatOpensTheBreaker(t *testing.T) {
	for _, row := range []struct {
		name string
		err  error
		want bool
	}{
		{"timeout", storeErr(context.DeadlineExceeded), true},
		{"no connection", storeErr(errors.New("dial tcp 127.0.0.1:1: connect: connection refused")), true},
		{"loading", storeErr(redisError("LOADING Redis is loading the dataset in memory")), true},
		{"invalid", &shaper.FieldError{Field: "type"}, false},
		{"not found", shaper.ErrNotFound, false},
		{"a broken key", storeErr(redisError("WRONGTYPE Operation against a key")), false},
		{"a replica", storeErr(redisError("READONLY You can't write against a read only replica.")), false},
		{"silent replicas", &shaper.UnconfirmedError{Err: context.DeadlineExceeded}, false},
		{"unreadable", errors.New("job j of tenant a: state cannot be read"), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := storeOn(t, &told{err: row.err})
			for range 2 * breaker.After {
				_, _ = s.offer(t.Context(), shaper.Spec{})
				_, _ = s.find(t.Context(), "a", "j")
			}
			if s.away() != row.want {
				t.Errorf("%s: away %v", row.name, s.away())
			}
		})
	}
	s := storeOn(t, &told{err: storeErr(context.Canceled)})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 * breaker.After {
		_, _ = s.offer(gone, shaper.Spec{})
	}
	if s.away() {
		t.Error("clients that went away opened it")
	}
}

// A request waits for the store for as long as one silent connection may cost it, and for replicas
// on top of that.
func TestStoreTimeout(t *testing.T) {
	for confirm, want := range map[time.Duration]time.Duration{0: storeTimeout, time.Second: storeTimeout + time.Second, time.Minute: confirmTimeout} {
		client := &told{}
		url := serveOn(t, client, func(c *Config) { c.Confirm = map[string]time.Duration{"d": confirm} })
		ask(t, "POST", url+jobsPath, `{"type":"x"}`)
		if client.allowed > want || client.allowed < want/2 {
			t.Errorf("replicas may take %v: an offer may take %v, want %v", confirm, client.allowed, want)
		}
	}
	if storeTimeout <= redisurl.ReadTimeout {
		t.Error("a call whose connection broke in silence is not made again")
	}
}

// If the store of one downstream of several is away, the daemon is ready for the others, and says
// so.
func TestReadyForSome(t *testing.T) {
	for _, away := range []int{0, 1, 2} {
		clients := map[string]Client{}
		for i := range 2 {
			client := &told{}
			if i < away {
				client.err = shaper.ErrStore
			}
			clients[fmt.Sprint("d", i)] = client
		}
		asked := false
		url := serveOn(t, nil, func(c *Config) {
			c.Clients = clients
			c.Ready = func(context.Context) error { asked = true; return nil }
		})
		for range breaker.After {
			for name := range clients {
				ask(t, "POST", url+"/v1/downstreams/"+name+"/tenants/a/jobs", `{"type":"x"}`)
			}
		}
		want := []string{"ready\n", "ready; the store does not answer for 1 of 2 downstreams\n", "the store does not answer\n"}[away]
		if a := ask(t, "GET", url+"/readyz", ""); a.body != want || (a.status == 200) != (away < 2) || asked != (away < 2) {
			t.Errorf("%d away: %d %q, asked %v", away, a.status, a.body, asked)
		}
	}
}

// With a black hole in front of a real Redis, offers are refused at once; when it is gone they are
// accepted again; and no job that was offered is lost or doubled.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy, err := faultproxy.Start(server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	rdb, err := redisurl.Open("redis://"+proxy.Addr(), redisurl.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	client, err := shaper.NewClient(rdb, "d", shaper.ClientConfig{})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := shaper.NewAdmin(server.Client(), "d")
	if err != nil {
		t.Fatal(err)
	}
	var registry *prometheus.Registry
	url := serveOn(t, client, func(c *Config) { registry = c.Registry })
	offer := func(id string) answer { return ask(t, "POST", url+jobsPath, `{"type":"x","id":"`+id+`"}`) }
	told := map[string]int{} // by id, the status of its last offer

	var p99 time.Duration
	for outage := range 5 { // a busy machine gets several tries
		for i := range 3 {
			told[fmt.Sprintf("before-%d-%d", outage, i)] = offer(fmt.Sprintf("before-%d-%d", outage, i)).status
		}
		proxy.Stall()
		var mu sync.Mutex
		var first sync.WaitGroup
		for i := range 2 * breaker.After { // they wait at the same time; the first few of them open it
			first.Go(func() {
				id := fmt.Sprintf("unknown-%d-%d", outage, i)
				a := offer(id)
				mu.Lock()
				defer mu.Unlock()
				told[id] = a.status
			})
		}
		first.Wait()
		if a := ask(t, "GET", url+"/readyz", ""); a.status != 503 || a.body != "the store does not answer\n" {
			t.Fatalf("not ready: %d %s", a.status, a.body)
		}
		var took []time.Duration
		for i := range 300 {
			id := fmt.Sprintf("spared-%d-%d", outage, i)
			begun := time.Now()
			a := offer(id)
			took = append(took, time.Since(begun))
			if told[id] = a.status; a.status != 503 || a.header.Get("Retry-After") != "1" || !strings.Contains(a.body, "was not asked") {
				t.Fatalf("offer %d while the store is away: %d %v %s", i, a.status, a.header, a.body)
			}
		}
		if a := ask(t, "GET", url+jobsPath+"/before-0-0", ""); a.status != 503 || a.header.Get("Retry-After") != "1" {
			t.Errorf("look-up while the store is away: %d %s", a.status, a.body)
		}
		if n := testutil.CollectAndCount(registry, "shaper_http_spared_total"); n != 1 {
			t.Errorf("%d series of shaper_http_spared_total", n)
		}
		away := "# HELP shaper_http_store_away Whether the store does not answer, so that HTTP requests are refused at once.\n" +
			"# TYPE shaper_http_store_away gauge\nshaper_http_store_away{downstream=\"d\"} "
		if err := testutil.GatherAndCompare(registry, strings.NewReader(away+"1\n"), "shaper_http_store_away"); err != nil {
			t.Error(err)
		}
		proxy.Flow()
		deadline := time.Now().Add(time.Minute)
		for offer(fmt.Sprintf("after-%d", outage)).status != http.StatusAccepted {
			if time.Now().After(deadline) {
				t.Fatal("the store is back, and offers are still refused")
			}
			time.Sleep(10 * time.Millisecond)
		}
		told[fmt.Sprintf("after-%d", outage)] = http.StatusAccepted
		if err := testutil.GatherAndCompare(registry, strings.NewReader(away+"0\n"), "shaper_http_store_away"); err != nil {
			t.Error(err)
		}
		if a := ask(t, "GET", url+"/readyz", ""); a.status != 200 {
			t.Errorf("ready again: %d %s", a.status, a.body)
		}
		slices.Sort(took)
		if p99 = took[len(took)*99/100]; p99 < 100*time.Millisecond {
			break
		}
		t.Logf("p99 %v", p99)
	}
	if p99 >= 100*time.Millisecond {
		t.Errorf("p99 %v of offers while the store was away, want less than 100ms", p99)
	}

	kept := 0
	for id, status := range told {
		switch {
		case strings.HasPrefix(id, "spared"):
			if a := ask(t, "GET", url+jobsPath+"/"+id, ""); a.status != 404 {
				t.Errorf("%s must not have reached the store: %d %s", id, a.status, a.body)
			}
		case strings.HasPrefix(id, "unknown"): // offered again under the same id, as its answer said
			if a := offer(id); status != 503 || a.status != 202 {
				t.Errorf("%s: told %d, then %d %s", id, status, a.status, a.body)
			}
			kept++
		default:
			if status != 202 {
				t.Errorf("%s: told %d", id, status)
			}
			kept++
		}
	}
	tenant, err := admin.Tenant(t.Context(), "acme")
	if err != nil || tenant.Waiting != kept || tenant.Counters.Accepted != int64(kept) {
		t.Errorf("%d jobs wait, %d accepted, want %d: %v", tenant.Waiting, tenant.Counters.Accepted, kept, err)
	}
}
