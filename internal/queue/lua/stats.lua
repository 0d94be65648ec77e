-- stats: the current state of some tenants. Changes nothing.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2…] tenants, at most BATCH
--
-- Returns {now, then for each tenant {name, waiting, later, dead, since of its head (µs, 0 = none),
-- when the next job to leave its bucket starts (µs, 0 = cannot be said), why that cannot be said
-- (expect.lua), {its hash, field, value …}, why it is parked (tenant.lua), or ""}}; a tenant that
-- was never seen is left out
--
-- Cost: O(tenants asked for).

-- include job expect

local now = clock()
local ds = survey(now)
local reply = { int(now) }
for i = 2, #ARGV do
  local name = ARGV[i]
  if not unseen(name) then
    local hash = call('HGETALL', k_tenant(name))
    local t = tenant(ds, name, now)
    local since = 0
    local first = call('ZRANGE', k_back(name), 0, 0)[1] or call('LINDEX', k_wait(name), 0)
    if first then
      local body = call('HGET', k_jobs(name), first)
      since = body and read_header(body).since or 0
    end
    local start, note = expected(ds, t, 1, now)
    reply[#reply + 1] = { name, bucket(name), call('ZCARD', k_later(name)), call('ZCARD', k_dead(name)), int(since), int(start), note, hash, t.parked or '' }
  end
end
return reply
