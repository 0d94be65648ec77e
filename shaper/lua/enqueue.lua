-- enqueue: offer one job to a tenant's bucket. Safe to repeat: the digest holds a nonce of the call.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] tenant  [3] id  [4] delay µs, 0 = none  [5] not before, µs since the epoch, 0 = at once
-- ARGV[6] digest of the body, "hash.nonce"; hash is empty where the id was made up by the client
-- ARGV[7] body without its first field, see job.lua
--
-- Returns {status, position, start, retry, now}; µs; position counts from 1, 0 = does not wait; start 0 = not known (paused
-- without an end); retry -1 = never
--   accepted   it waits, or waited before this call was repeated
--   duplicate  the same id with the same body is known
--   conflict   the id is known with another body
--   full       no room (on_full reject); block: no room, and the tenant's policy is to wait for it
--   unknown    the downstream serves only tenants that were set
-- A refusal writes nothing. The first write may need memory, so with maxmemory reached the script fails clean.
--
-- Cost: O(1), about a dozen commands; with a full bucket at most 64 waiting jobs are looked at.

local now, T, id = clock(), ARGV[2], ARGV[3]
local ds = downstream(now)
local t = tenant(ds, T, now)

local function known(digest)
  if digest == ARGV[6] then return 'accepted' end
  local a, b = string.match(digest, '^([^.]*)%.'), string.match(ARGV[6], '^([^.]*)%.')
  return a == b and a ~= '' and 'duplicate' or 'conflict'
end

-- expected is when the job that leaves as number `position`, and not before `due`, starts.
local function expected(position, due)
  if num(t, 'until') >= FOREVER then return 0 end
  return math.max(likely(t.tl, num(t, 'out') + position - 1, now, ds.grace), due, num(t, 'until'))
end

local body = call('HGET', k_jobs(T), id)
if body then
  local h = header(body)
  local status = known(h.digest)
  local place = status ~= 'conflict' and call('LPOS', k_wait(T), id, 'MAXLEN', 10000)
  local position = place and place + 1 or 0
  return { status, position, int(expected(math.max(position, 1), h.since)), '-1', int(now) }
end
local ended = call('GET', k_end(T, id))
if ended then
  local digest = string.match(ended, '^%S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%S+)')
  return { known(digest), 0, '0', '-1', int(now) }
end
if ds.unknown == 'refuse' and not t.ver then return { 'unknown', 0, '0', '-1', int(now) } end

local depth, lvl = nrule(ds, t, 'p:depth'), level(T)
local expired, oldest = {}, nil
if lvl >= depth then
  -- Look for what need not stay: jobs at the head that waited too long, else (drop-oldest) the first never started.
  local drop = rule(ds, t, 'p:on_full') == 'drop-oldest'
  for i, other in ipairs(call('LRANGE', k_wait(T), 0, 63)) do
    local b = call('HGET', k_jobs(T), other)
    local j = state(T, other)
    if b and not (j and j.att > 0) then
      local h = header(b)
      if overdue(ds, t, h, now) then
        expired[#expired + 1] = { other, j or fresh(h.since) }
        if lvl - #expired < depth then break end
      elseif drop and not oldest then
        oldest = { other, j or fresh(h.since) }
      end
    end
  end
  if lvl - #expired >= depth and not (oldest and lvl - #expired == depth) then
    local retry = num(t, 'until') > now and math.min(num(t, 'until') - now, 60000000)
      or math.max(likely(t.tl, num(t, 'out'), now, ds.grace) - now, 0)
    local status = rule(ds, t, 'p:on_full') == 'block' and 'block' or 'full'
    return { status, 0, '0', int(math.max(retry, 1000)), int(now) }
  end
end

local since = math.max(ARGV[5] ~= '0' and tonumber(ARGV[5]) or now + ARGV[4], now)
call('HSET', k_jobs(T), id, int(since) .. ' ' .. ARGV[7])
for _, e in ipairs(expired) do
  call('LREM', k_wait(T), 1, e[1])
  finished(ds, t, e[1], e[2], 'expired', '', now)
end
if lvl - #expired >= depth then
  call('LREM', k_wait(T), 1, oldest[1])
  finished(ds, t, oldest[1], oldest[2], 'dropped', '', now)
end
local position, start
if since > now then
  call('ZADD', k_later(T), int(since), id)
  position, start = 0, expected(1, since)
else
  position = call('RPUSH', k_wait(T), id)
  start = expected(position, now)
end
call('HINCRBY', t.key, 'accepted', 1)
-- Behind other waiting jobs it changes nothing about when the head may leave.
if position ~= 1 and since <= now and t.busy then
  save(t)
elseif settle(ds, t, now) then
  wake()
end
save(ds)
return { 'accepted', position, int(start), '0', int(now) }
