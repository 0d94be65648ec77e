// Package app is the daemon as a library: for each downstream a scheduler and a pool of workers,
// the HTTP side in front of them, and one store below.
//
// It starts from the bottom up (store, policies, pools, schedulers, HTTP), so that whatever runs
// finds below it what it needs, and stops so that nothing accepted is dropped: see Run.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/jobshaper/jobshaper"
	"github.com/jobshaper/jobshaper/internal/api"
	"github.com/jobshaper/jobshaper/internal/app/top"
	"github.com/jobshaper/jobshaper/internal/redisurl"
	"github.com/jobshaper/jobshaper/internal/store"
	"github.com/jobshaper/jobshaper/shaper"
)

// daemon is a running daemon.
type daemon struct {
	cfg      Config
	log      *slog.Logger
	store    *store.Store
	registry *prometheus.Registry
	queues   []*jobshaper.Queue // in the order of cfg.Downstreams
	server   *http.Server
	api      *api.Handler   // behind server
	top      *top.Publisher // of what the API is offered; nil without one
	served   chan error     // what ended the server
}

// Run runs a daemon until ctx ends, or until its embedded store or its listener fails. It returns
// nil after an orderly stop that ctx asked for, in this order, each for the reason given:
//
//  1. /readyz says no, so that load balancers send no more requests
//  2. queues stop, all at once, as jobshaper.Queue.Stop says: the grace is for all of them together
//  3. HTTP stops: until now it accepted jobs, since they wait in the store and not here; then what
//     counted them stops
//  4. the store is closed, once the end of the last job is written
//
// Its error wraps shaper.ErrStore where Redis is away, and shaper.ErrInvalid where the
// configuration is wrong.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	d := &daemon{cfg: cfg, log: cfg.Log, registry: prometheus.NewRegistry(), served: make(chan error, 1)}
	redisurl.SetLogger(d.log)
	asked := ctx
	ctx, end := context.WithCancel(ctx)
	defer end()
	running, err := d.start(ctx)
	switch {
	case err == nil:
		if cfg.Started != nil {
			cfg.Started(running)
		}
		err = d.wait(ctx)
	case asked.Err() != nil:
		err = nil // asked to stop while it started
	}
	end()
	return errors.Join(err, d.stop())
}

// start starts everything. What it started when it fails, stop ends.
func (d *daemon) start(ctx context.Context) (Running, error) {
	loopback := true
	if d.cfg.Listen != "" {
		var err error
		if loopback, err = api.Loopback(ctx, d.cfg.Listen, d.cfg.Tokens); err != nil {
			return Running{}, err
		}
	}
	// The port comes first: if it is taken, that should show before a store starts and jobs run.
	var listener net.Listener
	if d.cfg.Listen != "" {
		var err error
		listener, err = api.Listen(ctx, d.cfg.Listen)
		if err != nil && !d.cfg.MayListen {
			return Running{}, err
		}
		if err != nil {
			d.log.Warn("no HTTP API and no metrics: nothing says where to listen, and the default address cannot be used", "err", err)
		}
	}
	running, err := d.startBehind(ctx)
	if listener == nil || err != nil {
		if listener != nil {
			_ = listener.Close() // nobody has used it
		}
		return running, err
	}
	running.Address = api.Address(listener)
	if d.api, err = d.handler(ctx, loopback); err != nil {
		_ = listener.Close()
		return running, err
	}
	d.server = api.NewServer(d.api, d.log)
	go func() { d.served <- d.server.Serve(listener) }()
	return running, nil
}

// startBehind starts what works without HTTP.
func (d *daemon) startBehind(ctx context.Context) (Running, error) {
	var err error
	d.store, err = store.Open(ctx, store.Config{URL: d.cfg.Redis, DataDir: d.cfg.DataDir, Embed: true, Check: true, Accept: d.cfg.Accept,
		Name: "shaper", PoolSize: d.poolSize(), Log: d.log})
	if err != nil {
		return Running{}, err
	}
	level := slog.LevelInfo
	if d.store.Fleeting {
		level = slog.LevelWarn
	}
	d.log.Log(ctx, level, d.store.Describe)
	if err := d.registerOwn(); err != nil {
		return Running{}, err
	}
	for _, ds := range d.cfg.Downstreams {
		if err := d.startDownstream(ctx, ds); err != nil {
			return Running{}, err
		}
	}
	return Running{Redis: d.store.URL}, nil
}

// wait returns when ctx ends, or with the reason why the daemon cannot go on.
func (d *daemon) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		d.log.Info("stopping: running jobs may finish, interrupt again to quit at once", "grace", d.cfg.Grace)
		return nil
	case err := <-d.served:
		return fmt.Errorf("http: %w", err)
	case <-d.store.Done():
		return fmt.Errorf("the embedded store has ended: %w: %w", d.store.Err(), shaper.ErrStore)
	}
}

// stop ends what was started, in the order that Run promises.
func (d *daemon) stop() error {
	var queues sync.WaitGroup
	for _, q := range d.queues {
		queues.Go(q.Stop)
	}
	queues.Wait()
	err := d.stopHTTP()
	if d.top != nil {
		d.top.Stop()
	}
	if d.store != nil {
		err = errors.Join(err, d.store.Close())
	}
	return err
}

// httpGrace is how long requests may take to end: longer than a request waits for the store.
const httpGrace = 6 * time.Second

func (d *daemon) stopHTTP() error {
	if d.server == nil {
		return nil
	}
	defer d.api.Close()
	ctx, cancel := context.WithTimeout(context.Background(), httpGrace)
	defer cancel()
	if err := d.server.Shutdown(ctx); err != nil {
		d.log.Warn("requests were cut off", "err", err)
		return d.server.Close()
	}
	return nil
}

// handler is the HTTP side of a daemon that runs until ctx ends.
func (d *daemon) handler(ctx context.Context, loopback bool) (*api.Handler, error) {
	ready := func(request context.Context) error {
		if ctx.Err() != nil {
			return errors.New("stopping")
		}
		return d.ready(request)
	}
	cfg := api.Config{Tokens: d.cfg.Tokens, Loopback: loopback, LimitHeaders: d.cfg.Limits, Ready: ready, Registry: d.registry, Log: d.log}
	if d.cfg.Roles.API {
		var err error
		if d.top, err = top.NewPublisher(d.store.Client, d.cfg.names(), d.log); err != nil {
			return nil, err
		}
		cfg.Clients, cfg.Hitters, cfg.Confirm = map[string]api.Client{}, map[string]api.Hitters{}, map[string]time.Duration{}
		for i, ds := range d.cfg.Downstreams {
			cfg.Clients[ds.Name], cfg.Hitters[ds.Name] = d.queues[i], d.top.Hitters(ds.Name)
			if ds.Client.Replicas > 0 {
				cfg.Confirm[ds.Name] = cmp.Or(ds.Client.ReplicaTimeout, shaper.DefaultReplicaTimeout)
			}
		}
		d.top.Start(context.Background()) // stop ends it when its turn comes
	}
	return api.New(cfg)
}

// ready says why the daemon cannot do its work; nil if it can.
func (d *daemon) ready(ctx context.Context) error {
	if err := d.store.Client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("%w: %w", shaper.ErrStore, err)
	}
	return nil
}
