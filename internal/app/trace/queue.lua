-- queue: offer one job to a leaky bucket used as a queue. The same function as buckets.LeakyQueue.Offer, for traces.
--
-- KEYS[1] HASH: last, frac (the last slot, µs and 1/events µs), seen (when it was granted, µs); absent: none was
-- ARGV[1] now µs  [2] events of the rate  [3] [4] an interval, µs and 1/events µs  [5] [6] (depth - 1) intervals
--
-- Returns allowed (1 or 0), µs until the job leaves, µs until it would be accepted
--
-- Cost: O(1). All numbers are whole and below 2^53.

local now, events = tonumber(ARGV[1]), tonumber(ARGV[2])
local step, step_frac, most, most_frac = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local state = redis.call('HMGET', KEYS[1], 'last', 'frac', 'seen')
local last, frac, seen = tonumber(state[1]), tonumber(state[2]), tonumber(state[3])

local function save(l, f, s)
  redis.call('HSET', KEYS[1], 'last', string.format('%d', l), 'frac', string.format('%d', f), 'seen', string.format('%d', s))
  redis.call('EXPIRE', KEYS[1], 3600)
end

local at, at_frac = now, 0
if last then
  if seen - now > step then -- the clock stepped back by more than an interval, and the timeline with it
    last, seen = last - (seen - now), now
    save(last, frac, seen)
  end
  local next, next_frac = last + step, frac + step_frac
  if next_frac >= events then next, next_frac = next + 1, next_frac - events end
  if next >= now then at, at_frac = next, next_frac end
end
local wait = at - now
local over, over_frac = wait - most, at_frac - most_frac
if over_frac < 0 then over, over_frac = over - 1, over_frac + events end
if over > 0 or (over == 0 and over_frac > 0) then
  return { 0, 0, over + (over_frac > 0 and 1 or 0) }
end
save(at, at_frac, now)
return { 1, wait + (at_frac > 0 and 1 or 0), 0 }
