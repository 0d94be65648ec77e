-- enqueue: offer jobs to a tenant's bucket, each on its own. Safe to repeat: a digest holds a nonce of the call.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] tenant
-- ARGV[3…] of each job, at most 200:
--   id
--   delay µs, 0 = none
--   not before, µs since the epoch, 0 = at once
--   digest of the body, "hash.nonce"; hash is empty where the id was made up by the client
--   body without its first field, see job.lua
--
-- Returns for each job {status, position, start, retry, then what each admission rule says (buckets.LuaFunctions), if they were
-- asked}; µs; position counts from 1, 0 = does not wait; start 0 = not known (paused without an end); retry -1 = never
--   accepted   it waits, or waited before this call was repeated
--   duplicate  the same id with the same body is known
--   conflict   the id is known with another body
--   full       no room (on_full reject); block: no room, and the tenant's policy is to wait for it
--   limited    an admission rule refuses; nothing is taken from any
--   unknown    the downstream serves only tenants that were set
-- A refusal writes nothing. The first write may need memory, so with maxmemory reached the script fails clean.
--
-- Cost: O(1) a job; with a full bucket at most 64 waiting jobs are looked at.

local ds = downstream(now)
local t = tenant(ds, T, now)

local last = #ARGV
local rules = admission(ds, T)

-- leaves is when a ticket for the nth job from the head may get its slot.
local function leaves(nth)
  local at = likely(t.tl, num(t, 'out') + nth - 1, now, ds.grace)
  return ds.tl and math.max(at, likely(ds.tl, num(ds, 'out') + nth - 1, now, ds.grace)) or at
end

-- expected is when the job that leaves as number `position`, and not before `due`, starts.
local function expected(position, due)
  if num(t, 'until') >= FOREVER then return 0 end
  return math.max(leaves(position), due, num(t, 'until'))
end

local function known(as, digest)
  if as == digest then return 'accepted' end
  local a, b = string.match(as, '^([^.]*)%.'), string.match(digest, '^([^.]*)%.')
  return a == b and a ~= '' and 'duplicate' or 'conflict'
end

-- make_room ends what need not stay in a full bucket: jobs that waited too long, else (drop-oldest) the first that was
-- never started. It only looks, and returns what to end as {id, job, how}; nil if there is no room to be made.
local function make_room(lvl, depth)
  local drop, ends, oldest = rule(ds, t, 'p:on_full') == 'drop-oldest', {}, nil
  for _, other in ipairs(call('LRANGE', k_wait(T), 0, 63)) do
    local body, j = call('HGET', k_jobs(T), other), state(T, other)
    if body and not (j and j.att > 0) then
      local h = header(body)
      if overdue(ds, t, h, now) then
        ends[#ends + 1] = { other, j or fresh(h.since), 'expired' }
        if lvl - #ends < depth then return ends end
      elseif drop and not oldest then
        oldest = { other, j or fresh(h.since), 'dropped' }
      end
    end
  end
  if oldest and lvl - #ends == depth then
    ends[#ends + 1] = oldest
    return ends
  end
end

local changed = false

local function offer(id, delay, at, digest, body)
  local stands = call('HGET', k_jobs(T), id)
  if stands then
    local h = header(stands)
    local place = call('LPOS', k_wait(T), id, 'MAXLEN', 10000)
    local position = place and place + 1 or 0
    return { known(h.digest, digest), position, int(expected(math.max(position, 1), h.since)), '-1' }
  end
  local ended = call('GET', k_end(T, id))
  if ended then
    local as = string.match(ended, '^%S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ %S+ (%S+)')
    return { known(as, digest), 0, '0', '-1' }
  end
  if ds.unknown == 'refuse' and not t.ver then return { 'unknown', 0, '0', '-1' } end

  local depth, lvl, ends = nrule(ds, t, 'p:depth'), level(T), {}
  if lvl >= depth then
    ends = make_room(lvl, depth)
    if not ends then
      local retry = num(t, 'until') > now and math.min(num(t, 'until') - now, 60000000)
        or math.max(leaves(1) - now, 0)
      return { rule(ds, t, 'p:on_full') == 'block' and 'block' or 'full', 0, '0', int(math.max(retry, 1000)) }
    end
  end

  local agreed, says = consult(ds, rules, now, false)
  if not agreed then return { 'limited', 0, '0', '0', says } end

  local since = math.max(at ~= '0' and tonumber(at) or now + delay, now)
  call('HSET', k_jobs(T), id, int(since + (nth - 3) / FIELDS) .. ' ' .. body)
  for _, e in ipairs(ends) do
    call('LREM', k_wait(T), 1, e[1])
    finished(ds, t, e[1], e[2], e[3], '', now)
  end
  agreed, says = consult(ds, rules, now, true)
  count(ds, t, 'accepted')
  changed = true
  if since > now then
    call('ZADD', k_later(T), int(since), id)
    return { 'accepted', 0, int(expected(1, since)), '0', says }
  end
  local position = call('RPUSH', k_wait(T), id)
  return { 'accepted', position, int(expected(position, now)), '0', says }
end

while nth <= last do
  reply[#reply + 1] = offer(ARGV[nth], ARGV[nth + 1], ARGV[nth + 2], ARGV[nth + 3], ARGV[nth + 4])
  nth = nth + FIELDS
end
if changed then
  if settle(ds, t, now) then wake() end
  save(ds)
else
  call('DEL', P .. '-') -- removes nothing; a server that has become a replica fails here, rather than answer from what it remembers
end
return reply
