-- compare: do the books agree? It looks at sizes and counts, of some tenants or of a downstream.
-- Every script leaves them in agreement, so a difference means that a write was lost or made by
-- hand. Safe to repeat.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] 1 = mend, 0 = only look
-- ARGV[3] 1 = of tenants: mend.lua has looked at each of their jobs, so where a count differs the
--         count is wrong; of the downstream: count the jobs of its pools even if their sum is right
-- ARGV[4…] tenants, at most BATCH; none = the downstream
--
-- Returns kind, tenant, what, …, where kind is one of
--   jobs    the tenant's jobs are not where they should be: mend.lua finds which
--   count   a count of jobs in flight differed from the books; of the downstream, tenant is ''
--   places  a pool's count of running jobs differed; what is the pool
--   filed   the tenant could send something, and was not filed for it, or much too late
--   index   the tenant was not indexed as what it is, busy or idle
--   malformed  something that names no job was among those in flight; what says where
--   parked  the tenant is parked, see tenant.lua; what is the field. Only who knows what it should be
--           can set it right; but counts of jobs in flight are counted anew
--
-- Cost: O(tenants + jobs in flight) while the latter are at most TALLY; a tenant that differs costs
-- about as much as an enqueue.

-- include tenant

local TALLY = 1000       -- members of a book of jobs in flight that are counted; of a larger book only the size is known
local POOL_TALLY = 500   -- running jobs whose pools are counted
local LATE = 1000000     -- µs by which a tenant may be filed late: its turn moves a little when a slot passes

local mends, sure = ARGV[2] == '1', ARGV[3] == '1'
local now = clock()
local ds = downstream(now)
local found, woken = {}, false
if mends then allow_oom() end

local function find(kind, name, what)
  for _, word in ipairs({ kind, name, what }) do found[#found + 1] = word end
end

-- tally counts the members of a book by tenant; nil if there are too many.
local function tally(book)
  if call('ZCARD', book) > TALLY then return nil end
  local of = {}
  for _, member in ipairs(call('ZRANGE', book, 0, -1)) do
    local name = string.match(member, '^(%S+) %S+$')
    if name then of[name] = (of[name] or 0) + 1 end
  end
  return of
end

-- malformed finds members of a book that name no job.
local function malformed(book, what)
  if call('ZCARD', book) > TALLY then return end
  for _, member in ipairs(call('ZRANGE', book, 0, -1)) do
    if not string.match(member, '^%S+ %S+$') then
      find('malformed', '', what)
      if mends then call('ZREM', book, member) end
    end
  end
end

-- right corrects a count of h that differs from the books.
local function right(h, name, field, want)
  local illegible = h.illegible and h.illegible[field]
  if num(h, field) == want and not illegible then return false end
  find('count', name, field .. ' ' .. int(num(h, field)) .. ', ' .. int(want) .. ' there')
  if illegible then h.illegible[field] = nil end
  put(h, field, want)
  return true
end

local outs, runs
local function tenant_books(name)
  local t = tenant(ds, name, now)
  if t.parked then find('parked', name, t.parked) end
  local bucketed, back, later = call('LLEN', k_wait(name)), call('ZCARD', k_back(name)), call('ZCARD', k_later(name))
  local out, dead = call('ZCARD', k_outs(name)), call('ZCARD', k_dead(name))
  local jobs, lines = call('HLEN', k_jobs(name)), call('HLEN', k_state(name))
  local rest = bucketed + back + later + out + dead
  local run = runs and (runs[name] or 0) or sure and math.max(0, jobs - rest) or num(t, 'run')
  if not sure then
    local least = back + out + run + dead -- each of these has a state, and so do some of those that come later
    local unwatched = outs and (outs[name] or 0) ~= out or not outs and out > 0 and call('ZCARD', K_OUT) ~= num(ds, 'out')
      or not runs and run > 0 and call('ZCARD', K_RUN) ~= num(ds, 'run')
    if jobs ~= rest + run or lines < least or lines > least + later or unwatched then return find('jobs', name, '') end
  end

  local wrong = right(t, name, 'out', out)
  wrong = right(t, name, 'run', run) or wrong
  local at, waits = leaves(ds, t, now)
  if at and at < FOREVER and not call('ZSCORE', K_READY, name) then
    local filed = tonumber(call('ZSCORE', K_DUE, name) or FOREVER)
    if filed > at + LATE then
      find('filed', name, '')
      wrong = true
    end
  end
  local score = call('ZSCORE', K_TENANTS, name)
  -- miniredis says 9e+15, which tonumber cannot read there
  local is_busy, indexed = waits or busy(t) > 0, score and (tonumber(score) or FOREVER) >= FOREVER
  if is_busy and not (t.busy and indexed and call('PTTL', t.key) < 0) or not is_busy and (t.busy or indexed) then
    find('index', name, '')
    wrong = true
    if mends then
      if is_busy then t.busy = nil else call('ZADD', K_TENANTS, int(now), name) end
    end
  end
  if wrong and mends then
    heal(ds, t, now)
    woken = settle(ds, t, now) or woken
  end
end

local function pools()
  local size, counted, running, sum = call('ZCARD', K_RUN), {}, {}, 0
  local flat = call('HGETALL', K_POOLS)
  for i = 1, #flat, 2 do
    local pool = string.match(flat[i], '^(.*):n$')
    if pool then
      counted[pool] = tonumber(flat[i + 1]) or 0
      sum = sum + counted[pool]
      running[pool] = 0
    end
  end
  if sum == size and not sure or size > POOL_TALLY then return end
  for _, member in ipairs(call('ZRANGE', K_RUN, 0, -1)) do
    local name, id = string.match(member, '^(%S+) (%S+)$')
    local line = name and call('HGET', k_state(name), id)
    local pool = line and string.match(line, '^[rc] %d+ %d+ %d+ %d+ ([^. ]*)') -- what cannot be read belongs to nobody
    if pool then running[pool] = (running[pool] or 0) + 1 end
  end
  for pool, n in pairs(running) do
    if n ~= (counted[pool] or 0) then
      find('places', '', pool)
      woken = true
      if mends then
        if n > 0 then call('HSET', K_POOLS, pool .. ':n', int(n)) else call('HDEL', K_POOLS, pool .. ':n', pool .. ':x') end
      end
    end
  end
end

if #ARGV > 3 then
  outs, runs = tally(K_OUT), tally(K_RUN)
  for i = 4, #ARGV do tenant_books(ARGV[i]) end
else
  malformed(K_OUT, 'out')
  malformed(K_RUN, 'running')
  woken = right(ds, '', 'out', call('ZCARD', K_OUT))
  woken = right(ds, '', 'run', call('ZCARD', K_RUN)) or woken
  pools()
end
if mends then
  save(ds)
  if woken then wake() end
end
return found
