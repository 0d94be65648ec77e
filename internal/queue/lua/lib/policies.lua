-- policies: how the policy of a tenant, or of the downstream, is written. It applies at once, to
-- the backlog too, since every script reads the policy anew.

-- include tenant

-- write_fields writes ARGV[from] … ARGV[to], field, value …, to a hash. An empty value unsets its
-- field; with `whole`, so does not naming it.
local function write_fields(key, from, to, now, whole)
  local unset = {}
  if whole then
    for _, field in ipairs(key == K_DS and { downstream_policy() } or { tenant_policy() }) do unset[field] = true end
  end
  local set = { 'ver', int(math.max(now, tonumber(call('HGET', key, 'ver')) or 0)) } -- when it was set last; a tenant that has it was set
  for i = from, to, 2 do
    unset[ARGV[i]] = ARGV[i + 1] == '' or nil
    if ARGV[i + 1] ~= '' then
      set[#set + 1] = ARGV[i]
      set[#set + 1] = ARGV[i + 1]
    end
  end
  call('HSET', key, unpack(set))
  local gone = {}
  for field in pairs(unset) do gone[#gone + 1] = field end
  if gone[1] then call('HDEL', key, unpack(gone)) end
end

local function write_downstream(from, to, now, whole)
  local logged = call('HGET', K_DS, 'log')
  write_fields(K_DS, from, to, now, whole)
  local ds = survey(now)
  save(ds)
  if ds.log and not logged then
    call('PERSIST', K_LOG)
    log(ds, 'o')
  elseif logged and not ds.log then
    call('PEXPIRE', K_LOG, 86400000) -- nobody trims it any more
  end
  call('HSET', K_DS, 'refile', BEFORE_ALL) -- a default may have changed
end

local function write_tenant(ds, name, from, to, now, whole)
  local fresh = call('EXISTS', k_tenant(name)) == 0
  write_fields(k_tenant(name), from, to, now, whole)
  call('PERSIST', k_tenant(name))
  call('ZADD', K_TENANTS, 'NX', int(now), name)
  settle(ds, tenant(ds, name, now, fresh), now)
end

-- clear_tenant leaves a tenant to the downstream's defaults, as if it had never been set. A pause
-- stays.
local function clear_tenant(ds, name, now)
  if call('EXISTS', k_tenant(name)) == 0 then return end -- it was removed
  call('HDEL', k_tenant(name), tenant_policy())
  local t = tenant(ds, name, now)
  if num(t, 'until') <= now then
    call('HDEL', k_tenant(name), 'ver')
    t.ver = nil
  end
  settle(ds, t, now)
end
