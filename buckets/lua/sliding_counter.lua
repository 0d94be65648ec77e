-- sliding_counter: previous count × overlap + current count stays below the limit.
-- The twin of CounterState.take in slidingcounter.go: same names, same steps.
--
-- key   STRING "start previous current": start of the newest window seen, µs since the
--       epoch, the count of the window before it, and its own.
-- now   µs since the epoch
-- at    index in ARGV of the first of:
--   0 n            requests asked for; 0 looks, -1 can never pass (it exceeds the limit)
--   1 back         µs, the largest step back of the clock that counts as the same instant
--   2 keep         ms, how long the key outlives its use
--   3 limit
--   4 window       µs
--   5 note         1: a look or a refusal records a newer window, too
-- take  whether to take it if it passes
-- write whether anything may be written
-- returns whether it passes, and {1|0, into, previous, current}: µs into the window, and the
--   counts after it.
-- cost  one GET, at most one SET

-- product returns a × b exactly, as high × 2^22 + low; a < 2^30, b < 2^45. A double alone
-- holds 53 bits, and a limit of 10^9 in a year needs 75.
local function product(a, b)
  local low = a * (b % 4194304)
  return a * math.floor(b / 4194304) + math.floor(low / 4194304), low % 4194304
end

local function sliding_counter(key, now, at, take, write)
  local n, limit, window = tonumber(ARGV[at]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local start, previous, current, moved = 0, 0, 0, false

  local state = redis.call('GET', key)
  if state then
    local a, b, c = string.match(state, '^(%d+) (%d+) (%d+)$')
    start, previous, current = tonumber(a), tonumber(b), tonumber(c)
    if now < start then
      if start - now > tonumber(ARGV[at + 1]) then
        start, moved = now - now % window, true -- the counts stay: a step back is no new window
      else
        now = start
      end
    end
  end
  local begin = now - now % window
  if begin > start then
    previous = begin - start <= window and current or 0
    start, current = begin, 0
    moved = moved or ARGV[at + 5] == '1'
  end

  local ok = n == 0
  if n > 0 then
    local room = limit + 1 - current - n
    if room <= 0 or room > previous then
      ok = room > 0
    else
      local high, low = product(previous, window - (now - begin))
      local most, rest = product(room, window)
      ok = high < most or (high == most and low < rest)
    end
  end

  take = take and ok and n > 0
  if take then current = current + n end
  if write and (take or moved) then
    redis.call('SET', key, string.format('%d %d %d', start, previous, current),
      'PX', string.format('%d', math.ceil((begin + 2 * window - now) / 1000) + tonumber(ARGV[at + 2])))
  end
  return ok, {ok and 1 or 0, now - begin, previous, current}
end
