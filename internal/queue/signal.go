package queue

import (
	"context"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Listener hears the signals of one downstream. A signal is only a hint that saves a wait: it may
// be lost, so whatever acts on signals must also look for itself from time to time.
//
// NewListener starts its goroutine; Close ends it and waits.
type Listener struct {
	sub    *redis.PubSub
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// NewListener calls hear for each signal, from one goroutine; hear must not block. Signals that are
// sent while the connection is away are lost. go-redis connects again by itself, and then hear gets
// a 'w', so that its owner looks around.
func NewListener(q Queue, hear func(Signal)) *Listener {
	ctx, cancel := context.WithCancel(context.Background())
	l := &Listener{sub: q.RDB.Subscribe(ctx, q.SignalChannel()), cancel: cancel}
	l.done.Go(func() {
		for m := range l.sub.ChannelWithSubscriptions() {
			switch m := m.(type) {
			case *redis.Subscription:
				hear(Signal{Kind: 'w'})
			case *redis.Message:
				if s, ok := parseSignal(m.Payload); ok {
					hear(s)
				}
			}
		}
	})
	return l
}

// Close ends the goroutine and waits for it.
func (l *Listener) Close() {
	l.cancel()
	_ = l.sub.Close() // its only error is that it is closed already
	l.done.Wait()
}

// Signal is what a Listener hears.
type Signal struct {
	// 'w' something may leave earlier than thought; 't' tickets are on their way; 'c' a running job
	// was cancelled; 'p' a tenant, or without one the whole downstream, is paused: what holds a
	// slot that has not come should go back.
	Kind       byte
	Tenant, ID string
}

func parseSignal(s string) (Signal, bool) {
	f := strings.Fields(s)
	switch {
	case len(f) == 1 && (f[0] == "w" || f[0] == "t" || f[0] == "p"):
		return Signal{Kind: f[0][0]}, true
	case len(f) == 2 && f[0] == "p":
		return Signal{Kind: 'p', Tenant: f[1]}, true
	case len(f) == 3 && f[0] == "c":
		return Signal{Kind: 'c', Tenant: f[1], ID: f[2]}, true
	}
	return Signal{}, false
}
