package workers

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
)

// waited returns how long wait held its caller back.
func (b *doorbell) waited() time.Duration {
	begun := time.Now()
	b.wait()
	return time.Since(begun)
}

func TestDoorbell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newDoorbell()
		if d := b.waited(); d != pollIdle {
			t.Errorf("unrung: %v, want the slow poll of %v", d, pollIdle)
		}
		time.AfterFunc(300*time.Millisecond, b.ring)
		if d := b.waited(); d != 300*time.Millisecond {
			t.Errorf("rung after 300ms: %v", d)
		}
		time.Sleep(busyWindow - time.Nanosecond)
		if d := b.waited(); d != 0 {
			t.Errorf("rung a moment ago: %v, want no wait", d)
		}
		time.Sleep(time.Nanosecond)
		// Rung a while ago: a look after each of these, less and less often, and then the slow
		// poll.
		for i, want := range []time.Duration{50, 50, 100, 200, 400, 800, 1000, 1000} {
			if d := b.waited(); d != want*time.Millisecond {
				t.Errorf("look %d: after %v, want %v ms", i, d, int64(want))
			}
		}
		time.AfterFunc(300*time.Millisecond, b.stop)
		if d := b.waited(); d != 300*time.Millisecond {
			t.Errorf("stopped after 300ms: %v", d)
		}
		time.Sleep(time.Hour)
		if d := b.waited(); d != 0 {
			t.Errorf("after stop: %v, want no wait", d)
		}
	})
}

// counted is a client that counts its EvalSha calls and finds nothing.
type counted struct {
	redis.UniversalClient
	calls int
	err   error
}

func (c *counted) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	c.calls++
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(c.err)
	return cmd
}

// TestHeldClient holds back the calls by which asynq asks for a ticket, and no others.
func TestHeldClient(t *testing.T) {
	dequeue := []string{"asynq:{q}:pending", "asynq:{q}:paused", "asynq:{q}:active", "asynq:{q}:lease"}
	synctest.Test(t, func(t *testing.T) {
		inner := &counted{err: redis.Nil}
		c := newHeldClient(inner, "q", newDoorbell(), func() int { return 1 })
		took := func(keys ...string) time.Duration {
			begun := time.Now()
			c.EvalSha(t.Context(), "sha", keys)
			return time.Since(begun)
		}
		if d := took("asynq:{q}:lease"); d != 0 {
			t.Errorf("another script waited %v", d)
		}
		if d := took("asynq:{other}:pending", dequeue[1], dequeue[2], dequeue[3]); d != 0 {
			t.Errorf("another queue waited %v", d)
		}
		for range 2 { // finding nothing is no reason to ask again
			if d := took(dequeue...); d != pollIdle {
				t.Errorf("dequeue waited %v, want %v", d, pollIdle)
			}
		}
		inner.err = nil // one is found: look for more
		took(dequeue...)
		if d := took(dequeue...); d != 0 {
			t.Errorf("after a find dequeue waited %v", d)
		}
		if inner.calls != 6 {
			t.Errorf("%d calls came through, want 6", inner.calls)
		}
	})
}

// tray is a client whose EvalSha takes one ticket off it.
type tray struct {
	redis.UniversalClient
	mu      sync.Mutex
	tickets []string
	calls   int
}

func (c *tray) EvalSha(ctx context.Context, _ string, _ []string, _ ...any) *redis.Cmd {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	cmd := redis.NewCmd(ctx)
	if len(c.tickets) == 0 {
		cmd.SetErr(redis.Nil)
		return cmd
	}
	cmd.SetVal(c.tickets[0])
	c.tickets = c.tickets[1:]
	return cmd
}

// asynq asks for one ticket at a time; for its next calls several are found at once, as many as
// there is room for. What it does not come for is not lost.
func TestSeveralDequeuesAtATime(t *testing.T) {
	inner, bell := &tray{}, newDoorbell()
	bell.stop()
	room := 5
	c := newHeldClient(inner, "q", bell, func() int { return room })
	dequeue := func() string {
		message, _ := c.EvalSha(t.Context(), "sha", []string{c.pending, "asynq:{q}:paused", c.active, "lease"}).Text()
		return message
	}
	for n := range 20 {
		inner.tickets = append(inner.tickets, messageOf(&queue.Grant{Type: ticketType, Payload: []byte(fmt.Sprint(n))}))
	}
	seen := map[string]bool{}
	var calls []int
	for range 12 { // 1, 2, 4, 5 of them at a time
		seen[payloadOf(dequeue())] = true
		calls = append(calls, inner.calls)
	}
	if want := []int{1, 3, 3, 7, 7, 7, 7, 12, 12, 12, 12, 12}; !slices.Equal(calls, want) {
		t.Errorf("calls after each: %v, want %v", calls, want)
	}
	room = 0
	seen[payloadOf(dequeue())] = true // one is asked for whatever room there seems to be
	room = 9
	seen[payloadOf(dequeue())] = true
	for _, message := range c.unused() {
		seen[payloadOf(message)] = true
	}
	for n := range 15 {
		if !seen[fmt.Sprint(n)] {
			t.Errorf("ticket %d is lost; there were %v", n, seen)
		}
	}
	for _, rubbish := range []string{"", "\x00", "\x12", "\x12\xff", "\x1a\x7f1", strings.Repeat("\xff", 30)} {
		if p := payloadOf(rubbish); p != "" {
			t.Errorf("%q has the payload %q", rubbish, p)
		}
	}
}
