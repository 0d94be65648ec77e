package jobshaper

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/jobshaper/jobshaper/shaper"
)

const (
	lookEvery = 3 * time.Second // how often a process looks whether its configuration still holds
	lookBack  = 3 * lookEvery   // how long another process that has not looked counts as there
	lookLong  = 10              // looks after which a configuration that is still applied in part was left so
)

// holder has the configuration of a Queue hold, and tells where another one does.
type holder struct {
	admin   *shaper.Admin
	policy  DownstreamPolicy
	tenants map[string]Policy
	log     *slog.Logger
	quit    context.CancelFunc // nil before start
	done    sync.WaitGroup

	mu     sync.Mutex // apply is called by a pool that found its store empty, too
	digest string

	// Of the goroutine that looks.
	since  time.Time
	told   map[string]bool // what was said already
	partly int             // looks in a row that saw the same configuration half applied
	half   string          // its digest
}

func newHolder(admin *shaper.Admin, downstream string, cfg Config) *holder {
	return &holder{admin: admin, policy: cfg.Policy, tenants: maps.Clone(cfg.Tenants),
		log: cfg.Logger.With("downstream", downstream), told: map[string]bool{}}
}

// apply has the configuration hold, and tells what that changes.
func (h *holder) apply(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	applied, err := h.admin.Apply(ctx, h.policy, h.tenants)
	if err != nil {
		return err
	}
	h.digest = applied.Digest
	log := h.log.With("config", applied.Digest)
	switch applied.Before {
	case "":
	case applied.Digest:
		log.Info("the configuration has not changed since it was applied: what was set by hand since then stays")
	default:
		log.Info("the configuration is another one than before, and holds now", "before", applied.Before)
	}
	if n := len(applied.Left); n > 0 {
		log.Info("tenants left the configuration: the defaults hold for them", "tenants", n, "names", listed(applied.Left))
	}
	if applied.By != "" {
		log.Error("another process applies another configuration, which holds in place of this one's: they need the same", "other", applied.By)
	}
	return nil
}

// listed names the first of many.
func listed(names []string) string {
	const most = 20
	if len(names) > most {
		return strings.Join(names[:most], " ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, " ")
}

// look tells, once each, that another configuration holds than this process's, or that others have
// another one. Where none holds, since Redis has lost it or its application was left half done, it
// applies this process's.
func (h *holder) look(ctx context.Context) error {
	h.mu.Lock()
	digest := h.digest
	h.mu.Unlock()
	s, err := h.admin.LookAtConfig(ctx, digest, min(time.Since(h.since), lookBack))
	if err != nil {
		return err
	}
	if s.Partly && s.Holds == h.half {
		h.partly++
	} else {
		h.partly, h.half = 0, s.Holds
	}
	if s.Holds == "" || h.partly >= lookLong {
		h.partly = 0
		return h.apply(ctx)
	}
	log := h.log.With("config", digest)
	if s.Holds != digest {
		h.once(s.Holds+" holds", func() {
			log.Error("another process has applied another configuration: the last one started holds, and this one's does not", "holds", s.Holds)
		})
		return nil
	}
	for _, other := range s.Others {
		h.once(other, func() {
			log.Error("another process has another configuration, which does not hold: this one's was applied last", "other", other)
		})
	}
	if len(s.Others) == 0 {
		clear(h.told)
	}
	return nil
}

func (h *holder) once(what string, tell func()) {
	if !h.told[what] {
		h.told[what] = true
		tell()
	}
}

// start looks after the configuration, which was applied, until ctx ends or stop.
func (h *holder) start(ctx context.Context) {
	ctx, h.quit = context.WithCancel(ctx)
	h.since = time.Now()
	h.done.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := h.look(ctx); err != nil && ctx.Err() == nil {
				h.log.Debug("whether the configuration holds could not be told", "err", err)
			}
		}
	})
}

func (h *holder) stop() {
	if h.quit != nil {
		h.quit()
	}
	h.done.Wait()
}
