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
	lookEvery = 3 * time.Second // how often a process looks whether its configuration is still in force
	lookBack  = 3 * lookEvery   // how long another process counts as alive after it last looked
	lookLong  = 10              // after so many looks, a configuration that is still half applied counts as abandoned
)

// holder keeps the configuration of a Queue in force, and logs where another one is.
type holder struct {
	admin   *shaper.Admin
	policy  DownstreamPolicy
	tenants map[string]Policy
	log     *slog.Logger
	quit    context.CancelFunc // nil before start
	done    sync.WaitGroup

	mu     sync.Mutex // a pool that finds its store empty calls apply too
	digest string

	// Used by the goroutine that looks, and by nothing else.
	since  time.Time
	told   map[string]bool // what was logged already
	partly int             // looks in a row that saw the same configuration half applied
	half   string          // its digest
}

func newHolder(admin *shaper.Admin, downstream string, cfg Config) *holder {
	return &holder{admin: admin, policy: cfg.Policy, tenants: maps.Clone(cfg.Tenants),
		log: cfg.Logger.With("downstream", downstream), told: map[string]bool{}}
}

// apply puts the configuration in force, and logs what that changes.
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
		log.Info("the configuration differs from the one before, and is in force now", "before", applied.Before)
	}
	if n := len(applied.Left); n > 0 {
		log.Info("tenants left the configuration: the defaults apply to them", "tenants", n, "names", listed(applied.Left))
	}
	if applied.By != "" {
		log.Error("another process applies another configuration, which is in force in place of this one's: they need the same", "other", applied.By)
	}
	return nil
}

// listed joins names, and of many only the first.
func listed(names []string) string {
	const most = 20
	if len(names) > most {
		return strings.Join(names[:most], " ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, " ")
}

// look logs, once each, that a configuration other than this process's is in force, or that other
// processes have another one. If none is in force, since Redis has lost it or its application was
// left half done, look applies this process's.
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
			log.Error("another process has applied another configuration: the last one started is in force, and this one's is not", "holds", s.Holds)
		})
		return nil
	}
	for _, other := range s.Others {
		h.once(other, func() {
			log.Error("another process has another configuration, which is not in force: this one's was applied last", "other", other)
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

// start looks after the configuration, which has been applied, until ctx ends or stop is called.
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
				h.log.Debug("could not find out whether the configuration is in force", "err", err)
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
