package shaper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/again"
	"github.com/jobshaper/jobshaper/internal/queue"
)

// UnconfirmedError says that a job was stored, but that too few replicas said in time that they
// have it, see ClientConfig.Replicas. Whether the job outlives the primary is unknown: offer it
// again under the same ID, which is accepted as a duplicate once the replicas have it. It wraps
// ErrStore.
type UnconfirmedError struct {
	Tenant, ID string
	Want, Got  int // replicas
	Within     time.Duration
	Err        error // why the replicas could not be asked; nil if they were
}

func (e *UnconfirmedError) Error() string {
	why := fmt.Sprintf("%d of %d replicas confirmed it within %v", e.Got, e.Want, e.Within)
	if e.Err != nil {
		why = fmt.Sprintf("its replicas could not be asked: %v", e.Err)
	}
	return fmt.Sprintf("job %s of tenant %s was stored, but %s: whether it is kept is unknown; offer it again under the same id", e.ID, e.Tenant, why)
}

// Unwrap implements what errors.Is and errors.As look for.
func (e *UnconfirmedError) Unwrap() []error {
	if e.Err != nil {
		return []error{ErrStore, e.Err}
	}
	return []error{ErrStore}
}

// confirmed turns the answer to an accepted job into an UnconfirmedError if its replicas did not
// confirm it. A refusal wrote nothing, so there is nothing to confirm.
func (c *Client) confirmed(o Offered, k *offerCall) Offered {
	if c.opts.Replicas == 0 || o.Err != nil || o.Result.Status != Accepted {
		return o
	}
	n, err := k.waited.Result()
	if err == nil && n >= int64(c.opts.Replicas) {
		return o
	}
	return Offered{Err: &UnconfirmedError{o.Result.Tenant, o.Result.ID, c.opts.Replicas, int(n), c.opts.ReplicaTimeout, err}}
}

// confirmAttempts is how often calls are made at most while a cluster says that they belong
// elsewhere: for some 2 s in all.
const confirmAttempts = 8

// sendConfirmed makes some calls and asks how many replicas have what they wrote, in one round trip
// over one connection, since Redis' WAIT is about the connection that it arrives on. All of them
// may be sent again together.
//
// go-redis would choose a connection, and follow a cluster's redirections, for each command by
// itself, so sendConfirmed does both.
func (c *Client) sendConfirmed(ctx context.Context, calls []*offerCall) {
	cluster, _ := c.q.RDB.(*redis.ClusterClient)
	pause := again.Pause{First: 60 * time.Millisecond, Most: 500 * time.Millisecond}
	for attempt := 1; ; attempt++ {
		node, err := primary(ctx, c.q)
		if err == nil {
			err = c.sendTo(ctx, node, calls)
		} else {
			for _, k := range calls {
				k.cmd = redis.NewCmd(ctx)
				k.cmd.SetErr(err)
			}
		}
		switch {
		case err == nil || ctx.Err() != nil || attempt == confirmAttempts:
			return
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			_ = queue.EnqueueScript.Load(ctx, node) // if it fails, so does the next attempt
			continue
		case cluster == nil || !elsewhere(err): // a client of one server has tried again by itself
			return
		}
		cluster.ReloadState(ctx)
		if !pause.Wait(ctx, 0) {
			return
		}
	}
}

// sendTo makes the calls at one server. It returns an error if one of them failed for a reason that
// concerns the server, not the call.
func (c *Client) sendTo(ctx context.Context, node *redis.Client, calls []*offerCall) error {
	const reply = 2 * time.Second // how long the answer itself may take
	if t := node.Options().ReadTimeout; t > 0 && t < c.opts.ReplicaTimeout+reply {
		node = node.WithTimeout(c.opts.ReplicaTimeout + reply) // a pipeline does not heed WAIT's own
	}
	pipe := node.Pipeline()
	for _, k := range calls {
		k.cmd = queue.EnqueueScript.EvalSha(ctx, pipe, c.q.Keys(), c.q.Args(k.args...)...)
	}
	// WAIT is about the connection's last write. An offer of a job that is known already writes
	// nothing, so something is written for it: a replica that has that has all that was written
	// before.
	mark := pipe.Set(ctx, c.q.MarkKey(), 1, time.Minute)
	waited := redis.NewIntCmd(ctx, "wait", c.opts.Replicas, c.opts.ReplicaTimeout.Milliseconds())
	_ = pipe.Process(ctx, waited) // only queued
	_, _ = pipe.Exec(ctx)         // each command has its own error
	if mark.Err() != nil {
		waited.SetErr(mark.Err())
	}
	for _, k := range calls {
		k.waited = waited
		if err := k.cmd.Err(); redis.HasErrorPrefix(err, "NOSCRIPT") || elsewhere(err) {
			return err
		}
	}
	if err := waited.Err(); elsewhere(err) {
		return err
	}
	return nil
}

// primary is the server that runs the downstream's scripts now.
func primary(ctx context.Context, q queue.Queue) (*redis.Client, error) {
	switch rdb := q.RDB.(type) {
	case *redis.Client:
		return rdb, nil
	case *redis.ClusterClient:
		return rdb.MasterForKey(ctx, q.Prefix)
	}
	return nil, errNoConnection(q.RDB)
}

func errNoConnection(rdb redis.UniversalClient) error {
	return &FieldError{"wait", fmt.Sprintf("with a %T", rdb), "a *redis.Client or a *redis.ClusterClient, whose single connections can be used"}
}

// elsewhere reports whether a call may succeed at another server, or a moment later.
func elsewhere(err error) bool {
	var answer redis.Error
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, redis.ErrClosed) {
		return false
	}
	if !errors.As(err, &answer) {
		return true // no answer at all
	}
	for _, prefix := range []string{"MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "READONLY", "MASTERDOWN", "LOADING"} {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}
