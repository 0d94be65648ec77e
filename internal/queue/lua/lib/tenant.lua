-- tenant: the hashes of the downstream and its tenants, and when a tenant's head may leave.

-- include fields hash timeline

local IDLE_TTL = 86400000 -- ms that the hash of an idle tenant without a policy of its own stays at least
local FIRST = 10000000 -- µs that a timeline of which nothing is known, and all may be forgotten, waits at most after a restart
local BEFORE_ALL = '-' -- no tenant is called so; see refile
local PARKED = 1000000 -- µs after which a parked tenant is looked at again
local DEAD_AGE = 90 * 86400 * 1000000 -- µs that a tenant keeps a dead job

-- Fields that are read at each call, and no others: a table is made anew at each call, and costs
-- what it holds.
local DS_FIELDS = { 'schema', 'rid', 'ended', 'epoch', 'clock', 'refile', 'blocked', 'started', 'done', 'back', 'healed', 'beyond', 'spared_from', 'spared_until', 'places', 'alive', 'far', 'reach', 'calm', 'ahead', 'ends', 'sent', 'pace',
  'slot', 'next', 'rem', 'r', 'seen', 'out', 'run', 'vt', 'until', downstream_policy() }
local T_FIELDS = { 'ver', 'busy', 'started', 'done', 'row', 'back', 'healing', 'behind', 'took', 'own_wait', 'by_time', 'pages', 'known',
  'slot', 'next', 'rem', 'r', 'seen', 'out', 'run', 'vt', 'until', tenant_policy() }

-- notice_step notices that the clock stepped back since the last release, and keeps the sum of such
-- steps. It brings deadlines of the downstream that much nearer; heal does so with those of
-- tenants.
local function notice_step(ds, now)
  local back = num(ds, 'clock') - now
  if back <= 0 then return end
  put(ds, 'back', num(ds, 'back') + back)
  put(ds, 'clock', now)
  if ds.alive then put(ds, 'alive', math.max(0, num(ds, 'alive') - back)) end
  if num(ds, 'until') > now and num(ds, 'until') < FOREVER then put(ds, 'until', num(ds, 'until') - back) end
end

-- notice_restart compares this Redis' run id with the one that the downstream saw last. epoch is
-- since when nothing was forgotten: if the id changed, since now, unless that Redis ended in order
-- (EndInOrder in ending.go); if none was seen before, since this Redis started. Where INFO is
-- missing or not allowed, restarts are not noticed. Returns whether something may have been
-- forgotten since it was called last, and whether no id was seen before.
local function notice_restart(ds, now)
  local ok, info = pcall(call, 'INFO', 'server')
  local at = ok and type(info) == 'string' and string.find(info, 'run_id:', 1, true)
  local run_id = at and string.sub(info, at + 7, at + 46) or 'unknown'
  local before, lost = ds.rid, false
  if before ~= run_id then
    lost = not before or ds.ended ~= before
    put(ds, 'rid', run_id)
  end
  if ds.ended and ds.ended ~= '' then put(ds, 'ended', '') end
  if lost then
    -- By how much a slot may lie ahead whose grant was forgotten: if workers were nearer then, or
    -- further away, is known as long as the last promise of a release that nothing changes.
    local ahead = before and now <= num(ds, 'calm') and ds.hold or ds.longest
    put(ds, 'ahead', math.min(ds.longest, math.max(ahead, num(ds, 'epoch') + num(ds, 'ahead') - now)))
    local up = at and string.match(info, 'uptime_in_seconds:(%d+)')
    put(ds, 'epoch', before and now or up and now - up * 1000000 or 0)
    ds.restarted = before
  end
  if num(ds, 'epoch') > now then put(ds, 'epoch', now) end -- the clock stepped back: without this every slot would wait for it
  ds.epoch, ds.ahead = num(ds, 'epoch'), tonumber(ds.ahead) or 2 * ds.least + ds.tau -- none is from a version without a reach
  return lost, not before
end

-- reaches has things happen so many µs earlier than the policy's lead says, see release.
local function reaches(ds, reach)
  ds.lead = ds.least + reach
  ds.hold = ds.least + ds.lead + ds.tau -- longest that a worker waits for a slot that it was granted
  -- How far ahead a slot must lie so that the furthest worker hears of it in time: the answer's way,
  -- less what a start is late there anyway, see workers/redisclock.go.
  ds.need = math.min(ds.hold, math.max(0, math.floor((2 * num(ds, 'far') - 3 * ds.tau) / 4)))
end

