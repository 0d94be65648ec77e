package demo

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper"
	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/shaper"
	"github.com/jobshaper/jobshaper/workers/target"
)

// sender carries jobs to a downstream. send may return before they arrive; stop waits for them.
type sender interface {
	start(url string) error
	send(jobs int) error
	stop()
}

// longest is how long an act may take before it is given up: the machine is too busy to show
// anything.
const longest = 9 * time.Second

// act lets the producer work and shows what happens.
func act(ctx context.Context, screen *screen, title string, s sender) (view, error) {
	r := newRecord()
	sink, err := newSink(r)
	if err != nil {
		return view{}, err
	}
	defer sink.close()
	if err := s.start(sink.url); err != nil {
		return view{}, err
	}
	defer s.stop()
	screen.begin(title)
	r.begun = time.Now() // nobody has written to the record yet
	produced := make(chan error, 1)
	go func() { produced <- produce(ctx, r, s) }()
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case err := <-produced:
			if err != nil {
				return view{}, err
			}
			produced = nil
		case <-ctx.Done():
			if produced != nil {
				<-produced
			}
			return view{}, ctx.Err()
		}
		v := r.view()
		screen.frame(v)
		if produced == nil && (v.over() || time.Since(r.begun) > longest) {
			screen.end(v)
			return v, nil
		}
	}
}

// produce offers the bursts.
func produce(ctx context.Context, r *record, s sender) error {
	for _, b := range bursts {
		select {
		case <-time.After(time.Until(r.begun.Add(b.after))):
		case <-ctx.Done():
			return nil
		}
		for range b.jobs {
			r.arrival()
		}
		if err := s.send(b.jobs); err != nil {
			return err
		}
	}
	return nil
}

// directSender posts each job at once.
type directSender struct {
	ctx  context.Context
	url  string
	busy sync.WaitGroup
}

func direct(ctx context.Context) sender { return &directSender{ctx: ctx} }

func (d *directSender) start(url string) error { d.url = url; return nil }

func (d *directSender) send(jobs int) error {
	for range jobs {
		d.busy.Go(func() {
			req, err := http.NewRequestWithContext(d.ctx, http.MethodPost, d.url, bytes.NewReader([]byte("{}")))
			if err != nil {
				return // it cannot fail: the URL is ours
			}
			if resp, err := http.DefaultClient.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	return nil
}

func (d *directSender) stop() {
	d.busy.Wait()
	http.DefaultClient.CloseIdleConnections()
}

// shapedSender is a whole daemon in miniature: queue, scheduler, workers and an HTTP target.
type shapedSender struct {
	ctx   context.Context
	rdb   redis.UniversalClient
	log   *slog.Logger
	queue *jobshaper.Queue
}

const name = "demo"

func (s *shapedSender) start(url string) error {
	handler, err := target.NewHTTP(target.HTTPConfig{URL: url})
	if err != nil {
		return err
	}
	// One attempt: what the downstream does not take is not tried again, so that it shows.
	policy := shaper.Policy{Rate: buckets.PerSecond(rate), Depth: 1000, MaxAttempts: 1}
	s.queue, err = jobshaper.Open(s.rdb, name, jobshaper.Config{
		Policy:  shaper.DownstreamPolicy{Defaults: policy, DepartureLog: 1000},
		Handler: handler, Grace: time.Second, Logger: s.log,
	})
	if err != nil {
		return err
	}
	return s.queue.Start(s.ctx)
}

func (s *shapedSender) send(jobs int) error {
	specs := make([]shaper.Spec, jobs)
	for i := range specs {
		specs[i] = shaper.Spec{Type: "demo", Payload: []byte("{}")}
	}
	for _, o := range s.queue.OfferMany(s.ctx, specs) {
		if o.Err != nil {
			return o.Err
		}
		if o.Result.Status != shaper.Accepted {
			return fmt.Errorf("a job was refused: %s", o.Result.Reason)
		}
	}
	return nil
}

func (s *shapedSender) stop() { s.queue.Stop() }
