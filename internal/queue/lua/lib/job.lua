-- job: a job's state line, its ways back to the front, and its ends.
--
-- body  (k_jobs)   "since max_wait attempts keep timeout digest\ntype\nheaders\npayload"; µs, ms, n, ms, ms; 0 = the tenant's
-- state (k_state)  "st rel att fg cr tok slot since nx reason[,throttles=N][,granted] err"
--   st     w waiting (has been out before), o ticket out, r running, c running and cancelled, z waiting out a backoff, x dead
--   rel    release number: how many tickets were released for it; tells its last ticket from older ones, see inherit
--   att    starts so far; fg those that are forgiven (throttled, uncharged, handed back, crashed): att - fg
--          count against the maximum
--   granted  the last of them has its slot, and is not known to have begun: called_off takes it back, began counts it
--   cr     crashes    tok  the owner's token    slot  µs of its last start    since  µs, keeps the order of those that came back
--   nx     "tenant/id" that the finishing call was given to run next, so that its replay can answer the same
--   throttles  starts that max_throttles bounds, since it was accepted or requeued: the downstream asked to slow down after them, or
--     they failed without being charged

-- include tenant

local function state(T, id)
  local line = call('HGET', k_state(T), id)
  if not line then return nil end
  local st, rel, att, fg, cr, tok, slot, since, nx, reason, err =
    string.match(line, '^(%a) (%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%d+) (%S+) (%S+) ?(.*)$')
  if not st then return nil end -- nobody of ours wrote that; one such line must not stop the whole downstream
  local j = { st = st, rel = tonumber(rel), att = tonumber(att), fg = tonumber(fg), cr = tonumber(cr), tok = tok,
    slot = tonumber(slot), since = tonumber(since), nx = nx, reason = reason, throttles = 0, err = err }
  local word, more = string.match(reason, '^(.-),(.*)$')
  if word then
    j.reason, j.throttles = word, tonumber(string.match(more, 'throttles=(%d+)') or 0)
    j.granted = string.find(more, 'granted', 1, true) ~= nil
  end
  return j
end

local function fresh(since)
  return { st = 'w', rel = 0, att = 0, fg = 0, cr = 0, tok = '-', slot = 0, since = since, nx = '-', reason = '-',
    throttles = 0, err = '' }
end

local function store(T, id, j)
  local reason = j.reason
  if j.throttles > 0 then reason = reason .. ',throttles=' .. int(j.throttles) end
  if j.granted then reason = reason .. ',granted' end
  call('HSET', k_state(T), id, table.concat({ j.st, int(j.rel), int(j.att), int(j.fg), int(j.cr), j.tok, int(j.slot),
    int(j.since), j.nx, reason, j.err }, ' '))
end

local function header(body)
  local since, wait, attempts, keep, timeout, digest = string.match(body or '', '^(%d+) (%-?%d+) (%d+) (%d+) (%d+) (%S+)\n')
  if not since then return { since = 0, wait = -1, attempts = 0, keep = 0, digest = '-' } end
  return { since = tonumber(since), wait = tonumber(wait), attempts = tonumber(attempts), keep = tonumber(keep), digest = digest }
end

-- count counts what happened to a tenant's jobs, for it and for the downstream, whose totals
-- outlive its tenants. The two that happen most travel with the hashes, which are written anyway.
local function count(ds, t, what)
  if what == 'started' or what == 'done' then
    add(ds, what, 1)
    add(t, what, 1)
  else
    call('HINCRBY', K_DS, what, 1)
    call('HINCRBY', t.key, what, 1)
  end
end

-- began counts the start that a job was granted: it began, or nobody can say that it did not. Once
-- a start.
local function began(ds, t, j)
  if not j.granted then return end
  j.granted = nil
  count(ds, t, 'started')
end

-- called_off: the start that a job was granted never happens, so the next one has its number. One
-- that is counted already, as a version before this did it at the grant, is forgiven.
local function called_off(j)
  if j.granted then
    j.granted, j.att = nil, j.att - 1
  else
    j.fg = j.fg + 1
  end
end

-- finished writes how a job ended, and forgets the rest. text is its result or error.
local function finished(ds, t, id, j, how, text, now)
  local T = t.name
  local body = call('HGET', k_jobs(T), id) or '0 0 0 0 0 -\n-\n'
  local h = header(body)
  local keep = h.keep > 0 and h.keep or nrule(ds, t, 'p:keep')
  call('HDEL', k_jobs(T), id)
  call('HDEL', k_state(T), id)
  call('SET', k_end(T, id), table.concat({ how, int(j.att), int(j.fg), int(j.cr), j.tok, int(j.slot), int(h.since or 0),
    int(now), j.nx, h.digest }, ' ') .. '\n' .. (string.match(body, '\n([^\n]*)\n') or '-') .. '\n' .. text, 'PX', int(keep))
  count(ds, t, how)
end

-- overdue tells whether a job that was never started has waited longer than it may.
local function overdue(ds, t, h, now)
  local wait = h.wait ~= 0 and h.wait or nrule(ds, t, 'p:wait')
  return wait > 0 and now > h.since + wait * 1000
end

-- to_front puts back what was accepted before: ahead of everything that was never out, and among
-- those that came back in the order in which they were accepted, however many they are.
local function to_front(T, id, j)
  j.st = 'w'
  store(T, id, j)
  call('ZADD', k_back(T), int(j.since), id)