-- survey reads the downstream even if it is parked, for scripts that show it or set it right. Its
-- tenants are then parked too.
local function survey(now)
  local ds = get(K_DS, DS_FIELDS)
  readable(ds.schema)
  if not ds.schema then put(ds, 'schema', SCHEMA) end
  check_words(ds)
  ds.tau, ds.least = tonumber(ds.tau or fallback('tau')), tonumber(ds.lead or fallback('lead'))
  ds.most = math.max(ds.least, tonumber(ds.max_lead or fallback('max_lead')))
  ds.longest = ds.least + ds.most + ds.tau -- that ds.hold may ever be
  ds.lease, ds.crashes = tonumber(ds.lease or fallback('lease')), tonumber(ds.crashes or fallback('crashes'))
  ds.log = string.match(ds.log or '', '^[1-9]%d*$')
  ds.grace = math.floor(ds.tau / 2)
  reaches(ds, math.min(num(ds, 'reach'), ds.most - ds.least))
  notice_step(ds, now)
  local restarted, fresh = notice_restart(ds, now)
  if ds.rate and ds.rate ~= '' then
    -- A rate that came only after the restart may itself have been forgotten, with grants.
    ds.timeline = timeline(ds, ds.rate, now, ds.epoch, ds.ahead, ds.grace, (fresh or not restarted) and FIRST)
    if ds.timeline.doubted then note(ds, ds.timeline) end
  end
  return ds
end

-- downstream reads the downstream. If it is parked that ends the call, before it changes anything.
local function downstream(now)
  local ds = survey(now)
  if ds.parked then unreadable(ds.parked) end
  return ds
end

-- tenant reads a tenant. fresh says whether its hash is missing; nil = look.
--
-- If it is parked (see illegible), nothing of it leaves, expires, is dropped or becomes dead, and
-- nothing is accepted, until that field is set right; what was under way ends as ever. A colon
-- before the field says that it is the downstream's.
local function tenant(ds, name, now, fresh)
  local t = get(k_tenant(name), T_FIELDS)
  t.name = name
  check_words(t)
  t.parked = t.parked or ds.parked and ':' .. ds.parked
  if not t.slot and num(t, 'seen') < ds.epoch and fresh == nil then fresh = call('EXISTS', t.key) == 0 end
  local rate = t['p:rate'] or ds['p:rate'] or fallback('p:rate')
  t.timeline = timeline(t, rate, now, ds.epoch, ds.ahead, ds.grace, fresh and FIRST)
  return t
end

-- unseen returns what was never seen, 'downstream' or 'tenant', or nil; for the name '' it looks at
-- the downstream alone. Seen is what has a policy or was offered a job, and was not forgotten. A
-- script answers with it instead of changing anything.
local function unseen(name)
  if call('EXISTS', K_DS) == 0 and call('EXISTS', K_TENANTS) == 0 then return 'downstream' end
  if name ~= '' and not (call('ZSCORE', K_TENANTS, name) and call('EXISTS', k_tenant(name)) == 1) then return 'tenant' end
end

-- heal brings nearer what a tenant waits for, after the clock stepped back: the end of a pause, and
-- backoffs. A delayed job stays due at its instant. Scripts that set or meet such deadlines call it
-- right after tenant().
--
-- It brings some backoffs nearer in a call, the earliest first, and t.healing is "back score place"
-- until all are: those before that score, and as many at it, were looked at, and lie by the clock
-- that has stepped back so much in all. The others still lie by the clock of t.back.
local function heal(ds, t, now)
  if num(ds, 'back') == num(t, 'back') or t.parked then return end
  local target, from, place = string.match(t.healing or '', '^(%d+) (%S+) (%d+)$')
  if not target then
    target, from, place = num(ds, 'back'), '0', 0
    if num(t, 'until') > now and num(t, 'until') < FOREVER then put(t, 'until', num(t, 'until') - (target - num(t, 'back'))) end
  end
  local step, later = target - num(t, 'back'), nil
  if not enough(600) then later = call('ZRANGEBYSCORE', k_later(t.name), from, '+inf', 'WITHSCORES', 'LIMIT', place, BATCH) end
  for i = 1, later and #later or 0, 2 do
    if from ~= later[i + 1] then from, place = later[i + 1], 0 end
    if call('HEXISTS', k_state(t.name), later[i]) == 1 then
      call('ZADD', k_later(t.name), int(from - step), later[i])
    else
      place = place + 1
    end
  end
  if later and #later < 2 * BATCH then
    put(t, 'back', tonumber(target))
    if t.healing then put(t, 'healing', '') end
  else
    put(t, 'healing', int(target) .. ' ' .. from .. ' ' .. int(place))
  end
  if num(ds, 'back') ~= num(t, 'back') then ds.unfinished = true end
end

-- back_off has a job wait until `at`, which is on the present clock, among those that heal has not
-- brought nearer yet.
local function back_off(ds, t, id, at)
  local target, from = string.match(t.healing or '', '^(%d+) (%S+)')
  local unhealed = at + num(ds, 'back') - num(t, 'back')
  if target and unhealed < tonumber(from) then at = at + num(ds, 'back') - target else at = unhealed end
  call('ZADD', k_later(t.name), int(at), id)
end

-- rule reads one field of the policy that applies to a tenant.
local function rule(ds, t, field) return t[field] or ds[field] or fallback(field) end
local function rule_number(ds, t, field) return tonumber(rule(ds, t, field)) end

