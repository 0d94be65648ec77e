package buckets

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// The script is the twin of the Go function, so both are asked the same, including what the vectors
// leave out: parameters that change, and a clock that jumps.
func TestScriptLikeGo(t *testing.T) {
	client := redistest.Start(t).Client()
	rapid.Check(t, func(rt *rapid.T) { alike(t, rt, openMemory, openOn(client)) })
}

func alike(t *testing.T, rt *rapid.T, open1, open2 opener) {
	ctx := context.Background()
	params := drawParams(rt)
	a, b := newFixture(t, open1, params), newFixture(t, open2, params)
	at := t0
	for i := range rapid.IntRange(1, 25).Draw(rt, "calls") {
		scale := params.scale()
		at += rapid.SampledFrom([]int64{0, 0, 1, scale / 3, scale, 3 * scale, -1, -scale, -70 * scale, -3_600_000_000, 300 * 86_400_000_000}).Draw(rt, "elapsed")
		at = min(max(at, 0), MaxInstant)
		n := rapid.SampledFrom([]int64{0, 1, 1, 2, 1 + params.Limit/3, params.Limit, params.Limit + 1}).Draw(rt, "n")
		switch rapid.IntRange(0, 9).Draw(rt, "what") {
		case 0: // other parameters, the same algorithm
			other := drawParams(rt)
			if other.Algorithm = params.Algorithm; params.Window > 0 {
				other.Window, other.Rate = micros(rapid.Int64Range(1, 10_000_000).Draw(rt, "new window")), Rate{}
			} else {
				other.Window, other.Rate = 0, Rate{rapid.Int64Range(1, 1000).Draw(rt, "new events"), time.Second}
			}
			params = other
			for _, f := range []*fixture{a, b} {
				if err := f.l.Set(params); err != nil {
					rt.Fatal(err)
				}
				f.limit = params.Limit
			}
		case 1:
			a.now, b.now = at, at
			x, err1 := a.l.Check(ctx, a.key, min(n, params.Limit))
			y, err2 := b.l.Check(ctx, b.key, min(n, params.Limit))
			if x != y || err1 != nil || err2 != nil {
				rt.Fatalf("%+v, call %d at %d: Check(%d) is %+v %v and %+v %v", params, i, at, n, x, err1, y, err2)
			}
		case 2:
			if rapid.Bool().Draw(rt, "reset") {
				a.l.Reset(ctx, a.key)
				b.l.Reset(ctx, b.key)
			}
		default:
			if x, y := a.ask(at, n), b.ask(at, n); x != y {
				rt.Fatalf("%+v, call %d at %d: cost %d gives %+v and %+v", params, i, at, n, x, y)
			}
		}
	}
}
