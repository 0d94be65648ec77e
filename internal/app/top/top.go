// Package top tells which tenants of a downstream offer the most, and which are refused the most,
// as the API processes see it.
//
// A refusal leaves no trace in the queue, so each API process counts what comes to it, in
// policing.Hitters, and publishes a snapshot in Redis every Interval; a reader takes those of all
// processes and adds them up. What producers offer without the API, with `enqueue` or the Go
// client, is not counted here.
//
// Keys, of a downstream D: shaper:top:{D}, the set of processes, and shaper:top:{D}:P, the snapshot
// of process P as JSON. They expire soon after the process is gone. A process to which nobody
// offers anything, and whose counts have faded, publishes nothing.
package top

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/policing"
	"github.com/jobshaper/jobshaper/shaper"
)

const (
	// Interval is how often snapshots are published.
	Interval = 2 * time.Second
	// fresh is how long a snapshot counts.
	fresh = 5 * Interval
)

func indexKey(downstream string) string { return "shaper:top:{" + downstream + "}" }

func snapshotKey(downstream, process string) string { return indexKey(downstream) + ":" + process }

// Tenant is a tenant with its count.
type Tenant struct {
	Name  string `json:"tenant"`
	Count int64  `json:"count"`
}

// List is the tenants with the largest counts, those first.
type List struct {
	All     int64    `json:"all"` // of every tenant, listed or not
	Tenants []Tenant `json:"tenants"`
}

// Top is the current counts. Counts fade: they are halved every minute, so with an even flow they
// cover the last one to two minutes.
type Top struct {
	Processes int   `json:"processes"` // whose snapshots are in it
	Offers    List  `json:"offers"`
	Refusals  List  `json:"refusals"`
	MaxError  int64 `json:"max_error"` // a count is seldom too high by more than this, and never too low
}

// snapshot is what the Hitters of one process say.
func snapshot(h *policing.Hitters) Top {
	t := h.Top()
	return Top{
		Processes: 1, MaxError: t.MaxError,
		Offers: List{t.AllOffers, tenants(t.Offers)}, Refusals: List{t.AllRefused, tenants(t.Refusals)},
	}
}

func tenants(hitters []policing.Hitter) []Tenant {
	list := make([]Tenant, len(hitters))
	for i, h := range hitters {
		list[i] = Tenant{h.Key, h.Count}
	}
	return list
}

// readSnapshot reads what a process published. What Redis holds is not trusted to be well formed:
// invalid names and impossible counts are left out, and a text that is no snapshot is an error,
// which does not keep the numbers of other processes back.
func readSnapshot(text string) (Top, error) {
	const most = 1 << 40 // more than anybody can offer within minutes
	var t Top
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return Top{}, err
	}
	wrong := func(n int64) bool { return n < 0 || n > most }
	t.Processes = 1
	if wrong(t.MaxError) || wrong(t.Offers.All) || wrong(t.Refusals.All) {
		return Top{}, errors.New("impossible counts")
	}
	for _, l := range []*List{&t.Offers, &t.Refusals} {
		l.Tenants = slices.DeleteFunc(l.Tenants, func(t Tenant) bool { return wrong(t.Count) || shaper.ValidName("tenant", t.Name) != nil })
	}
	return t, nil
}

// Read adds up what all processes say of a downstream. Its error wraps shaper.ErrStore.
func Read(ctx context.Context, client redis.UniversalClient, downstream string) (Top, error) {
	sum := Top{Offers: List{Tenants: []Tenant{}}, Refusals: List{Tenants: []Tenant{}}}
	failed := func(err error) (Top, error) {
		return Top{}, fmt.Errorf("read heavy hitters: %w: %w", shaper.ErrStore, err)
	}
	processes, err := client.SMembers(ctx, indexKey(downstream)).Result()
	if err != nil {
		return failed(err)
	}
	if len(processes) == 0 {
		return sum, nil
	}
	keys := make([]string, len(processes))
	for i, p := range processes {
		keys[i] = snapshotKey(downstream, p)
	}
	texts, err := client.MGet(ctx, keys...).Result()
	if err != nil {
		return failed(err)
	}
	for i, text := range texts {
		s, ok := text.(string)
		if !ok { // the process is gone; if it is not, its next snapshot brings it back
			client.SRem(ctx, indexKey(downstream), processes[i])
			continue
		}
		if one, err := readSnapshot(s); err == nil {
			sum.add(one)
		}
	}
	return sum, nil
}
