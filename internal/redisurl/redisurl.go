// Package redisurl turns the value of a --redis flag into a client, and finds out
// whether the Redis behind it can be trusted with jobs.
//
// No error or log line of this package holds a password.
package redisurl

import (
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Timeouts where the URL sets none (dial_timeout, read_timeout, write_timeout).
//
// ReadTimeout, which applies to writes too, is how long a call hangs on a connection whose other
// side is gone, or on a network that swallows what is sent; then the call is made again, which is
// safe for every call of ours. At go-redis' default of 3 s nothing started for 3 to 5 s after a
// network was back. A Redis that stands still for longer than ReadTimeout counts as gone meanwhile.
const (
	DialTimeout = 2 * time.Second
	ReadTimeout = 1500 * time.Millisecond
)

// dialAttempts is how often one attempt at a command dials. Commands are retried as
// a whole already; at go-redis' default of 5 the two multiply, and a host that
// swallows packets holds up a command for 40 s instead of 8.
const dialAttempts = 1

// clusterReload is how often a cluster client reads the topology anew. At
// go-redis' default of 60 s a failover that answers with "connection refused"
// rather than MOVED causes an outage of up to a minute: nothing else tells the client.
const clusterReload = time.Second

// Config is what a program decides and a URL does not. The zero value serves.
type Config struct {
	// Name is shown by CLIENT LIST, unless the URL has client_name.
	Name string
	// PoolSize bounds the connections (to each node, in a cluster), unless the URL
	// has pool_size. 0 is go-redis' default, 10 for each CPU.
	PoolSize int
	// Hooks are added to the client in this order.
	Hooks []redis.Hook
}

// Open returns a client for the URL, which may be
//
//	redis://[user:password@]host[:6379][/db][?option=…]
//	rediss://…                                            the same over TLS
//	unix://[user:password@]/path/of.sock[?db=n&option=…]
//	redis-sentinel://[:password@]host[:26379],…[/db]?master=name[&username=…&password=…]
//	redis-cluster://[user:password@]host[:6379],…[?option=…]
//
// with rediss-sentinel and rediss-cluster for TLS. The options are those of
// go-redis: dial_timeout=1s, pool_size=20, … In a sentinel URL the part before
// the @ is for the sentinels, and username= and password= are for the Redis
// servers behind them, as asynq and go-redis read it. redis-socket is another
// name for unix.
//
// Open does not connect: a server that is away shows at the first command. The
// client obeys the deadline of a command's context.
func Open(url string, o Config) (redis.UniversalClient, error) {
	target, err := parse(url)
	if err != nil {
		return nil, err
	}
	// No CLIENT SETINFO: Redis knows it from 7.2 on only, so no file of ACL users can both load
	// before and allow it.
	var client redis.UniversalClient
	switch opts := target.(type) {
	case *redis.Options:
		opts.MaintNotificationsConfig = noMaintenance()
		opts.ContextTimeoutEnabled = true
		opts.DisableIdentity = true
		opts.DialerRetries = dialAttempts
		o.fill(&opts.ClientName, &opts.PoolSize, &opts.DialTimeout, &opts.ReadTimeout, &opts.WriteTimeout)
		client = redis.NewClient(opts)
	case *redis.FailoverOptions: // it has no maintenance notifications
		opts.ContextTimeoutEnabled = true
		opts.DisableIdentity = true
		opts.DialerRetries = dialAttempts
		o.fill(&opts.ClientName, &opts.PoolSize, &opts.DialTimeout, &opts.ReadTimeout, &opts.WriteTimeout)
		client = redis.NewFailoverClient(opts)
	case *redis.ClusterOptions:
		opts.MaintNotificationsConfig = noMaintenance()
		opts.ContextTimeoutEnabled = true
		opts.DisableIdentity = true
		opts.DialerRetries = dialAttempts
		opts.ClusterStateReloadInterval = clusterReload
		o.fill(&opts.ClientName, &opts.PoolSize, &opts.DialTimeout, &opts.ReadTimeout, &opts.WriteTimeout)
		client = redis.NewClusterClient(opts)
	}
	for _, hook := range o.Hooks {
		client.AddHook(hook)
	}
	return client, nil
}

// fill sets what the URL leaves open.
func (o Config) fill(name *string, pool *int, dial, read, write *time.Duration) {
	setDefault(name, o.Name)
	setDefault(pool, o.PoolSize)
	setDefault(dial, DialTimeout)
	setDefault(read, ReadTimeout)
	setDefault(write, ReadTimeout)
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// noMaintenance keeps go-redis from asking for notifications that only a hosted
// enterprise Redis sends, and from looking its endpoint up in the DNS for that.
func noMaintenance() *maintnotifications.Config {
	return &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
}
