package workers

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/queue"
	"github.com/jobshaper/jobshaper/shaper"
)

// Backlog looks at the asynq queue that carries a downstream's tickets: how many wait in it,
// whether somebody has paused it, and which asynq servers take tickets from it that are none of the
// downstream's pools.
func Backlog(ctx context.Context, rdb redis.UniversalClient, downstream string) (shaper.Backlog, error) {
	b, err := backlog(ctx, rdb, downstream)
	if err != nil {
		return b, err
	}
	b.Strangers, err = findStrangers(ctx, rdb, asynq.NewInspectorFromRedisClient(rdb), downstream)
	return b, err
}

// backlog is Backlog without strangers, who cost more.
func backlog(ctx context.Context, rdb redis.UniversalClient, downstream string) (b shaper.Backlog, err error) {
	name := asynqQueue(downstream)
	var waiting, paused *redis.IntCmd
	_, err = rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		waiting, paused = p.LLen(ctx, asynqKey(name, "pending")), p.Exists(ctx, asynqKey(name, "paused"))
		return nil
	})
	if err != nil {
		return b, fmt.Errorf("look at asynq queue %s: %w: %w", name, shaper.ErrStore, err)
	}
	b.Tickets = int(waiting.Val())
	if paused.Val() > 0 {
		b.Stuck = fmt.Sprintf("asynq queue %s is paused, which jobshaper never does: resume it (asynq queue resume %s), and pause tenants or the downstream instead", name, name)
	}
	return b, nil
}

// Backlog implements shaper.Backlogged.
func (d *dispatcher) Backlog(ctx context.Context) (shaper.Backlog, error) {
	b, err := backlog(ctx, d.rdb, d.downstream)
	if err != nil {
		return b, err
	}
	b.Strangers, err = d.strangers.look(func() ([]string, error) { return findStrangers(ctx, d.rdb, d.inspector, d.downstream) })
	return b, err
}

// strangersEvery is how often a dispatcher looks for strangers: that reads what asynq tells of
// every worker of every server.
const strangersEvery = 15 * time.Second

// strangers remembers who was found. Somebody counts who was found twice in a row: a pool that
// Redis has forgotten is taken for a stranger until it beats.
type strangers struct {
	mu           sync.Mutex // guards what follows
	looked       time.Time
	last, before []string
}

func (s *strangers) look(find func() ([]string, error)) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.looked.IsZero() || time.Since(s.looked) >= strangersEvery {
		found, err := find()
		if err != nil {
			return nil, err
		}
		s.looked, s.last, s.before = time.Now(), found, s.last
	}
	var both []string
	for _, name := range s.last {
		if slices.Contains(s.before, name) {
			both = append(both, name)
		}
	}
	return both, nil
}

// findStrangers lists the asynq servers that serve a downstream's queue and are none of its pools.
// A server tells its host and process, which are also in a pool's name; a process that has more
// such servers than pools has a stranger.
func findStrangers(ctx context.Context, rdb redis.UniversalClient, inspector *asynq.Inspector, downstream string) ([]string, error) {
	servers, err := inspector.Servers() // first: a pool is known before its server is
	if err != nil {
		return nil, fmt.Errorf("list asynq servers: %w: %w", shaper.ErrStore, err)
	}
	pools, err := rdb.HGetAll(ctx, queue.Open(rdb, downstream).PoolsKey()).Result()
	if err != nil {
		return nil, fmt.Errorf("list pools: %w: %w", shaper.ErrStore, err)
	}
	own := map[string]int{}
	for pool := range pools {
		if i := strings.LastIndexByte(pool, '-'); i >= 0 && !strings.Contains(pool, ":") { // else it is another field of a pool
			own[pool[:i]]++
		}
	}
	var names []string
	for _, s := range servers {
		if _, serves := s.Queues[asynqQueue(downstream)]; !serves {
			continue
		}
		if process := processName(s.Host, s.PID); own[process] > 0 {
			own[process]--
		} else {
			names = append(names, fmt.Sprintf("%s:%d", s.Host, s.PID))
		}
	}
	slices.Sort(names)
	return names, nil
}

// processName is how a pool's name begins.
func processName(host string, pid int) string {
	return fmt.Sprintf("%.24s-%d", notInPoolID.ReplaceAllString(host, "-"), pid)
}

// thisHost is the name of this host, as asynq's servers tell it.
func thisHost() string {
	host, err := os.Hostname()
	if err != nil {
		return "unknown-host"
	}
	return host
}
