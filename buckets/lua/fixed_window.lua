-- fixed_window: at most the limit in each window; windows are aligned to the epoch.
-- The twin of WindowState.take in fixedwindow.go: same names, same steps.
--
-- key   STRING "start count": start of the newest window seen, µs since the epoch.
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
-- returns whether it passes, and {1|0, left, count}: µs to the window's end, and the count
--   after it.
-- cost  one GET, at most one SET
local function fixed_window(key, now, at, take, write)
  local n, limit, window = tonumber(ARGV[at]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local start, count, moved = 0, 0, false

  local state = redis.call('GET', key)
  if state then
    local a, b = string.match(state, '^(%d+) (%d+)$')
    start, count = tonumber(a), tonumber(b)
    if now < start then
      if start - now > tonumber(ARGV[at + 1]) then
        start, moved = now - now % window, true -- the count stays: a step back is no new window
      else
        now = start -- stay in the newest window
      end
    end
  end
  local begin = now - now % window
  if begin > start then
    start, count = begin, 0
    moved = moved or ARGV[at + 5] == '1'
  end
  local ok = n == 0 or (n > 0 and count + n <= limit)

  take = take and ok and n > 0
  if take then count = count + n end
  if write and (take or moved) then
    redis.call('SET', key, string.format('%d %d', start, count),
      'PX', string.format('%d', math.ceil((begin + window - now) / 1000) + tonumber(ARGV[at + 2])))
  end
  return ok, {ok and 1 or 0, begin + window - now, count}
end
