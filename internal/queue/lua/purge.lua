-- purge: cancel what waits in a tenant's bucket, newest first, a batch a call.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] tenant
--
-- Returns how many jobs ended; call again until it is 0
-- Or what was never seen, see unseen; then nothing changes
--
-- Cost: O(BATCH).

-- include job

allow_oom()
local now, name = clock(), ARGV[2]
local what = unseen(name)
if what then return what end
local ds = downstream(now)
local t = tenant(ds, name, now)
local n = 0
local function out(id)
  local j = state(name, id)
  -- In any other state it is not here: the books were wrong.
  if not j or j.state == 'w' or j.state == 'z' then
    finished(ds, t, id, j or fresh(0), 'cancelled', '', now)
  elseif j.state == '?' then
    set_apart(ds, t, id, j, now)
  end
  n = n + 1
end
while n < BATCH do
  local id = call('RPOP', k_wait(name)) or call('ZPOPMAX', k_back(name))[1]
  if not id then break end
  out(id)
end
if n < BATCH then
  for _, id in ipairs(call('ZREVRANGE', k_later(name), 0, BATCH - n - 1)) do
    call('ZREM', k_later(name), id)
    out(id)
  end
end
settle(ds, t, now)
save(ds)
return n
