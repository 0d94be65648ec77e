package buckets

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/jobshaper/jobshaper/internal/test/redistest"
)

// timelineScript grants a slot on a timeline in a hash: the earliest, or one that is ARGV[6] µs
// later.
var timelineScript = redis.NewScript(luaChanges + luaTimeline + `
local fields, h = { 'slot', 'next', 'rem', 'r', 'seen' }, {}
for i, v in ipairs(redis.call('HMGET', KEYS[1], unpack(fields))) do h[fields[i]] = v or nil end
local now = tonumber(ARGV[1])
local tl = timeline(h, ARGV[2], now, tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[7]))
if ARGV[8] == '1' then
  if tl.doubted then note(h, tl) end
  if changed[1] then redis.call('HSET', KEYS[1], unpack(changed)) end
  return 'settled'
end
local slot = earliest(tl, now, tonumber(ARGV[5])) + ARGV[6]
grant(h, tl, slot, now, tonumber(ARGV[9]))
redis.call('HSET', KEYS[1], unpack(changed))
local function int(n) return string.format('%d', n) end
return { int(slot), int(tl.next), int(tl.rem), tl.rate, int(tl.seen) }`)

// Whatever the rates, the clock, restarts, the grace and what else may bind: the script is the
// function in Go.
func TestTimelineIsItsScript(t *testing.T) {
	for name, client := range map[string]redis.UniversalClient{"redis": redistest.Open(t), "miniredis": redistest.Mini(t)} {
		t.Run(name, func(t *testing.T) {
			n := 0
			rapid.Check(t, func(rt *rapid.T) {
				n++
				key, now, r := fmt.Sprint("twin", n), t0, drawQuickRate(rt)
				terms := Terms{Grace: micros(rapid.SampledFrom([]int64{0, 1, 10_000, 5_000_000}).Draw(rt, "grace")),
					Ahead: micros(rapid.SampledFrom([]int64{0, 60_000}).Draw(rt, "ahead"))}
				var tl Timeline
				for range rapid.IntRange(1, 25).Draw(rt, "calls") {
					iv := interval(r)
					now += rapid.SampledFrom([]int64{0, 0, 1, iv.us - 1, iv.us, iv.us + 1, iv.us + 9_999, iv.us + 10_001, 3 * iv.us,
						-1, -iv.us, -2*iv.us - 5, -3_600_000_000, 86_400_000_000}).Draw(rt, "pass")
					now = max(now, 0)
					switch rapid.IntRange(0, 9).Draw(rt, "event") {
					case 0:
						r = drawQuickRate(rt)
					case 1:
						terms.Epoch = now
					case 2:
						terms.Epoch = max(0, now-iv.us)
					}
					settle := rapid.IntRange(0, 3).Draw(rt, "settled") == 0
					if terms.Most = 0; rapid.Bool().Draw(rt, "most") {
						terms.Most = 10 * time.Second
					}
					args := func(later int64, settled int) []any {
						most := "-"
						if terms.Most > 0 {
							most = fmt.Sprint(terms.Most.Microseconds())
						}
						return []any{now, fmt.Sprintf("%d/%d", r.Events, r.periodMicros()), terms.Epoch, terms.Ahead.Microseconds(),
							terms.Grace.Microseconds(), later, most, settled, terms.Keep.Microseconds()}
					}
					if settle {
						tl = tl.Settled(r, now, terms)
						if err := timelineScript.Run(t.Context(), client, []string{key}, args(0, 1)...).Err(); err != nil {
							rt.Fatal(err)
						}
						if rapid.Bool().Draw(rt, "only settled") {
							continue
						}
					}
					later := rapid.SampledFrom([]int64{0, 0, 0, 1, iv.us / 2, 3 * iv.us}).Draw(rt, "later")
					terms.Keep = micros(rapid.SampledFrom([]int64{0, 0, 1, iv.us / 2, iv.us}).Draw(rt, "keep"))
					slot := tl.Earliest(r, now, terms) + later
					tl = tl.Grant(r, slot, now, terms)
					want := fmt.Sprint([]any{slot, tl.Next, tl.Rem, fmt.Sprintf("%d/%d", r.Events, r.periodMicros()), tl.Seen})
					got, err := timelineScript.Run(t.Context(), client, []string{key}, args(later, 0)...).Result()
					if err != nil {
						rt.Fatal(err)
					}
					if fmt.Sprint(got) != want {
						rt.Fatalf("at %d, rate %v, %+v: the script says %v, Go %s", now-t0, r, terms, got, want)
					}
				}
			})
		})
	}
}
