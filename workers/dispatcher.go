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
	client     *asynq.Client
	options    []asynq.Option
	delivered  func()
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
	return &dispatcher{
		rdb:        rdb,
		downstream: downstream,
		client:     asynq.NewClientFromRedisClient(newDrainClient(rdb)),
		options:    append([]asynq.Option{asynq.Queue(asynqQueue(downstream))}, ticketOptions...),
		delivered:  delivered,
	}, nil
}

// Backlog implements shaper.Backlogged: how many tickets wait in the asynq queue, and whether
// somebody has paused it.
func (d *dispatcher) Backlog(ctx context.Context) (tickets int, why string, err error) {
	name := asynqQueue(d.downstream)
	var waiting, paused *redis.IntCmd
	_, err = d.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		waiting, paused = p.LLen(ctx, "asynq:{"+name+"}:pending"), p.Exists(ctx, "asynq:{"+name+"}:paused")
		return nil
	})
	if err != nil {
		return 0, "", fmt.Errorf("look at asynq queue %s: %w: %w", name, shaper.ErrStore, err)
	}
	if paused.Val() > 0 {
		why = fmt.Sprintf("asynq queue %s is paused, which jobshaper never does: resume it (asynq queue resume %s), and pause tenants or the downstream instead", name, name)
	}
	return int(waiting.Val()), why, nil
}

// dispatchers is how many tickets of one call are on their way at a time.
const dispatchers = 8

// Dispatch puts every ticket into the queue, once: a ticket that is there already counts as put.
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

func (d *dispatcher) dispatch(ctx context.Context, ticket string) error {
	id := d.downstream + ":" + strings.ReplaceAll(ticket, " ", ":")
	opts := append(d.options[:len(d.options):len(d.options)], asynq.TaskID(id))
	crashpoint.Hit("ticket.before")
	_, err := d.client.EnqueueContext(ctx, asynq.NewTask(ticketType, []byte(ticket)), opts...)
	crashpoint.Hit("ticket.after")
	if err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) { // a conflict is with our own, whose reply was lost
		return fmt.Errorf("put ticket %s into asynq: %w", id, err)
	}
	return nil
}
