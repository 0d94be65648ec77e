// Package coalesce sends script calls that are made at the same time in one round trip.
//
// Why: with many workers the round trip, not the script, is what a call costs, on both
// sides (a write, a read and a wake-up each). The first caller sends at once; those who come while it waits for the reply
// are sent together by the next of them. So a lone caller waits for nobody, and the busier it gets, the larger the batches.
package coalesce

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

const (
	maxBatch = 64 // calls in a round trip
	inFlight = 2  // round trips at a time
)

// Client is a redis.UniversalClient whose EvalSha calls share round trips. It is safe for concurrent use and owns no
// goroutine. The order of concurrent calls is not kept. Calls of one round trip must not hinder each other, so the scripts
// should be short; a call is repeated with its batch when the connection fails, so they must be safe to run twice.
type Client struct {
	redis.UniversalClient

	mu      sync.Mutex
	waiting []*call
	flying  int
}

// New returns a Client on rdb.
func New(rdb redis.UniversalClient) *Client { return &Client{UniversalClient: rdb} }

type call struct {
	ctx  context.Context
	sha  string
	keys []string
	args []any
	cmd  *redis.Cmd
	turn chan bool // true: cmd has its reply; false: send what is waiting, this call among it
}

// EvalSha implements redis.Scripter. When ctx ends first, the call returns at once, and may or may not be run.
func (c *Client) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	k := &call{ctx: ctx, sha: sha, keys: keys, args: args, turn: make(chan bool, 1)}
	c.mu.Lock()
	if c.flying < inFlight {
		c.flying++
		c.mu.Unlock()
		return c.lead([]*call{k}, k)
	}
	c.waiting = append(c.waiting, k)
	c.mu.Unlock()
	select {
	case replied := <-k.turn:
		if replied {
			return k.cmd
		}
		return c.lead(c.take(k), k)
	case <-ctx.Done():
		if c.withdraw(k) {
			cmd := redis.NewCmd(ctx)
			cmd.SetErr(ctx.Err())
			return cmd
		}
		// Too late to withdraw: somebody sends it, or waits for this call to lead.
		if replied := <-k.turn; replied {
			return k.cmd
		}
		return c.lead(c.take(k), k)
	}
}

// take returns the next batch, k first. k was taken off the waiting calls by whoever gave it the turn.
func (c *Client) take(k *call) []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.waiting), maxBatch-1)
	batch := append([]*call{k}, c.waiting[:n]...)
	c.waiting = append([]*call(nil), c.waiting[n:]...)
	return batch
}

// withdraw takes k off the waiting calls, if it is still there.
func (c *Client) withdraw(k *call) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, w := range c.waiting {
		if w == k {
			c.waiting = append(c.waiting[:i:i], c.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// lead sends a batch, tells its callers, and gives the turn to one that came meanwhile.
func (c *Client) lead(batch []*call, own *call) *redis.Cmd {
	c.send(batch)
	c.mu.Lock()
	if len(c.waiting) > 0 {
		next := c.waiting[0]
		c.waiting = c.waiting[1:]
		next.turn <- false
	} else {
		c.flying--
	}
	c.mu.Unlock()
	for _, k := range batch {
		if k != own {
			k.turn <- true
		}
	}
	return own.cmd
}

func (c *Client) send(batch []*call) {
	if len(batch) == 1 {
		k := batch[0]
		k.cmd = c.UniversalClient.EvalSha(k.ctx, k.sha, k.keys, k.args...)
		return
	}
	// One caller's end must not be the others': the client's own time-outs bound the call.
	ctx := context.WithoutCancel(batch[0].ctx)
	pipe := c.UniversalClient.Pipeline()
	for _, k := range batch {
		k.cmd = pipe.EvalSha(ctx, k.sha, k.keys, k.args...)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
}
