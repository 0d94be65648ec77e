package policing

import (
	"math"
	"strings"
	"sync"
	"time"
)

// Hitters counts which keys come the most: in all, and refused. It sees what this process
// is offered. Memory is bounded; its methods may be called by many goroutines.
//
// A count fades: each HalfLife every one is halved and rounded down, so that with an even
// flow it stands for the last one to two half-lives. Of N offers, as they count now, and with
// the defaults:
//
//   - a count is never below the exact one that fades the same way, and above it by more
//     than e/Width × N + 1 (0.13 % of N) with a probability of at most e^-Rows (2 %);
//   - each key with more than the least count listed is listed; so is each key with a
//     part of more than 1/Keys + e/Width of all (3.3 %), with the same probability.
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

// Heavy reports whether the key makes more than the share of all offers. It never misses
// one that does, and may take one for heavy that is below by what a count may be too high.
func (h *Hitters) Heavy(key string, share Share) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fadeLocked()
	if h.offers.total < uint64(h.cfg.MinOffers) {
		return false
	}
	return share.of(uint64(h.offers.estimate(key)), h.offers.total)
}

// fadeLocked halves the counts for each half-life that is over. h.mu must be held.
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

// Subject returns who it is, of a key that a Policer counted.
func (h Hitter) Subject() Subject {
	downstream, tenant, _ := strings.Cut(h.Key, "/")
	return Subject{Downstream: unescapeSlash.Replace(downstream), Tenant: tenant}
}

var unescapeSlash = strings.NewReplacer("%25", "%", "%2F", "/")

// Top is a snapshot of Hitters, each list with the largest count first.
type Top struct {
	Offers, Refusals      []Hitter
	AllOffers, AllRefused int64 // of all keys, as they count now
	MaxError              int64 // that counts of offers seldom exceed: e/Width × AllOffers + 1
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
