package workers

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/crashpoint"
)

// asynq polls its queues. With a poll every 5 ms, which starts on time require, an idle daemon
// would cost 170 commands a second for nothing. So asynq's server is given a client that holds a
// dequeue call back until tickets are announced, and then lets calls through for a moment; a slow
// poll makes up for announcements that were lost.

const (
	pollBusy = 5 * time.Millisecond // asynq's poll while tickets may be there; it varies it by half
	pollIdle = time.Second          // the slow poll
	// How long after an announcement asynq polls: usually the ticket is there at the first look.
	busyWindow = 15 * time.Millisecond
	// The first look after that; the pauses grow with the time since the announcement, up to
	// pollIdle.
	pollAfter = 50 * time.Millisecond
	settling  = time.Millisecond // from the release of a ticket until asynq has it
)

// doorbell holds callers of wait back until ring. The zero value is not usable, see newDoorbell.
type doorbell struct {
	rung chan struct{}

	mu     sync.Mutex
	open   time.Time // callers pass until then
	closed bool      // callers pass for ever
}

func newDoorbell() *doorbell { return &doorbell{rung: make(chan struct{}, 1)} }

// ring lets callers pass for a while.
func (b *doorbell) ring() {
	b.mu.Lock()
	b.open = time.Now().Add(busyWindow)
	b.mu.Unlock()
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

// stop lets every caller pass from now on.
func (b *doorbell) stop() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.ring()
}

// patience is how long a caller waits for the bell: 0 while callers pass at once.
func (b *doorbell) patience() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if since := time.Since(b.open); !b.closed && since >= 0 {
		return min(max(since, pollAfter), pollIdle)
	}
	return 0
}

// wait returns when the bell rings, at once if it rang a moment ago, and at the latest after
// pollIdle.
func (b *doorbell) wait() {
	patience := b.patience()
	if patience == 0 {
		return
	}
	select {
	case <-b.rung:
	case <-time.After(patience):
	}
}

// heldClient is a client whose dequeue calls for one asynq queue wait at the doorbell. asynq makes
// them by EvalSha with these keys; should a later version do otherwise, it just polls.
//
// asynq makes one call at a time, and so would get no more tickets a second than there are round
// trips in one. After a call that found tickets, heldClient makes several for one of asynq's, and
// keeps what they find for the next.
type heldClient struct {
	redis.UniversalClient
	pending string
	active  string
	bell    *doorbell
	room    func() int // how many tickets asynq may have at once, for as many calls

	mu    sync.Mutex
	found []*redis.Cmd
	many  int // calls to make next time
}

// mostDequeues is how many dequeue calls are made at a time.
const mostDequeues = 16

func newHeldClient(rdb redis.UniversalClient, queue string, bell *doorbell, room func() int) *heldClient {
	return &heldClient{UniversalClient: rdb, pending: asynqKey(queue, "pending"), active: asynqKey(queue, "active"), bell: bell, room: room}
}

// unused returns the messages that were found, and that asynq did not come for.
func (c *heldClient) unused() (messages []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range c.found {
		message, _ := cmd.Text() // else it was none
		messages = append(messages, message)
	}
	c.found = nil
	return messages
}

// dequeue returns what one of several dequeue calls has found, or else what one has answered.
func (c *heldClient) dequeue(ctx context.Context, sha string, keys []string, args []any) *redis.Cmd {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.found) == 0 {
		answers := make([]*redis.Cmd, max(1, min(c.many, c.room())))
		var calls sync.WaitGroup
		for i := range answers {
			calls.Go(func() { answers[i] = c.UniversalClient.EvalSha(ctx, sha, keys, args...) })
		}
		calls.Wait()
		for _, cmd := range answers {
			if cmd.Err() == nil {
				c.found = append(c.found, cmd)
			}
		}
		c.many = min(2*len(c.found), mostDequeues)
		if len(c.found) == 0 {
			return answers[0]
		}
	}
	cmd := c.found[0]
	c.found = c.found[1:]
	return cmd
}

// EvalSha implements redis.Scripter.
func (c *heldClient) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if len(keys) == 4 && keys[0] == c.pending && strings.HasSuffix(keys[1], ":paused") {
		c.bell.wait()
		crashpoint.Hit("dequeue.before")
		cmd := c.dequeue(ctx, sha, keys, args)
		if cmd.Err() == nil {
			crashpoint.Hit("dequeue.after")
			c.bell.ring() // there was one, there may be more
		}
		return cmd
	}
	done := len(keys) == 5 && keys[0] == c.active // asynq is about to hear that a ticket was used
	if done {
		crashpoint.Hit("done.before")
	}
	cmd := c.UniversalClient.EvalSha(ctx, sha, keys, args...)
	if done && cmd.Err() == nil {
		crashpoint.Hit("done.after")
	}
	return cmd
}
