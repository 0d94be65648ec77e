-- cancel: end a job that has not ended. Safe to repeat.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] tenant  [3] id
--
-- Returns the state that the job is in now:
--   cancelled    it will not start again
--   running      its worker was told; unless it succeeds it ends cancelled without another start
--   another end  the call came too late
--   ""           nothing is known of the job
--
-- Cost: O(waiting) for a waiting job.

-- include job

allow_oom()
local now, name, id = clock(), ARGV[2], ARGV[3]
local ds = downstream(now)
if call('HEXISTS', k_jobs(name), id) == 0 then
  local ended = end_of(name, call('HGET', k_tenant(name), 'pages'), id, now)
  return ended and ended.how or ''
end
local j = state(name, id)
if j and (j.state == 'x' or j.state == '?') then return 'dead' end
local t = tenant(ds, name, now)
if j and (j.state == 'r' or j.state == 'c') then
  j.state = 'c'
  store(name, id, j)
  call('PUBLISH', SIGNAL, 'c ' .. name .. ' ' .. id)
  return 'running'
end
if j and j.state == 'o' then
  left(ds, t, id, j)
elseif call('ZREM', k_later(name), id) + call('ZREM', k_back(name), id) == 0 then
  call('LREM', k_wait(name), 1, id)
end
finished(ds, t, id, j or fresh(0), 'cancelled', '', now)
if settle(ds, t, now) or ds.blocked == '1' then wake() end
put(ds, 'blocked', '0')
save(ds)
return 'cancelled'
