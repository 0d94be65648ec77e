package shaper

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
)

type noDispatcher struct{}

func (*noDispatcher) Dispatch(context.Context, []string) error { return nil }

// Arguments that cannot work are refused at the door, with the field's name.
func TestConstructorsRefuseWhatCannotWork(t *testing.T) {
	good := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", ContextTimeoutEnabled: true})
	defer good.Close()
	late := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer late.Close()
	lateCluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	defer lateCluster.Close()
	lateFailover := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})
	defer lateFailover.Close()
	refused := func(door, field string, err error) {
		t.Helper()
		var fe *FieldError
		if !errors.As(err, &fe) || fe.Field != field || fe.Want == "" {
			t.Errorf("%s: %v, want an error of %s", door, err, field)
		}
	}
	second := func(_ any, err error) error { return err }
	for name, rdb := range map[string]redis.UniversalClient{
		"nil": nil, "a nil client": (*redis.Client)(nil), "a nil cluster client": (*redis.ClusterClient)(nil),
		"late": late, "a late cluster": lateCluster, "a late failover": lateFailover,
	} {
		refused("NewClient, "+name, "redis", second(NewClient(rdb, "d", ClientConfig{})))
		refused("NewAdmin, "+name, "redis", second(NewAdmin(rdb, "d")))
		refused("NewScheduler, "+name, "redis", second(NewScheduler(rdb, "d", &noDispatcher{}, SchedulerConfig{})))
	}
	refused("no dispatcher", "dispatcher", second(NewScheduler(good, "d", nil, SchedulerConfig{})))
	refused("a nil dispatcher", "dispatcher", second(NewScheduler(good, "d", (*noDispatcher)(nil), SchedulerConfig{})))
	refused("poll", "poll", second(NewScheduler(good, "d", &noDispatcher{}, SchedulerConfig{Poll: -1})))
	refused("ticket ttl", "ticket_ttl", second(NewScheduler(good, "d", &noDispatcher{}, SchedulerConfig{TicketTTL: -1})))
	if _, err := NewScheduler(good, "d", &noDispatcher{}, SchedulerConfig{}); err != nil {
		t.Error(err)
	}
}
