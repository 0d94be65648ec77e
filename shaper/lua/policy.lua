-- policy: set fields of the downstream or of a tenant; the newest version wins. Safe to repeat.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] tenant, "" = the downstream  [3] version, µs since the epoch, 0 = by hand: newer than what stands
-- ARGV[4] 1 = fields that are not named here are unset (a whole policy, from a file)
-- ARGV[5…] field, value …; an empty value unsets the field
--
-- Returns 1 if it applies now, 0 if a newer version stands
--
-- Cost: O(fields). It holds at once, for the backlog too: every script reads the policy anew.

allow_oom()
local now, T = clock(), ARGV[2]
local key = T == '' and K_DS or k_tenant(T)
local stands = tonumber(call('HGET', key, 'ver') or 0)
local version = ARGV[3] ~= '0' and tonumber(ARGV[3]) or math.max(now, stands)
if stands > version then return 0 end
local unset = {}
if ARGV[4] == '1' then
  for _, f in ipairs(POLICY) do unset[f] = true end
  if T == '' then
    for _, f in ipairs({ 'rate', 'cap', 'unknown', 'tau', 'lead', 'lease', 'crashes', 'log', 'admit' }) do unset[f] = true end
  end
end
local logged = call('HGET', K_DS, 'log')
call('HSET', key, 'ver', int(version))
for i = 5, #ARGV, 2 do
  if ARGV[i + 1] == '' then
    unset[ARGV[i]] = true
  else
    unset[ARGV[i]] = nil
    call('HSET', key, ARGV[i], ARGV[i + 1])
  end
end
for f in pairs(unset) do call('HDEL', key, f) end
local ds = downstream(now)
save(ds)
if ds.log and not logged then
  call('PERSIST', K_LOG)
  log(ds, 'o')
elseif logged and not ds.log then
  call('PEXPIRE', K_LOG, 86400000) -- nobody trims it any more
end
if T ~= '' then
  call('PERSIST', key)
  call('ZADD', K_TENANTS, 'NX', int(now), T)
  settle(ds, tenant(ds, T, now), now)
elseif call('EXISTS', K_DUE) == 1 then
  call('ZUNIONSTORE', K_DUE, 1, K_DUE, 'WEIGHTS', 0) -- file every tenant anew: a default may have changed
end
wake()
return 1
