package workers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/jobshaper/jobshaper/internal/crashpoint"
	"github.com/jobshaper/jobshaper/shaper"
)

// asynqQueue names the asynq queue that carries a downstream's tickets.
func asynqQueue(downstream string) string { return queuePrefix + downstream }

const queuePrefix = "shaper-"

// asynqKey is a key of asynq's for one of its queues.
func asynqKey(queue, rest string) string { return "asynq:{" + queue + "}:" + rest }

// Served returns the downstreams whose jobs schedulers have ever handed on, or pools have ever run,
// on this Redis, in no particular order.
func Served(ctx context.Context, rdb redis.UniversalClient) ([]string, error) {
	queues, err := rdb.SMembers(ctx, "asynq:queues").Result()
	if err != nil {
		return nil, fmt.Errorf("list downstreams: %w: %w", shaper.ErrStore, err)
	}
	var names []string
	for _, q := range queues {
		if name, ours := strings.CutPrefix(q, queuePrefix); ours {
			names = append(names, name)
		}
	}
	return names, nil
}

const ticketType = "shaper:ticket"

// What asynq does with a ticket is of no consequence for its job, so it should take little room and
// little time. A ticket that comes back is refused at the gate, and MaxRetry must not be 0: asynq
// archives such a task when its worker vanishes. Whole seconds, because asynq cuts fractions off,
// and 0 would mean 30 minutes. The time-out is far away, because asynq frees a worker's place at a
// time-out even though its handler still runs.
var ticketOptions = []asynq.Option{
	asynq.MaxRetry(3), asynq.Retention(0), asynq.Timeout(30 * 24 * time.Hour),
}

type dispatcher struct {
	rdb        redis.UniversalClient
	downstream string
	queue      string // asynq's, which carries the tickets
	client     *asynq.Client
	inspector  *asynq.Inspector
	options    []asynq.Option
	delivered  func()
	strangers  strangers
}

// NewDispatcher returns the Dispatcher of a Scheduler that puts tickets into a downstream's asynq
// queue. rdb remains the caller's to close. delivered, if not nil, is called when tickets have
// arrived: pass the Ring of a Pool in the same process, which then need not wait to hear of them.
// The Dispatcher is safe for concurrent use.
func NewDispatcher(rdb redis.UniversalClient, downstream string, delivered func()) (shaper.Dispatcher, error) {
	if _, err := shaper.NewAdmin(rdb, downstream); err != nil { // which refuses the same
		return nil, err
	}
	if delivered == nil {
		delivered = func() {}
	}
	queue := asynqQueue(downstream)
	return &dispatcher{
		rdb:        rdb,
		downstream: downstream,
		queue:      queue,
		client:     asynq.NewClientFromRedisClient(newDrainClient(rdb)),
		inspector:  asynq.NewInspectorFromRedisClient(newDrainClient(rdb)),
		options:    append([]asynq.Option{asynq.Queue(queue)}, ticketOptions...),
		delivered:  delivered,
	}, nil
}

// dispatchers is how many tickets of one call are on their way at a time.
const dispatchers = 25

// Dispatch puts every ticket into the queue, once: a ticket that waits there counts as put, and so
// does one of the same job that waits there for long.
func (d *dispatcher) Dispatch(ctx context.Context, tickets []string) error {
	defer d.delivered()
	if len(tickets) == 1 {
		return d.dispatch(ctx, tickets[0])
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(dispatchers)
	for _, t := range tickets {
		g.Go(func() error { return d.dispatch(ctx, t) })
	}
	return g.Wait()
}

// dispatch puts a ticket into the queue. Its task is named after its job, so that one which waits,
// since an earlier ticket of that job was not taken in time, is used again: a ticket says no more
// than "wake up for this tenant", and the gate starts a job of that tenant that is out now.
func (d *dispatcher) dispatch(ctx context.Context, ticket string) error {
	task, release := d.downstream+":"+strings.ReplaceAll(ticket, " ", ":"), ""
	if i := strings.LastIndexByte(task, ':'); i >= 0 {
		task, release = task[:i], task[i:]
	}
	crashpoint.Hit("ticket.before")
	put, err := d.put(ctx, task, ticket)
	crashpoint.Hit("ticket.after")
	if err == nil && !put {
		var waits bool
		if waits, err = d.waits(ctx, task); err == nil && !waits {
			_, err = d.put(ctx, task+release, ticket) // if there is such a task it is our own, whose reply was lost
		}
	}
	if err != nil {
		return fmt.Errorf("put ticket %s into asynq: %w", task+release, err)
	}
	return nil
}

// put puts a task into the queue, unless there is one of that name.
func (d *dispatcher) put(ctx context.Context, task, ticket string) (bool, error) {
	opts := append(d.options[:len(d.options):len(d.options)], asynq.TaskID(task))
	_, err := d.client.EnqueueContext(ctx, asynq.NewTask(ticketType, []byte(ticket)), opts...)
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return false, nil
	}
	return err == nil, err
}

// waits reports whether a task waits for a worker, or does so from now on: one that asynq would
// give to a worker later, or to nobody, need not be made again either.
func (d *dispatcher) waits(ctx context.Context, task string) (bool, error) {
	var state *redis.StringCmd
	var place *redis.IntCmd
	_, err := d.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		state = p.HGet(ctx, asynqKey(d.queue, "t:"+task), "state")
		place = p.LPos(ctx, asynqKey(d.queue, "pending"), task, redis.LPosArgs{})
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) { // it has just ended, or does not wait
		return false, fmt.Errorf("%w: %w", shaper.ErrStore, err)
	}
	switch state.Val() {
	case "retry", "scheduled", "archived":
		return d.inspector.RunTask(d.queue, task) == nil, nil // else it is not in that state any more
	}
	return place.Err() == nil, nil // its state may say so although somebody removed it from the list
}
