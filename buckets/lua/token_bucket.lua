-- token_bucket: token bucket, and leaky bucket as a meter (its dual), as GCRA.
-- The twin of BucketState.take in tokenbucket.go: same names, same steps.
--
-- key   STRING "tat frac last events/period": tat and last in µs since the epoch, frac in
--       1/events µs, and the rate at that time, period in µs. Absent: never used.
-- now   µs since the epoch
-- at    index in ARGV of the first of:
--   0 n            requests asked for; 0 looks, -1 can never pass (it exceeds the limit)
--   1 back         µs, the largest step back of the clock that counts as the same instant
--   2 keep         ms, how long the key outlives its use
--   3 cost_us      n intervals, whole µs
--   4 cost_frac    and 1/events µs
--   5 full_us      the capacity in intervals, whole µs
--   6 full_frac    and 1/events µs
--   7 rate         "events/period", period in µs
-- take  whether to take it if it passes
-- write whether anything may be written
-- returns whether it passes, and {1|0, used_us, used_frac}, the level after it as a time.
-- cost  one GET, at most one SET
local function token_bucket(key, now, at, take, write)
  local n = tonumber(ARGV[at])
  local cost, cost_frac = tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local full, full_frac = tonumber(ARGV[at + 5]), tonumber(ARGV[at + 6])
  local used, frac, moved = 0, 0, false

  local state = redis.call('GET', key)
  if state then
    local a, b, c, rate = string.match(state, '^(-?%d+) (%d+) (%d+) (.*)$')
    local tat, last = tonumber(a), tonumber(c)
    frac = tonumber(b)
    if now < last then
      if last - now > tonumber(ARGV[at + 1]) then
        tat, moved = tat - (last - now), true
      else
        now = last -- the clock stepped back: nothing is credited
      end
    end
    used = tat - now
    if used < 0 then used, frac = 0, 0 end
    if rate ~= ARGV[at + 7] and (used > 0 or frac > 0) then -- the rate has changed
      local old_events, old_period = string.match(rate, '^(%d+)/(%d+)$')
      local tokens = (used * tonumber(old_events) + frac) / tonumber(old_period)
      local events, period = string.match(ARGV[at + 7], '^(%d+)/(%d+)$')
      used, frac = math.min(math.ceil(tokens * tonumber(period) / tonumber(events)), 1576800000000000), 0
    end
    if used > full or (used == full and frac > full_frac) then
      used, frac, moved = full, full_frac, true
    end
  end

  local after, after_frac = used + cost, frac + cost_frac
  if after_frac > 0 then
    local events = tonumber(string.match(ARGV[at + 7], '^%d+'))
    if after_frac >= events then after, after_frac = after + 1, after_frac - events end
  end
  local ok = n == 0 or (n > 0 and (after < full or (after == full and after_frac <= full_frac)))

  take = take and ok and n > 0
  if take then used, frac = after, after_frac end
  if write and (take or moved) then
    redis.call('SET', key, string.format('%d %d %d %s', now + used, frac, now, ARGV[at + 7]),
      'PX', string.format('%d', math.ceil((used + 1) / 1000) + tonumber(ARGV[at + 2])))
  end
  return ok, {ok and 1 or 0, used, frac}
end
