package redistest

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/internal/test/testenv"
)

// Open returns a client of an empty store of this test's own: a real server where
// there is one, else miniredis, so that most tests run on any laptop. Where the
// environment promises Redis (testenv.RequireVar), it never falls back.
func Open(t testing.TB) redis.UniversalClient {
	t.Helper()
	if _, err := testenv.Find("redis"); err == nil || testenv.Required("redis") {
		return Start(t).Client()
	}
	return Mini(t)
}

// Mini returns a client of an empty miniredis. Its connections are loopback TCP,
// because those inside the process (miniredis' own Dial) hang on requests above
// some 10 kB. Keys do not expire by themselves.
func Mini(t testing.TB) *redis.Client {
	t.Helper()
	server := miniredis.RunT(t)
	client := redis.NewClient(clientOptions(server.Addr(), ""))
	t.Cleanup(func() { _ = client.Close() })
	return client
}
