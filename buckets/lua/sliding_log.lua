-- sliding_log: never more than the limit in any window that ends now.
-- The twin of LogState.take in slidinglog.go: same names, same steps.
--
-- key   LIST of "at n before", oldest first: n requests at the instant at (µs since the
--       epoch), and how many came before them. So a count is one subtraction, and a search finds
--       what has expired.
-- now   µs since the epoch
-- at    index in ARGV of the first of:
--   0 n            requests asked for; 0 looks, -1 can never pass (it exceeds the limit)
--   1 back         µs, the largest step back of the clock that counts as the same instant
--   2 keep         ms, how long the key outlives its use
--   3 limit
--   4 window       µs
--   5 note         1: a look or a refusal drops what is expired, too
-- take  whether to take it if it passes
-- write whether anything may be written
-- returns whether it passes, and {1|0, count, newest, blocker}: the count after it, the
--   ages in µs of the newest request and of the one whose expiry would let n pass.
-- cost  four calls, and 2 × log2 of what has expired since the last one, in a list of at
--       most limit entries; after a step back of the clock the whole list, once
local function sliding_log(key, now, at, take, write)
  local n, limit, window = tonumber(ARGV[at]), tonumber(ARGV[at + 3]), tonumber(ARGV[at + 4])
  local shift = 0 -- by how much the entries move with a clock that stepped back

  local function entry(i)
    local value = redis.call('LINDEX', key, i)
    if not value then return nil end
    local a, b, c = string.match(value, '^(-?%d+) (%d+) (%d+)$')
    return tonumber(a) - shift, tonumber(b), tonumber(c)
  end

  -- search returns the first index from lo on that is past(at, n, before), or the size.
  -- It doubles its steps before it bisects, since what it seeks is usually near.
  local size
  local function search(lo, past)
    size = size or redis.call('LLEN', key)
    local hi, step = size, 1
    while lo < hi do
      local probe = math.min(lo + step - 1, hi - 1)
      if past(entry(probe)) then hi = probe; break end
      lo, step = probe + 1, step * 2
    end
    while lo < hi do
      local probe = math.floor((lo + hi) / 2)
      if past(entry(probe)) then hi = probe else lo = probe + 1 end
    end
    return lo
  end

  local first, count, base = 0, 0, 0
  local newest, newest_n, newest_before = entry(-1)
  local live = newest ~= nil
  if live then
    if newest - now > tonumber(ARGV[at + 1]) then
      shift, newest = newest - now, now
    elseif newest > now then
      now = newest
    end
    live = newest > now - window
    local oldest, _, before = entry(0)
    if not live then
      first = 1 -- all have expired
    elseif oldest <= now - window then
      first = search(1, function(t) return t > now - window end)
      _, _, before = entry(first)
    end
    if live then
      base = before
      count = newest_before + newest_n - base
    end
  end

  local ok = n == 0 or (n > 0 and count + n <= limit)
  local blocker = now
  if not ok and n > 0 then
    local k = count + n - limit -- this many of the oldest have to go
    blocker = entry(search(first, function(_, some, before) return before + some >= base + k end))
  end

  -- rewrite moves the whole list by shift, a thousand entries a call.
  local function rewrite()
    local moved = redis.call('LRANGE', key, 0, -1)
    for i = 1, #moved do
      local a, rest = string.match(moved[i], '^(-?%d+)( .*)$')
      moved[i] = string.format('%d', tonumber(a) - shift) .. rest
    end
    redis.call('DEL', key)
    for i = 1, #moved, 1000 do
      redis.call('RPUSH', key, unpack(moved, i, math.min(i + 999, #moved)))
    end
  end

  take = take and ok and n > 0
  if write and shift > 0 then rewrite() end
  if write and first > 0 and (take or shift > 0 or ARGV[at + 5] == '1') then
    if live then redis.call('LTRIM', key, first, -1) else redis.call('DEL', key) end
  end
  if take then
    if write and live and newest == now then
      redis.call('LSET', key, -1, string.format('%d %d %d', now, newest_n + n, newest_before))
    elseif write then
      local before = live and newest_before + newest_n or 0
      redis.call('RPUSH', key, string.format('%d %d %d', now, n, before))
    end
    newest, live, count = now, true, count + n
  end
  if write and live and (take or shift > 0) then
    redis.call('PEXPIRE', key, string.format('%d', math.ceil((newest + window - now + 1) / 1000) + tonumber(ARGV[at + 2])))
  end
  return ok, {ok and 1 or 0, count, live and now - newest or 0, now - blocker}
end
