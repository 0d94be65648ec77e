-- config: apply a configuration, the downstream's whole policy and those of the tenants that it
-- names, in steps: begin, set …, left …, end. Safe to repeat.
--
-- A configuration is known by the digest of its content; no clock has a say. If it was the last one
-- applied, as a whole, it is not applied again, so that what was set by hand since stays. The one
-- begun last holds: from then on, the steps of any other that is still under way do nothing.
-- Daemons with the same configuration go through the steps together, in the same generation.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] step  [3] digest  [4] generation, as begin returned it
-- ARGV[5…] of set: tenant ("" = the downstream), n, n × (field, value); at most BATCH / 2 of these
-- ARGV[5]  of look: for how many µs back other daemons matter
--
-- begin, set, left and end return {what to do, digest, generation}:
--   1  go on; the digest that begin returns is of the configuration before this one
--   2  stop: it holds already, as a whole
--   0  stop: another one, whose digest this is, was begun since
-- left also returns, from the fourth value on, at most BATCH / 2 tenants that the configuration
-- before named and this one does not: they have the defaults again. None = all are done.
--
-- look returns
--   the digest of the configuration that holds, or is under way, or ""
--   1 = it is only under way
--   the digest of each other one with which a daemon looked within that time …
--
-- Cost: O(items); set of the downstream as in policy.

-- include policies

allow_oom()
local now, step, digest, generation = clock(), ARGV[2], ARGV[3], ARGV[4]
local values = call('HMGET', K_DS, 'config', 'config_next', 'config_gen', 'schema')
readable(values[4])
local whole, begun = values[1], values[2]
local current = tonumber(values[3] or 0) or tonumber(call('ZREVRANGE', K_NAMED, 0, 0, 'WITHSCORES')[2] or 0)

if step == 'look' then
  call('ZREMRANGEBYSCORE', K_CONFIGS, '-inf', int(now - 60000000))
  local reply = { whole or begun or '', whole and 0 or 1 }
  for _, other in ipairs(call('ZRANGEBYSCORE', K_CONFIGS, int(now - ARGV[5]), int(now))) do
    if other ~= digest then reply[#reply + 1] = other end
  end
  call('ZADD', K_CONFIGS, int(now), digest)
  call('PEXPIRE', K_CONFIGS, 60000)
  return reply
end

if whole == digest then return { 2, digest, current } end
if step == 'begin' then
  if begun ~= digest then
    current = current + 1
    call('HSET', K_DS, 'config_next', digest, 'config_gen', int(current))
    call('HDEL', K_DS, 'config')
    return { 1, whole or begun or '', current }
  end
  return { 1, '', current }
end
if begun ~= digest or tonumber(generation) ~= current then return { 0, whole or begun or '', current } end

local reply = { 1, '', current }
if step == 'set' then
  local ds = survey(now)
  save(ds)
  local i = 5
  while i <= #ARGV do
    local name, from, to = ARGV[i], i + 2, i + 1 + 2 * ARGV[i + 1]
    if name == '' then
      write_downstream(from, to, now, true)
      ds = survey(now)
    else
      write_tenant(ds, name, from, to, now, true)
      call('ZADD', K_NAMED, current, name)
    end
    i = to + 1
  end
elseif step == 'left' then
  local ds = survey(now)
  save(ds)
  for _, name in ipairs(call('ZRANGEBYSCORE', K_NAMED, '-inf', '(' .. current, 'LIMIT', 0, BATCH / 2)) do
    clear_tenant(ds, name, now)
    call('ZREM', K_NAMED, name)
    reply[#reply + 1] = name
  end
elseif step == 'end' then
  call('HSET', K_DS, 'config', digest)
  call('HDEL', K_DS, 'config_next')
end
wake()
return reply
