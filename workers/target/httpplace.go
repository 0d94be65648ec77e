package target

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/hibiken/asynq"

	"github.com/jobshaper/jobshaper/workers"
)

// httpPlace keeps a line open for the next job of a pool's place, so that nothing but the request is
// left to be done at its slot.
type httpPlace struct {
	t *httpTarget

	mu      sync.Mutex
	line    *line // nil: none, or in use
	dial    *dial // nil: none under way
	failing bool  // the latest one could not be made
	slow    bool  // it took longer than a ticket can wait
}

// dial is a connection that is being made. Its goroutine is the place's: Close ends it and waits.
type dial struct {
	cancel context.CancelFunc
	done   chan struct{} // closed once err is set, or the place has its line
	err    error
}

// NewPlace implements workers.Preparer.
func (t *httpTarget) NewPlace() workers.Place { return &httpPlace{t: t} }

// Ready implements workers.Place.
func (p *httpPlace) Ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.line.good()
}

// Warm implements workers.Place. A target that does not answer is waited for only once: its jobs are
// to fail at their slots, as they would without this.
func (p *httpPlace) Warm(ctx context.Context) {
	d := p.connect()
	p.mu.Lock()
	slow := p.slow
	p.mu.Unlock()
	if d == nil || slow || wait(ctx, d) == nil || ctx.Err() == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dial == d {
		p.slow, p.failing = true, true
	}
}

// connect begins to make a connection unless there is one, which is nil, or one is being made.
func (p *httpPlace) connect() *dial {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line.good() {
		return nil
	}
	if p.dial == nil {
		p.letGo()
		p.dialLocked()
	}
	return p.dial
}

func (p *httpPlace) dialLocked() {
	ctx, cancel := context.WithCancel(context.Background())
	d := &dial{cancel: cancel, done: make(chan struct{})}
	p.dial = d
	go func() {
		defer close(d.done)
		defer cancel()
		l, err := p.t.dialLine(ctx)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.dial = nil
		p.slow = false
		if d.err, p.failing = err, err != nil; err == nil {
			p.line = l
		}
	}()
}

// wait waits for a connection to be made, or for ctx.
func wait(ctx context.Context, d *dial) error {
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take returns the line, which is the caller's until it puts it back; nil if it is not good.
func (p *httpPlace) take() *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.line
	if !l.good() {
		return nil
	}
	p.line = nil
	return l
}

// put takes a line back after its use. Where the target has closed it, another one is made at once,
// while the place has nothing else to do.
func (p *httpPlace) put(l *line, used bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.Err() == nil && l.Available() > 0 {
		if used {
			l.touch()
		}
		p.line = l
		return
	}
	_ = l.Close()
	if used && p.dial == nil {
		p.dialLocked()
	}
}

// letGo closes the line. Hold mu.
func (p *httpPlace) letGo() {
	if p.line != nil {
		_ = p.line.Close()
		p.line = nil
	}
}

// Close implements workers.Place.
func (p *httpPlace) Close() {
	p.mu.Lock()
	d := p.dial
	p.mu.Unlock()
	if d != nil {
		d.cancel()
		<-d.done
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.letGo()
}

// maxLines is how many lines a start may lose while it waits for its slot. A target that closes one
// after the other is given the request on one that is made inside the slot.
const maxLines = 3

// Start implements workers.Place.
func (p *httpPlace) Start(ctx context.Context, task *asynq.Task, slot *workers.Slot) error {
	info, ok := workers.JobFrom(ctx)
	if !ok {
		return errNoJob
	}
	req := p.t.request(ctx, info, task.Payload()) // so that little is left for the slot
	for range maxLines {
		l := p.ahead(slot)
		if l == nil {
			break
		}
		err := slot.Wait(l.open)
		if err == nil {
			return p.send(ctx, task, slot, l, req)
		}
		p.put(l, false)
		if l.open.Err() == nil { // it is the slot that is over, not the line
			return err
		}
	}
	if err := slot.Wait(context.Background()); err != nil {
		return err
	}
	return p.late(ctx, slot, req)
}

// ahead returns a line once there is one; nil if there is none while the slot can be used, or the
// target could not be reached the last time either.
func (p *httpPlace) ahead(slot *workers.Slot) *line {
	p.mu.Lock()
	failing := p.failing
	p.mu.Unlock()
	if failing {
		return p.take()
	}
	if d := p.connect(); d != nil {
		ctx, cancel := slot.Ahead()
		defer cancel()
		if wait(ctx, d) != nil {
			return nil
		}
	}
	return p.take()
}

// errClosedAtOnce says that a server took a connection and closed it before it heard anything.
var errClosedAtOnce = errors.New("server closed the connection at once")

// late is send for a start that has no line at its slot: it makes one then, as far as that is still
// necessary.
func (p *httpPlace) late(ctx context.Context, slot *workers.Slot, req *http.Request) error {
	if d := p.connect(); d != nil {
		slot.Unready()
		if err := wait(ctx, d); err != nil {
			if ctx.Err() != nil { // it takes longer than the job may: the next one tries anew
				d.cancel()
			}
			return p.t.failed(ctx, err)
		}
	}
	l := p.take()
	if l == nil {
		return p.t.failed(ctx, errClosedAtOnce)
	}
	_, err := p.roundTrip(ctx, slot, l, req)
	return err
}

// send sends the request of a start whose slot has come.
func (p *httpPlace) send(ctx context.Context, task *asynq.Task, slot *workers.Slot, l *line, req *http.Request) error {
	sent, err := p.roundTrip(ctx, slot, l, req)
	if err != nil && !sent && ctx.Err() == nil {
		// The target closed the line at this very instant, and has seen nothing.
		info, _ := workers.JobFrom(ctx)
		return p.late(ctx, slot, p.t.request(ctx, info, task.Payload()))
	}
	return err
}

// roundTrip sends a request and reads its answer. sent is false if the target has seen nothing of it.
func (p *httpPlace) roundTrip(ctx context.Context, slot *workers.Slot, l *line, req *http.Request) (sent bool, err error) {
	defer p.put(l, true)
	l.conn.expect()
	resp, err := l.RoundTrip(req)
	at := l.conn.sent()
	slot.Sent(at)
	if err != nil {
		_ = l.Close()
		return !at.IsZero(), p.t.failed(ctx, err)
	}
	err = p.t.answer(ctx, resp)
	if resp.Close { // it will be closed, if it is not yet
		_ = l.Close()
	}
	return true, err
}
