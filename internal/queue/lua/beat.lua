-- beat: a pool of workers says that it lives, how many places it has, and which jobs it runs. Safe
-- to repeat.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] pool  [3] places; 0 = the pool takes no more work  [4] µs until it counts as gone
-- ARGV[5] 1 = only if the pool is known  [6] µs that its round trip to Redis takes, 0 = next to none
-- ARGV[7…] tenant, id, token of each running job, and 1 if its handler has begun; at most BATCH
--
-- Returns for each job one of
--   1  its lease is extended
--   2  the same, and the job is cancelled
--   0  its lease is lost
-- or {-1} alone: the pool is not known, and nothing was changed
--
-- Cost: O(jobs · log running).

-- include job pools

allow_oom()
local now, pool = clock(), ARGV[2]
local values = call('HMGET', K_DS, 'schema', 'lease')
readable(values[1])
local before, trip = unpack(call('HMGET', K_POOLS, pool, pool .. ':d'))
if ARGV[5] == '1' and not before then return { -1 } end
local lease = tonumber(values[2]) or tonumber(fallback('lease'))
local reply = {}
for i = 7, #ARGV, 4 do
  local name, id = ARGV[i], ARGV[i + 1]
  local j = state(name, id)
  local mine = j and (j.state == 'r' or j.state == 'c') and j.token == ARGV[i + 2]
  if mine then call('ZADD', K_RUN, int(math.max(now, j.slot) + lease), name .. ' ' .. id) end
  if mine and j.granted and ARGV[i + 3] == '1' then -- a long job's start is counted while it runs
    local ds, t = get(K_DS, { 'started' }), get(k_tenant(name), { 'started' })
    began(ds, t, j)
    save(ds)
    save(t)
    store(name, id, j)
  end
  reply[#reply + 1] = mine and (j.state == 'c' and 2 or 1) or 0
end
local places, deadline = string.match(before or '', '^(%d+) (%d+)')
if tonumber(deadline or 0) < now then places = 0 end -- it counted as gone
call('HSET', K_POOLS, pool, ARGV[3] .. ' ' .. int(now + ARGV[4]))
if ARGV[6] ~= '0' then call('HSET', K_POOLS, pool .. ':d', ARGV[6]) elseif trip then call('HDEL', K_POOLS, pool .. ':d') end
call('PEXPIRE', K_POOLS, 86400000)
local all, alive, far = live(now)
call('HSET', K_DS, 'places', int(all), 'alive', int(alive), 'far', int(far))
if tonumber(places or 0) < tonumber(ARGV[3]) then wake() end
return reply
