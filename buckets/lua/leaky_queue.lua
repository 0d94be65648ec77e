-- leaky_queue: offer one job to a leaky bucket used as a queue. The same function as
-- LeakyQueue.Offer; timeline.lua comes before it in the script.
--
-- KEYS[1] HASH, a timeline
-- ARGV[1] now µs  [2] rate "events/period-µs"  [3] [4] (depth - 1) intervals, µs and 1/events µs
--     [5] grace µs
--
-- Returns allowed (1 or 0), µs until the job leaves, µs until it would be accepted
--
-- Cost: O(1). All numbers are whole and below 2^53.

local now, grace = tonumber(ARGV[1]), tonumber(ARGV[5])
local most, most_frac = tonumber(ARGV[3]), tonumber(ARGV[4])
local fields, h = { 'slot', 'next', 'rem', 'r', 'seen' }, {}
for i, v in ipairs(redis.call('HMGET', KEYS[1], unpack(fields))) do h[fields[i]] = v or nil end

local function save()
  if not changed[1] then return end
  redis.call('HSET', KEYS[1], unpack(changed))
  redis.call('EXPIRE', KEYS[1], 3600)
end

local tl = timeline(h, ARGV[2], now, 0, 0, grace)
local slot = earliest(tl, now, grace)
local wait, frac = slot - now, 0
if slot == tl.next + (tl.rem > 0 and 1 or 0) then wait, frac = tl.next - now, tl.rem end
if wait < 0 then wait, frac = 0, 0 end
local over, over_frac = wait - most, frac - most_frac
if over_frac < 0 then over, over_frac = over - 1, over_frac + tl.ev end
if over > 0 or (over == 0 and over_frac > 0) then
  save() -- notes a clock that stepped back; otherwise writes nothing
  return { 0, 0, over + (over_frac > 0 and 1 or 0) }
end
grant(h, tl, slot, now, 0)
save()
return { 1, wait + (frac > 0 and 1 or 0), 0 }
