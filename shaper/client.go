package shaper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/again"
	"github.com/jobshaper/jobshaper/internal/coalesce"
	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/internal/usable"
)

// Client offers jobs to the tenants of one downstream. It needs no scheduler or worker in its
// process. It is safe for concurrent use, and owns no connection: closing rdb is up to its owner. A
// round trip that several callers share may outlive callers whose ctx ended, at most until rdb's
// own timeout.
type Client struct {
	q          queue.Queue
	opts       ClientConfig
	admissions admissions
	offers     *coalesce.Group[*offering, Offered]
}

// ClientConfig is set once for a Client. The zero value serves.
type ClientConfig struct {
	MaxPayload int // most bytes of a payload and its job's headers; default DefaultMaxPayload

	// Replicas is how many replicas must have a job before it counts as accepted, so that it
	// outlives the primary. If they do not say so in time, the answer is an *UnconfirmedError. With
	// 0 none are asked, and a failover may lose the last moment's jobs. It needs a *redis.Client or
	// a *redis.ClusterClient.
	Replicas       int
	ReplicaTimeout time.Duration // how long they may take; default DefaultReplicaTimeout
}

// DefaultReplicaTimeout is how long replicas may take to confirm a job, see ClientConfig.Replicas.
const DefaultReplicaTimeout = time.Second

// DefaultMaxPayload is the most bytes of a payload, with its job's headers, that a Client takes unless
// configured otherwise.
const DefaultMaxPayload = 64 << 10

// Validate returns a *FieldError for the first field that cannot be used.
func (o ClientConfig) Validate() error {
	switch {
	case o.MaxPayload < 0:
		return &FieldError{"max_payload", fmt.Sprint(o.MaxPayload), "bytes, 1 or more"}
	case o.Replicas < 0 || o.Replicas > 100:
		return &FieldError{"wait", fmt.Sprint(o.Replicas), "1 to 100 replicas, or 0 for none"}
	case o.ReplicaTimeout < 0 || o.ReplicaTimeout > 0 && o.ReplicaTimeout < time.Millisecond || o.ReplicaTimeout > time.Minute:
		return &FieldError{"timeout", o.ReplicaTimeout.String(), "1ms to 1m"}
	}
	return nil
}

// NewClient returns a Client for a downstream. It does not talk to Redis.
func NewClient(rdb redis.UniversalClient, downstream string, opts ClientConfig) (*Client, error) {
	q, err := newQueue(rdb, downstream)
	if err != nil {
		return nil, err
	}
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	_, single := rdb.(*redis.Client)
	_, cluster := rdb.(*redis.ClusterClient)
	if opts.Replicas > 0 && !single && !cluster {
		return nil, errNoConnection(rdb)
	}
	return newClient(q, opts), nil
}

func newClient(q queue.Queue, opts ClientConfig) *Client {
	opts.MaxPayload = cmp.Or(opts.MaxPayload, DefaultMaxPayload)
	opts.ReplicaTimeout = cmp.Or(opts.ReplicaTimeout, DefaultReplicaTimeout)
	c := &Client{q: q, opts: opts}
	c.offers = coalesce.New(offerBatch, c.offerAll)
	return c
}

// Cancel ends a job that has not ended, and returns the state that it is in now. StateCancelled: it
// will not start again. StateRunning: its handler's context ends with ErrCancelled, and unless the
// handler succeeds all the same, the job ends cancelled without another start. Another ended state:
// the call came too late. If nothing is known of the job it returns ErrNotFound.
func (c *Client) Cancel(ctx context.Context, tenant, id string) (State, error) {
	if err := cmp.Or(ValidName("tenant", tenant), ValidName("id", id)); err != nil {
		return "", err
	}
	v, err := c.q.Run(ctx, queue.CancelScript, "cancel job", tenant, id)
	if err != nil {
		return "", err
	}
	s, _ := v.(string)
	if s == "" {
		return "", fmt.Errorf("job %s of tenant %s: %w", id, tenant, ErrNotFound)
	}
	return State(s), nil
}

// Wait returns a job once it has ended. It asks Redis again and again, less and less often (every
// 20 ms at first, every second in the end), so a job that nobody waits for costs nothing more.
func (c *Client) Wait(ctx context.Context, tenant, id string) (Job, error) {
	for pause := (again.Pause{First: 20 * time.Millisecond, Most: time.Second}); ; {
		j, err := c.Find(ctx, tenant, id)
		switch {
		case err != nil && (errors.Is(err, ErrNotFound) || errors.Is(err, ErrInvalid)):
			return j, err
		case err == nil && j.State.Ended():
			return j, nil
		}
		if !pause.Wait(ctx, 0) {
			return j, fmt.Errorf("wait for job %s: %w", id, context.Cause(ctx))
		}
	}
}

// newQueue opens a downstream's queue, if its name and the client can be used.
func newQueue(rdb redis.UniversalClient, downstream string) (queue.Queue, error) {
	if err := ValidName("downstream", downstream); err != nil {
		return queue.Queue{}, err
	}
	if value, want := usable.Client(rdb); want != "" {
		return queue.Queue{}, &FieldError{"redis", value, want}
	}
	return queue.Open(rdb, downstream), nil
}
