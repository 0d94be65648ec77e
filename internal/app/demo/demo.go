// Package demo shows in one command what shaping is for: a fragile downstream and a bursty
// producer, first without anything between them, then with. It needs nothing installed, leaves
// nothing behind, and ends by itself.
package demo

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/jobshaper/jobshaper/internal/app/verify"
	"github.com/jobshaper/jobshaper/internal/store"
)

// What the demo shows. The producer is the same in both acts; the fragile API survives the rate of
// the second.
const (
	capacity = 25                     // requests in any second that the API takes
	outage   = time.Second            // how long it is down after one request too many
	rate     = 20                     // jobs a second that the shaper lets leave
	step     = 100 * time.Millisecond // a column of the chart
)

// burst is what the producer offers at one moment.
type burst struct {
	after time.Duration
	jobs  int
}

var bursts = []burst{{0, 50}, {2 * time.Second, 40}, {4 * time.Second, 30}}

func offered() int {
	n := 0
	for _, b := range bursts {
		n += b.jobs
	}
	return n
}

// Run runs the demo. columns is the width of the terminal out, or 0 if out is none: then each act
// is printed once it is over.
func Run(ctx context.Context, out io.Writer, columns int, log *slog.Logger) (err error) {
	dir, err := os.MkdirTemp("", "shaper-demo-")
	if err != nil {
		return err
	}
	defer func() {
		if e := os.RemoveAll(dir); err == nil {
			err = e
		}
	}()
	s, err := store.Open(ctx, store.Config{DataDir: dir, Embed: true, Log: log})
	if err != nil {
		return err
	}
	defer func() {
		if e := s.Close(); err == nil {
			err = e
		}
	}()
	screen := &screen{out: out, live: columns > 0}
	screen.say(`
%s

A fragile API takes %d requests in any second. One more, and it is down for %v.
A producer has %d jobs for it, and no patience: %d at once, %d two seconds later,
%d two seconds after that. Each column below is a tenth of a second.
`, screen.bold("What shaping does"), capacity, outage, offered(), bursts[0].jobs, bursts[1].jobs, bursts[2].jobs)

	plain, err := act(ctx, screen, "1  Without a shaper: each job is sent as it comes", direct(ctx))
	if err != nil {
		return err
	}
	sender := &shapedSender{ctx: ctx, rdb: s.Client, log: log}
	even, err := act(ctx, screen, fmt.Sprintf("2  With a shaper: the same jobs wait in a queue that lets one leave every %v", time.Second/rate), sender)
	if err != nil {
		return err
	}
	v, err := verify.Log(ctx, name, sender.queue.Admin(), verify.Options{})
	if err != nil {
		return err
	}
	screen.summary(plain, even, v.Line())
	return nil
}
