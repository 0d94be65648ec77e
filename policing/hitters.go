package policing

import (
	"cmp"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/jobshaper/jobshaper/buckets"
)

// HittersConfig configures Hitters. The zero value is usable.
type HittersConfig struct {
	// Keys is how many keys are listed, at most 1024; 0 means 32.
	Keys int

	// Width, a power of two up to 2^20, and Rows, at most 16, are the size of the sketch; 0 means
	// 2048 and 4. It takes 8 × Width × Rows bytes.
	Width, Rows int

	// HalfLife is the time after which a request counts half; 0 means a minute.
	HalfLife time.Duration

	// MinOffers is how many offers there must be (as they count now) before any key is heavy: the
	// first key to come has made all of them. 0 means 100.
	MinOffers int

	// Clock returns the time in µs, for tests; nil means the process's own.
	Clock func() int64
}

// fill sets the defaults, and returns an error that names the bad field.
func (c *HittersConfig) fill() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: hitters: "+format, append([]any{buckets.ErrParameter}, args...)...)
	}
	c.Keys = cmp.Or(c.Keys, 32)
	c.Width = cmp.Or(c.Width, 2048)
	c.Rows = cmp.Or(c.Rows, 4)
	c.MinOffers = cmp.Or(c.MinOffers, 100)
	c.HalfLife = cmp.Or(c.HalfLife, time.Minute)
	switch {
	case c.Keys < 1 || c.Keys > 1024:
		return bad("Keys %d: want 1 to 1024", c.Keys)
	case c.Width < 16 || c.Width > 1<<20 || c.Width&(c.Width-1) != 0:
		return bad("Width %d: want a power of two, 16 to %d", c.Width, 1<<20)
	case c.Rows < 1 || c.Rows > 16:
		return bad("Rows %d: want 1 to 16", c.Rows)
	case c.HalfLife < time.Millisecond:
		return bad("HalfLife %v: want at least 1ms", c.HalfLife)
	case c.MinOffers < 1:
		return bad("MinOffers %d: want at least 1", c.MinOffers)
	}
	return nil
}

// Hitters counts which keys are offered the most, and which are refused the most. It sees what this
// process is offered. Its memory is bounded; its methods are safe for concurrent use.
//
// Counts fade: every HalfLife each is halved and rounded down, so that with an even flow it covers
// the last one to two half-lives. With N offers, as they count now (in brackets: with the
// defaults):
//
//   - a count is never below the exact one that fades the same way, and exceeds it by more than
//     e/Width × N + 1 (0.13 % of N) with a probability of at most e^-Rows (2 %);
//   - each key with more than the least count listed is listed; so is, with the same probability of
//     error, each key whose share of all is more than 1/Keys + e/Width (3.3 %).
type Hitters struct {
	cfg   HittersConfig
	start time.Time // of the own clock

	mu       sync.Mutex
	next     int64 // when counts are halved again, µs
	offers   *sketch
	refusals *sketch
	offered  *topKeys
	refused  *topKeys
}

// NewHitters returns Hitters that have counted nothing, or an error that names the bad field.
func NewHitters(cfg HittersConfig) (*Hitters, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	h := &Hitters{
		cfg:      cfg,
		start:    time.Now(),
		offers:   newSketch(cfg.Width, cfg.Rows),
		refusals: newSketch(cfg.Width, cfg.Rows),
		offered:  newTopKeys(cfg.Keys),
		refused:  newTopKeys(cfg.Keys),
	}
	h.next = h.now() + cfg.HalfLife.Microseconds()
	return h, nil
}

func (h *Hitters) now() int64 {
	if h.cfg.Clock != nil {
		return h.cfg.Clock()
	}
	return time.Since(h.start).Microseconds()
}

// Offer counts a request of the key.
func (h *Hitters) Offer(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fadeLocked()
	h.offered.offer(key, h.offers.add(key))
}

// Refuse counts that a request of the key was refused; Offer has counted it already.
func (h *Hitters) Refuse(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fadeLocked()
	h.refused.offer(key, h.refusals.add(key))
}

// heavy reports whether the key makes more than the share of all offers. It never misses a key that
// does, but may report one that falls short by as much as a count may be too high.
func (h *Hitters) heavy(key string, share Share) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fadeLocked()
	if h.offers.total < uint64(h.cfg.MinOffers) {
		return false
	}
	return share.of(uint64(h.offers.estimate(key)), h.offers.total)
}

// fadeLocked halves the counts once for each half-life that has passed. h.mu must be held.
func (h *Hitters) fadeLocked() {
	now := h.now()
	if now < h.next {
		return
	}
	life := h.cfg.HalfLife.Microseconds()
	passed := 1 + (now-h.next)/life
	h.next += passed * life
	times := uint(min(passed, 63)) // which leaves nothing of any count
	for _, s := range []*sketch{h.offers, h.refusals} {
		s.halve(times)
	}
	for _, t := range []*topKeys{h.offered, h.refused} {
		t.halve(times)
	}
}

// Hitter is a key with its count.
type Hitter struct {
	Key   string
	Count int64
}

// Subject returns whose key it is, if a Policer counted it.
func (h Hitter) Subject() Subject {
	downstream, tenant, _ := strings.Cut(h.Key, "/")
	return Subject{Downstream: unescapeSlash.Replace(downstream), Tenant: tenant}
}

var unescapeSlash = strings.NewReplacer("%25", "%", "%2F", "/")

// Top is a snapshot of Hitters, each list with the largest count first.
type Top struct {
	Offers, Refusals      []Hitter
	AllOffers, AllRefused int64 // of all keys, as they count now
	MaxError              int64 // the error that counts of offers seldom exceed: e/Width × AllOffers + 1
}

// Top returns the keys that are offered, and refused, the most.
func (h *Hitters) Top() Top {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fadeLocked()
	return Top{
		Offers:     hittersOf(h.offered.sorted()),
		Refusals:   hittersOf(h.refused.sorted()),
		AllOffers:  int64(h.offers.total),
		AllRefused: int64(h.refusals.total),
		MaxError:   int64(math.E*float64(h.offers.total)/float64(h.cfg.Width)) + 1,
	}
}

func hittersOf(items []topItem) []Hitter {
	list := make([]Hitter, len(items))
	for i, item := range items {
		list[i] = Hitter{item.key, int64(item.count)}
	}
	return list
}
