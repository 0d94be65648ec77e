package app

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jobshaper/jobshaper/shaper"
)

const (
	lookEvery = 3 * time.Second // how often a daemon looks whether its configuration still holds
	lookBack  = 3 * lookEvery   // how long another daemon that has not looked counts as there
	lookLong  = 10              // looks after which a configuration that is still applied in part was left so
)

// configured is a downstream's configuration, as this daemon was started with it.
type configured struct {
	d      *daemon
	ds     Downstream
	admin  *shaper.Admin
	mu     sync.Mutex // apply is called by a pool that found its store empty, too
	digest string

	// Of the goroutine that looks.
	since  time.Time
	told   map[string]bool // what was said already
	partly int             // looks in a row that saw the same configuration half applied
	half   string          // its digest
}

func (d *daemon) configure(ctx context.Context, ds Downstream) (*configured, error) {
	admin, err := shaper.NewAdmin(d.store.Client, ds.Name)
	if err != nil {
		return nil, err
	}
	c := &configured{d: d, ds: ds, admin: admin, since: time.Now(), told: map[string]bool{}}
	return c, c.apply(ctx)
}

// apply has the configuration hold, and tells what that changes.
func (c *configured) apply(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	applied, err := c.admin.Apply(ctx, c.ds.Policy, c.ds.Tenants)
	if err != nil {
		return err
	}
	c.digest = applied.Digest
	log := c.d.log.With("downstream", c.ds.Name, "config", applied.Digest)
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
		log.Error("another daemon applies another configuration, which holds in place of this daemon's: they need the same", "other", applied.By)
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

// look tells, once each, that another configuration holds than this daemon's, or that other daemons
// have another one. Where none holds, since Redis has lost it or its application was left half
// done, it applies this daemon's.
func (c *configured) look(ctx context.Context) error {
	c.mu.Lock()
	digest := c.digest
	c.mu.Unlock()
	s, err := c.admin.LookAtConfig(ctx, digest, min(time.Since(c.since), lookBack))
	if err != nil {
		return err
	}
	if s.Partly && s.Holds == c.half {
		c.partly++
	} else {
		c.partly, c.half = 0, s.Holds
	}
	if s.Holds == "" || c.partly >= lookLong {
		c.partly = 0
		return c.apply(ctx)
	}
	log := c.d.log.With("downstream", c.ds.Name, "config", digest)
	if s.Holds != digest {
		c.once(s.Holds+" holds", func() {
			log.Error("another daemon has applied another configuration: the last one started holds, and this daemon's does not", "holds", s.Holds)
		})
		return nil
	}
	for _, other := range s.Others {
		c.once(other, func() {
			log.Error("another daemon has another configuration, which does not hold: this daemon's was applied last", "other", other)
		})
	}
	if len(s.Others) == 0 {
		clear(c.told)
	}
	return nil
}

func (c *configured) once(what string, tell func()) {
	if !c.told[what] {
		c.told[what] = true
		tell()
	}
}

// looker looks after the configurations of a daemon, from its start to stop.
type looker struct {
	of     []*configured
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func startLooker(of []*configured) *looker {
	ctx, cancel := context.WithCancel(context.Background())
	l := &looker{of: of, cancel: cancel}
	l.done.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for _, c := range l.of {
				if err := c.look(ctx); err != nil && ctx.Err() == nil {
					c.d.log.Debug("whether the configuration holds could not be told", "downstream", c.ds.Name, "err", err)
				}
			}
		}
	})
	return l
}

func (l *looker) stop() {
	l.cancel()
	l.done.Wait()
}
