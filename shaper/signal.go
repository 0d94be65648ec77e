package shaper

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Listener hears the signals of one downstream. A signal is only a hint that saves a wait: it may be lost, and whoever
// acts on one also looks for himself from time to time.
//
// NewListener starts its goroutine; Close ends it and waits.
type Listener struct {
	sub    *redis.PubSub
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// NewListener calls hear for each signal, from one goroutine; hear must not block. Signals that are sent while the
// connection is away are lost; go-redis connects again by itself, and then hear gets a 'w' to look around.
func NewListener(rdb redis.UniversalClient, downstream string, hear func(Signal)) (*Listener, error) {
	q, err := newQueue(rdb, downstream)
	if err != nil {
		return nil, err
	}
	if hear == nil {
		return nil, &FieldError{"hear", "nil", "a function"}
	}
	ctx, cancel := context.WithCancel(context.Background())
	l := &Listener{sub: rdb.Subscribe(ctx, q.signalChannel()), cancel: cancel}
	l.done.Add(1)
	go func() {
		defer l.done.Done()
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
	}()
	return l, nil
}

// Close ends the goroutine and waits for it.
func (l *Listener) Close() {
	l.cancel()
	_ = l.sub.Close() // its only error is that it is closed already
	l.done.Wait()
}
