-- pick: which job leaves next. Used by release, and by finish when a worker asks for more work.

-- include apart pools

-- What a call spends at most, in commands, on jobs that are due again or have expired, so that the
-- tenants which have many of them do not keep others from their turn.
local chores = 350

-- load returns a tenant, which it reads once a script, with its deadlines healed.
local function load(ds, cache, name, now)
  local t = cache[name]
  if not t then
    t = tenant(ds, name, now)
    heal(ds, t, now)
    cache[name] = t
  end
  return t
end

-- ripen moves delayed and retried jobs that are due into the bucket: a retry to the front, a first
-- start to the back. It does so once a script, whose clock stands still, so nothing more falls due.
-- t.ripened says that all of them were moved.
local function ripen(ds, t, now)
  if t.ripened ~= nil then return end
  local name = t.name
  local most = chores > 0 and BATCH or 1
  local ids = call('ZRANGEBYSCORE', k_later(name), '-inf', int(now), 'LIMIT', 0, most)
  t.ripened = #ids < most
  for _, id in ipairs(ids) do
    if chores <= 0 then
      t.ripened = false
      return
    end
    chores = chores - 4
    call('ZREM', k_later(name), id)
    local j = state(name, id)
    if not j then
      call('RPUSH', k_wait(name), id)
    elseif j.state == '?' then
      set_apart(ds, t, id, j, now)
    elseif j.state == 'z' then -- else it is elsewhere, perhaps running: the books were wrong
      to_front(name, id, j)
    end
  end
end

-- promote moves tenants whose time has come into the fair order, with all their jobs that are due
-- again. Returns whether there may be more to do. A tenant that has too many of these for one call
-- goes on behind all others that are due by now, and is not in the fair order before it is through.
local function promote(ds, cache, now)
  local names = call('ZRANGEBYSCORE', K_DUE, '-inf', int(now + ds.lead), 'LIMIT', 0, BATCH)
  local more = #names == BATCH
  for _, name in ipairs(names) do
    if enough(400) then return true end
    local t = load(ds, cache, name, now)
    ripen(ds, t, now)
    if t.ripened then
      call('ZREM', K_DUE, name)
      -- A tenant that was idle starts at the present virtual time: idleness earns no share.
      local turn = math.max(num(ds, 'vt'), num(t, 'vt'))
      if t.behind == '1' then -- behind all others: none is more than the share of a job ahead
        turn = math.max(turn, num(ds, 'vt') + 1000001)
        put(t, 'behind', '0')
        save(t)
      end
      call('ZADD', K_READY, int(turn), name)
    else
      call('ZADD', K_DUE, int(now + ds.lead), name)
      more = true
    end
  end
  return more
end

-- put_off leaves a tenant that makes much work to another call, behind those whose jobs can leave.
local function put_off(ds, t)
  ds.unfinished = true
  put(t, 'behind', '1')
end

-- head pops the first job of a bucket that may start. Expired ones end here and use no slot;
-- suspects that must wait are set aside.
local function head(ds, t, now)
  local name = t.name
  for i = 1, BATCH do
    if i > 1 then
      chores = chores - 10
      if chores <= 0 then break end
    end
    local id = call('ZPOPMIN', k_back(name))[1] or call('LPOP', k_wait(name))
    if not id then return nil end
    local body = call('HGET', k_jobs(name), id)
    local header = read_header(body)
    local j = state(name, id) or fresh(header.since)
    local later = header.since > now and call('ZSCORE', k_later(name), id) -- also in the future if the clock stepped back
    if body and j.state == 'w' and not later then -- else it is not here: the books were wrong
      if j.attempts == 0 and overdue(ds, t, header, now) then
        finished(ds, t, id, j, 'expired', '', now)
      elseif j.suspect > 0 and not has_room(ds, j, now) then
        set_aside(ds, t, id, j, now)
      else
        return id, j, body
      end
    elseif body and j.state == '?' then
      set_apart(ds, t, id, j, now)
    end
  end
  put_off(ds, t)
end

-- first_out takes the oldest job of a tenant that is out and may still start. Expired ones end
-- here. It returns false where another call must go on with these.
local function first_out(ds, t, now)
  for i = 1, BATCH do
    if i > 1 then
      chores = chores - 12
      if chores <= 0 then break end
    end
    local id, j, body = oldest_out(t.name)
    if not id then return nil end
    left(ds, t, id, j)
    if j.attempts > 0 or not overdue(ds, t, read_header(body), now) then return id, j, body end
    finished(ds, t, id, j, 'expired', '', now)
  end
  put_off(ds, t)
  return false
end

-- lost_one tells whether the oldest job of a tenant that is out has lost its ticket.
local function lost_one(t, now)
  local id = call('ZRANGE', k_outs(t.name), 0, 0)[1]
  local deadline = id and call('ZSCORE', K_OUT, t.name .. ' ' .. id)
  return deadline and tonumber(deadline) <= now
end

local function ripe(ds, t, now)
  return not t.parked and num(t, 'until') <= now and busy(t) < rule_number(ds, t, 'p:cap')
    and likely(t.timeline, num(t, 'out'), now, ds.grace) <= now + ds.lead
end

-- pick takes the next job out of its bucket, in fair order. Returns tenant, id, job, body; or nil.
-- The job is then in no book: the caller must enter it as out or running before the script ends,
-- and call picked for the tenant, which stays in the fair order until then. With to_run the job
-- will run at once, so one whose ticket is out goes before the bucket's head; that ticket will
-- start another job, or find none.
local function pick(ds, cache, now, to_run)
  if num(ds, 'until') > now then return nil end
  if ds.timeline and likely(ds.timeline, num(ds, 'out'), now, ds.grace) > now + ds.lead then return nil end
  for _ = 1, BATCH do
    if enough() then
      ds.unfinished = true
      return nil
    end
    local name = call('ZRANGE', K_READY, 0, 0)[1]
    if not name then return nil end
    local t = load(ds, cache, name, now)
    ripen(ds, t, now)
    local id, j, body
    if not t.ripened or ds.losing and lost_one(t, now) then
      -- Nothing of it leaves before all that is due, or was lost, has come back, in order: another
      -- call goes on with it.
      put_off(ds, t)
    elseif ripe(ds, t, now) then
      if to_run and num(t, 'out') > 0 then
        id, j, body = first_out(ds, t, now)
        if id then return t, id, j, body end -- its share was charged when its ticket left
      end
      if id == nil then id, j, body = head(ds, t, now) end
    end
    if id then
      j.releases = j.releases + 1
      local start = math.max(num(ds, 'vt'), num(t, 'vt'))
      put(ds, 'vt', start)
      put(t, 'vt', start + math.floor(1000000 / rule_number(ds, t, 'p:weight')))
      call('ZADD', K_READY, int(num(t, 'vt')), name)
      return t, id, j, body
    end
    call('ZREM', K_READY, name)
    settle(ds, t, now)
  end
end

-- picked files a tenant again, after the caller has entered its jobs. If it may send another at
-- once it stays in the fair order, and needs no other place in the books. Returns what settle does.
local function picked(ds, t, now)
  if ripe(ds, t, now) and call('EXISTS', k_wait(t.name), k_back(t.name)) > 0 then
    save(t)
    return false
  end
  call('ZREM', K_READY, t.name)
  return settle(ds, t, now)
end