-- bucket is how many jobs wait for their turn, level how many count against the depth, which
-- includes those that are not due yet.
local function bucket(name) return call('LLEN', k_wait(name)) + call('ZCARD', k_back(name)) end
local function level(name) return bucket(name) + call('ZCARD', k_later(name)) end
local function busy(t) return num(t, 'out') + num(t, 'run') end

-- likely is the slot that the next ticket of a timeline would get, were it released now.
local function likely(timeline, out, now, grace)
  return math.max(earliest(timeline, now, grace), now) + math.floor(out * timeline.step)
end

-- by_time is up to which place of its bucket a tenant's jobs start by time alone, and not when
-- other jobs end. That is ALL of them, unless as many are in flight as may be, or jobs run for so
-- long (`took`, on average) that this many cannot keep the rate. If something left not long ago the
-- rate is kept, and being full for a moment means nothing.
local ALL = 10000000 -- the largest depth
local function by_time(ds, t, now)
  local took, first = tonumber(t.took), ALL
  local step = math.max(t.timeline.step, ds.timeline and ds.timeline.step or 0)
  local left = math.max(t.timeline.slot or 0, ds.timeline and ds.timeline.slot or 0)
  local function bound(cap, taken)
    if not cap or cap <= 0 then return end
    if took and took > cap * step then
      first = math.min(first, math.max(0, cap - taken))
    elseif taken >= cap and not (took and now - left <= 2 * step + took) then
      first = 0
    end
  end
  bound(rule_number(ds, t, 'p:cap'), busy(t))
  bound(tonumber(ds.cap), busy(ds))
  bound(tonumber(ds.places), busy(ds))
  return first
end

-- leaves returns when a tenant's head may leave, nil if nothing can; whether any job of it waits or
-- will; and its next turn. Tickets go out a lead before that instant, so what must not go out early
-- (after a delay or a pause) is filed a lead later.
local function leaves(ds, t, now)
  local name, at = t.name, nil
  local waiting, later = call('EXISTS', k_wait(name), k_back(name)) > 0, call('ZRANGE', k_later(name), 0, 0, 'WITHSCORES')
  local turn = likely(t.timeline, num(t, 'out'), now, ds.grace)
  if busy(t) < rule_number(ds, t, 'p:cap') then -- else the next finish settles again
    if waiting then
      at = turn
    elseif later[2] and num(ds, 'back') == num(t, 'back') then
      at = math.max(later[2] + ds.lead, turn)
    elseif later[2] then -- nobody knows before heal is through
      at = turn
    end
  end
  if num(t, 'until') > now then at = at and math.max(at, num(t, 'until') + ds.lead) end
  local waits = waiting or later[1] ~= nil
  if t.parked then at = waits and now + PARKED or nil end
  return at, waits, turn
end

-- settle files a tenant under the instant at which its head may leave, or takes it out of the books
-- when nothing can. It follows every change of a tenant. Returns whether the scheduler should wake
-- up for it.
local function settle(ds, t, now)
  local name = t.name
  if t.timeline.doubted and not t.parked then note(t, t.timeline) end
  local at, waits, turn = leaves(ds, t, now)
  put(t, 'due', math.floor(turn)) -- this and by_time are what enqueue answers from in its common case
  put(t, 'by_time', t.parked and '0' or int(by_time(ds, t, now)))
  local is_busy = waits or busy(t) > 0
  if is_busy and not t.busy then
    put(t, 'busy', '1')
    call('PERSIST', t.key)
    call('ZADD', K_TENANTS, int(FOREVER), name)
  elseif not is_busy and not t.parked and (t.busy or not t.ver) then
    if t.busy then
      call('HDEL', t.key, 'busy', 'own_wait')
      t.busy, t.dirty.busy, t.own_wait, t.dirty.own_wait = nil, nil, nil, nil
    end
    save(t)
    if not t.ver then
      local dead = call('EXISTS', k_dead(name)) * DEAD_AGE / 1000 -- and as long as it has dead jobs to show
      local known = math.ceil((num(t, 'known') - now) / 1000) -- and as long as ids of its jobs are known
      call('PEXPIRE', t.key, int(math.max(IDLE_TTL + dead, known) + math.ceil(2 * t.timeline.step / 1000)))
    end
    call('ZADD', K_TENANTS, int(now), name)
  end
  save(t)
  if not at or at >= FOREVER then
    call('ZREM', K_DUE, name)
    return false
  end
  local first = call('ZRANGE', K_DUE, 0, 0, 'WITHSCORES')
  call('ZADD', K_DUE, int(at), name)
  return not first[2] or at < tonumber(first[2])
end

local function wake() call('PUBLISH', SIGNAL, 'w') end

-- tell_paused tells workers that hold a slot which has not come that its tenant is paused, or all
-- tenants ('').
local function tell_paused(name) call('PUBLISH', SIGNAL, name == '' and 'p' or 'p ' .. name) end