end

-- pool_of is the pool that a token belongs to: what stands before the dot.
local function pool_of(tok) return string.match(tok, '^[^.]*') end

-- place counts the running jobs of a token's pool, one more or one less. At 0 nothing is left of
-- the count, so it is right whether the pool itself was forgotten meanwhile or not.
local function place(tok, n)
  local field = pool_of(tok) .. ':n'
  if call('HINCRBY', K_POOLS, field, n) <= 0 then call('HDEL', K_POOLS, field) end
end

-- left takes a job off the books of what is in flight. With keep its place in its pool stays taken:
-- the pool runs another job in the same call.
local function left(ds, t, id, j, keep)
  local member = t.name .. ' ' .. id
  if j.st == 'o' then
    call('ZREM', K_OUT, member)
    call('ZREM', k_outs(t.name), id)
    add(t, 'out', -1)
    add(ds, 'out', -1)
  elseif j.st == 'r' or j.st == 'c' then
    call('ZREM', K_RUN, member)
    add(t, 'run', -1)
    add(ds, 'run', -1)
    if not keep then place(j.tok, -1) end
  end
end

-- goes_out enters a job as out until `deadline`, by which some ticket of its tenant must have come
-- to the gate.
local function goes_out(ds, t, id, j, deadline)
  j.st = 'o'
  store(t.name, id, j)
  call('ZADD', K_OUT, int(deadline), t.name .. ' ' .. id)
  call('ZADD', k_outs(t.name), int(j.since), id)
  add(t, 'out', 1)
  add(ds, 'out', 1)
end

-- oldest_out and youngest_out are jobs of a tenant that are out: id, state and body. A ticket
-- starts the oldest, whichever job it was released for: tickets of a tenant race each other to the
-- gate, and its jobs must not. What cannot be read is left to release, which brings it back in its
-- time, lest it stop the others.
local function first_out_by(range, T)
  for _ = 1, BATCH do
    local id = call(range, k_outs(T), 0, 0)[1]
    if not id then return nil end
    local j, body = state(T, id), call('HGET', k_jobs(T), id)
    if j and j.st == 'o' and body then return id, j, body end
    call('ZREM', k_outs(T), id)
  end
end
local function oldest_out(T) return first_out_by('ZRANGE', T) end
local function youngest_out(T) return first_out_by('ZREVRANGE', T) end

-- inherit: the ticket of `own`, release number rel, was used up by another job that leaves. If own
-- is out it waits for the ticket of that one now, until its deadline, but not beyond its own: no
-- job is out for longer than a ticket lives. Call it before that one leaves.
local function inherit(T, id, own, rel)
  if id == own then return end
  local o, of_it, of_own = state(T, own), call('ZSCORE', K_OUT, T .. ' ' .. id), call('ZSCORE', K_OUT, T .. ' ' .. own)
  if of_it and of_own and o and o.st == 'o' and o.rel == tonumber(rel) then
    call('ZADD', K_OUT, int(math.min(tonumber(of_it), tonumber(of_own))), T .. ' ' .. own)
  end
end

-- recede: the ticket of `own` starts nothing. The youngest job of the tenant that is out returns to
-- the front, so that there are as many out as tickets and none overtakes an older one. Returns
-- whether there was one.
local function recede(ds, t, own, rel)
  local id, j = youngest_out(t.name)
  if not id then return false end
  inherit(t.name, id, own, rel)
  left(ds, t, id, j)
  to_front(t.name, id, j)
  return true
end

local DEAD_MAX = 10000          -- dead jobs that a tenant keeps

local function bury(ds, t, id, j, reason, err, now)
  local T = t.name
  j.st, j.reason, j.err = 'x', reason, err
  store(T, id, j)
  call('ZADD', k_dead(T), int(now), id)
  count(ds, t, 'dead')
  local old = call('ZRANGEBYSCORE', k_dead(T), '-inf', int(now - DEAD_AGE), 'LIMIT', 0, BATCH)
  local over = call('ZCARD', k_dead(T)) - DEAD_MAX
  if over > 0 and #old == 0 then old = call('ZRANGE', k_dead(T), 0, math.min(over, BATCH) - 1) end
  for _, o in ipairs(old) do
    call('ZREM', k_dead(T), o)
    call('HDEL', k_jobs(T), o)
    call('HDEL', k_state(T), o)
    count(ds, t, 'forgotten')
  end
end

-- crashed handles a lease that ended: the job comes back to the front, until it has done so too
-- often.
local function crashed(ds, t, id, j, now)
  log(ds, 'x', t.name, id, int(j.att), int(now - j.slot))
  left(ds, t, id, j)
  began(ds, t, j)
  count(ds, t, 'crashed')
  if j.st == 'c' then
    finished(ds, t, id, j, 'cancelled', '', now)
    return
  end
  j.cr, j.fg, j.tok = j.cr + 1, j.fg + 1, '-' -- its worker, should it live, is told that it came too late
  if j.cr >= ds.crashes then
    bury(ds, t, id, j, 'crashed', 'its worker vanished ' .. int(j.cr) .. ' times', now)
  else
    to_front(t.name, id, j)
  end
end
