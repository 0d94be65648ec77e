package buckets

import (
	"context"
	"fmt"
	"testing"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// In a cluster keys spread over the nodes, or share one by their tag.
func TestCluster(t *testing.T) {
	testenv.Long(t, "starts six servers")
	t.Parallel()
	client, ctx := redistest.StartCluster(t).Client(), context.Background()
	t.Run("vectors", func(t *testing.T) { suiteVectors(t, openOn(client)) })
	t.Run("textbook", func(t *testing.T) { suiteTextbook(t, openOn(client)) })
	var tagged []Request
	for _, params := range slow() {
		spread, err := NewRedis(client, params, RedisConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if spread.takes != nil {
			t.Errorf("%s: keys of different slots share a script", params.Algorithm)
		}
		together, err := NewRedis(client, params, RedisConfig{Tag: "downstream"})
		if err != nil {
			t.Fatal(err)
		}
		tagged = append(tagged, Request{together, "all", 2})
		for i := range 12 {
			key := fmt.Sprint("client", i)
			for want := int64(4); want >= -1; want-- {
				for _, l := range []*Redis{spread, together} {
					d, err := l.Allow(ctx, key)
					if err != nil || d.Allowed != (want >= 0) || d.Remaining != max(0, want) {
						t.Fatalf("%s, %s: %+v, %v; want %d left", params.Algorithm, l.Key(key), d, err, want)
					}
				}
			}
		}
	}
	for want := int64(3); want >= 1; want -= 2 {
		ds, ok, err := TakeAll(ctx, tagged...)
		if err != nil || !ok || ds[0].Remaining != want || ds[4].Remaining != want {
			t.Errorf("TakeAll: %+v, %v, %v; want %d left of each", ds, ok, err, want)
		}
	}
	if _, ok, err := TakeAll(ctx, tagged...); err != nil || ok {
		t.Errorf("TakeAll with one left of each: %v, %v", ok, err)
	}
}
