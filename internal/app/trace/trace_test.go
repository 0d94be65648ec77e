package trace

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobshaper/jobshaper/buckets"
	"github.com/jobshaper/jobshaper/internal/api/wire"
	"github.com/jobshaper/jobshaper/internal/test/golden"
	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.VerifyTestMain(m) }

func TestParseCall(t *testing.T) {
	for text, want := range map[string]Call{
		"0":                    {0, 1},
		"59":                   {59_000_000, 1},
		"0.5":                  {500_000, 1},
		"0.000001":             {1, 1},
		"0.1234560":            {123_456, 1}, // exact: no float
		"1732950000.123456:20": {1_732_950_000_123_456, 20},
		"3:0":                  {3_000_000, 0},
		"0:999999999999999999": {0, 999_999_999_999_999_999},
	} {
		c, err := ParseCall(text)
		if err != nil || c != want {
			t.Errorf("%s: %+v, %v, want %+v", text, c, err, want)
		}
	}
	for _, text := range []string{"", "x", ".5", "5.", "1e3", "-1", "+1", "0x1", "1:", "1:x", "1:-1", "1:1.5", "0.0000001", "99999999999999999999",
		"6000000000", "1:9999999999999999999", "1 ", "1:2:3"} {
		if c, err := ParseCall(text); err == nil {
			t.Errorf("%q: %+v, want an error", text, c)
		}
	}
}

func TestSeconds(t *testing.T) {
	for us, want := range map[int64]string{0: "0", 1: "0.000001", 500_000: "0.5", 60_000_000: "60", 1_000_010: "1.00001"} {
		if got := Seconds(us); got != want {
			t.Errorf("%d µs: %s, want %s", us, got, want)
		}
		if c, err := ParseCall(want); err != nil || c.At != us {
			t.Errorf("%s is read as %d, %v", want, c.At, err)
		}
	}
}

// Whatever is read can be written and read again.
func FuzzParseCall(f *testing.F) {
	for _, text := range []string{"0", "0.5:2", "1732950000.123456", "9.", "1e9", ":", "5000000000.999999:0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseCall(text)
		if err != nil {
			return
		}
		if c.At < 0 || c.At > buckets.MaxInstant || c.N < 0 {
			t.Fatalf("%q: %+v is out of range", text, c)
		}
		if again, err := ParseCall(fmt.Sprintf("%s:%d", Seconds(c.At), c.N)); err != nil || again != c {
			t.Fatalf("%q: %+v becomes %+v, %v", text, c, again, err)
		}
	})
}

// vector is one case of the exact specification; see package buckets.
type vector golden.Vector

// Traces in memory and in Redis equal the vectors, row for row, and leave nothing behind.
func TestVectors(t *testing.T) {
	text, err := os.ReadFile("../../../buckets/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []vector
	if err := json.Unmarshal(text, &vectors); err != nil {
		t.Fatal(err)
	}
	rdb := redistest.Open(t)
	for _, v := range vectors {
		t.Run(v.Name, func(t *testing.T) { v.run(t, rdb) })
	}
	if keys, err := rdb.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("left: %v, %v", keys, err)
	}
}

func (v vector) run(t *testing.T, rdb redis.UniversalClient) {
	var calls []Call
	for _, r := range v.Rows {
		calls = append(calls, Call{r.T, r.N})
	}
	rate := buckets.Rate{Events: v.Params.Events, Period: time.Duration(v.Params.Per) * time.Microsecond}
	if v.Algorithm == "leaky-queue" {
		v.checkQueue(t, buckets.LeakyQueue{Depth: v.Params.Depth, Rate: rate, Grace: time.Duration(v.Params.Grace) * time.Microsecond}, rdb, calls)
		return
	}
	params := buckets.Params{Algorithm: buckets.Algorithm(v.Algorithm), Limit: max(v.Params.Limit, v.Params.Capacity, v.Params.Depth), Rate: rate,
		Window: time.Duration(v.Params.Window) * time.Microsecond}
	clock := &Clock{}
	memory, err := buckets.NewMemory(params, buckets.MemoryConfig{Clock: clock.Micros})
	if err != nil {
		t.Fatal(err)
	}
	inRedis, err := buckets.NewRedis(rdb, params, buckets.RedisConfig{Clock: clock.Micros})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []buckets.Limiter{memory, inRedis} {
		rows, err := Limiter(t.Context(), l, clock, calls)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range v.Rows {
			got := rows[i].Decision
			if got.Allowed != r.OK || got.Remaining != r.Remaining || wire.Micros(got.RetryAfter) != r.Retry || wire.Micros(got.ResetAfter) != r.Reset {
				t.Fatalf("%T, row %d: %+v, want %+v", l, i, got, r)
			}
		}
	}
}

func (v vector) checkQueue(t *testing.T, q buckets.LeakyQueue, rdb redis.UniversalClient, calls []Call) {
	stored, err := QueueInRedis(t.Context(), rdb, "trace", q, calls)
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range Queue(q, calls) {
		r := v.Rows[i]
		if got.Allowed != r.OK || wire.Micros(got.LeavesIn) != r.Wait || wire.Micros(got.RetryAfter) != r.Retry {
			t.Fatalf("row %d: %+v, want %+v", i, got, r)
		}
		if stored[i] != got {
			t.Fatalf("row %d: in Redis %+v, in memory %+v", i, stored[i], got)
		}
	}
}
