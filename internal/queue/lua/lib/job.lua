-- job: a job's state line, its ways back to the front, and its ends.
--
-- body   (k_jobs)   "since max_wait max_attempts retention timeout digest\ntype\nheaders\npayload"
--   since is µs, the other times are ms; 0 = what the tenant's policy says
-- state  (k_state)  "state releases attempts forgiven crashes token slot since next reason error"
--   state      w waiting, and was out before; o its ticket is out; r running; c running, and
--              cancelled; z waiting out a backoff; x dead
--   releases   how many tickets were released for it; the number of each tells the last from older
--              ones, see inherit
--   attempts   starts so far
--   forgiven   those that do not count against the maximum: throttled, uncharged, handed back,
--              crashed
--   crashes    leases that ended while it ran
--   token      of the owner of its last start
--   slot       µs, of its last start
--   since      µs, by which those that came back are in order
--   next       "tenant/id" of the job that was granted to the call which finished this one, so that
--              its replay can answer the same; of a job that ended K_GAVE says it
--   reason     why it is dead, or -; followed by ",throttles=N", ",suspect=N" and ",blamed=N" where
--              N > 0, and by ",granted"
--   throttles  starts that max_throttles bounds, since it was accepted or requeued: after them the
--              downstream asked to slow down, or they failed without being charged
--   suspect    since a start of it last came to an end: 1 its worker vanished once, while others ran
--              there; 2 again, or it was to blame. See crashed and apart.lua
--   blamed     crashes that max_crashes bounds
--   granted    its last start has a slot, and is not known to have begun: called_off takes it back,
--              began counts it
--   What newer versions of the same major add to a state are more such marks, behind a comma; what
--   they add to a body's first line are more words at its end. Both are kept, and ignored.

-- include ends

local function fresh(since)
  return { state = 'w', releases = 0, attempts = 0, forgiven = 0, crashes = 0, token = '-', slot = 0, since = since, next = '-',
    reason = '-', throttles = 0, suspect = 0, blamed = 0, error = '' }
end

-- state returns a job's state; nil if it has none. One that cannot be read has the state '?', which
-- no job is in: whoever meets it in a book calls set_apart.
local function state(name, id)
  local line = call('HGET', k_state(name), id)
  if not line then return nil end
  local letter, releases, attempts, forgiven, crashes, token, slot, since, next_job, reason, text =
    string.match(line, '^([worczx]) (%d+) (%d+) (%d+) (%d+) (%S+) (%d+) (%d+) (%S+) (%S+) ?(.*)$')
  if not letter then
    local j = fresh(0)
    j.state, j.reason, j.error = '?', 'unreadable', 'its state cannot be read: ' .. line
    return j
  end
  local j = { state = letter, releases = tonumber(releases), attempts = tonumber(attempts), forgiven = tonumber(forgiven),
    crashes = tonumber(crashes), token = token, slot = tonumber(slot), since = tonumber(since), next = next_job, reason = reason,
    throttles = 0, suspect = 0, blamed = 0, error = text }
  local word, more = string.match(reason, '^(.-),(.*)$')
  if word then
    j.reason = word
    for mark in string.gmatch(more, '[^,]+') do
      local what, n = string.match(mark, '^(%a+)=(%d+)$')
      if what == 'throttles' or what == 'suspect' or what == 'blamed' then
        j[what] = tonumber(n)
      elseif mark == 'granted' then
        j.granted = true
      else
        j.marks = (j.marks or '') .. ',' .. mark
      end
    end
  end
  return j
end

local function store(name, id, j)
  local reason = j.reason
  for _, word in ipairs({ 'throttles', 'suspect', 'blamed' }) do
    if j[word] > 0 then reason = reason .. ',' .. word .. '=' .. int(j[word]) end
  end
  if j.granted then reason = reason .. ',granted' end
  if j.marks then reason = reason .. j.marks end
  call('HSET', k_state(name), id, table.concat({ j.state, int(j.releases), int(j.attempts), int(j.forgiven), int(j.crashes),
    j.token, int(j.slot), int(j.since), j.next, reason, j.error }, ' '))
end

local function read_header(body)
  local since, max_wait, max_attempts, retention, timeout, digest =
    string.match(body or '', '^(%d+) (%-?%d+) (%d+) (%d+) (%d+) (%S+)[^\n]*\n')
  if not since then return { since = 0, max_wait = -1, max_attempts = 0, retention = 0, digest = '-' } end
  return { since = tonumber(since), max_wait = tonumber(max_wait), max_attempts = tonumber(max_attempts),
    retention = tonumber(retention), digest = digest }
end

-- count counts what happened to a tenant's jobs, for it and for the downstream, whose totals
-- outlive its tenants. The two most frequent counts travel with the hashes, which are written
-- anyway.
local function count(ds, t, what)
  if what == 'started' or what == 'done' then
    add(ds, what, 1)
    add(t, what, 1)
  else
    try('HINCRBY', K_DS, what, 1) -- a count that is no number stops no job
    try('HINCRBY', t.key, what, 1)
  end
end

-- began counts the start that a job was granted, once: it began, or nobody can say that it did not.
local function began(ds, t, j)
  if not j.granted then return end
  j.granted = nil
  count(ds, t, 'started')
end

-- called_off: the start that a job was granted never happens, so the next one has its number. If it
-- is counted already, since older versions counted at the grant, it is forgiven.
local function called_off(j)
  if j.granted then
    j.granted, j.attempts = nil, j.attempts - 1
  else
    j.forgiven = j.forgiven + 1
  end
end

-- finished records how a job ended, and forgets the rest. text is its result or error, and kept only
-- of a job whose producer gave it a retention.
local function finished(ds, t, id, j, how, text, now)
  local name = t.name
  local body = call('HGET', k_jobs(name), id) or '0 0 0 0 0 -\n-\n'
  local header = read_header(body)
  local retention = header.retention > 0 and header.retention or rule_number(ds, t, 'p:keep')
  call('HDEL', k_jobs(name), id)
  call('HDEL', k_state(name), id)
  local kind = string.match(body, '\n([^\n]*)\n') or '-'
  if header.retention > 0 then
    call('SET', k_end(name, id), table.concat({ how, int(j.attempts), int(j.forgiven), int(j.crashes), j.token, int(j.slot),
      int(header.since), int(now), j.next, header.digest }, ' ') .. '\n' .. kind .. '\n' .. text, 'PX', int(retention))
  end
  local starts = int(j.attempts)
  if j.forgiven + j.crashes > 0 then starts = starts .. ',' .. int(j.forgiven) .. ',' .. int(j.crashes) end
  remember(ds, t, id, table.concat({ letter_of(how), int(math.ceil(retention / 1000)), starts, string.sub(j.token, -TOKEN), int(now), int(now - header.since),
    j.slot > 0 and int(now - j.slot) or '-', brief(header.digest), kind }, ' '), now)
  count(ds, t, how)
end

-- overdue tells whether a job that was never started has waited longer than it may.
local function overdue(ds, t, header, now)
  local max_wait = header.max_wait ~= 0 and header.max_wait or rule_number(ds, t, 'p:wait')
  return not t.parked and max_wait > 0 and now > header.since + max_wait * 1000
end

-- to_front puts a job back into its bucket: ahead of all that were never out, and, among those that
-- came back, in the order in which they were accepted, however many they are.
local function to_front(name, id, j)
  j.state = 'w'
  store(name, id, j)
  call('ZADD', k_back(name), int(j.since), id)
end

-- pool_of is the pool that a token belongs to: what is before the dot.
local function pool_of(token) return string.match(token, '^[^.]*') end

-- place counts the running jobs of a token's pool, one more or one less. A count of 0 is removed,
-- so it is right whether the pool itself was forgotten meanwhile or not.
local function place(token, n)
  local pool = pool_of(token)
  local now = try('HINCRBY', K_POOLS, pool .. ':n', n)
  if type(now) ~= 'number' or now <= 0 then call('HDEL', K_POOLS, pool .. ':n', pool .. ':x') end -- compare counts anew what was no number
end

-- left takes a job off the books of what is in flight. With keep its place in its pool stays taken,
-- since the same call gives the pool another job.
local function left(ds, t, id, j, keep)
  local member = t.name .. ' ' .. id
  if j.suspect > 0 then call('ZREM', K_APART, member) end
  if j.state == 'o' then
    call('ZREM', K_OUT, member)
    call('ZREM', k_outs(t.name), id)
    add(t, 'out', -1)
    add(ds, 'out', -1)
  elseif j.state == 'r' or j.state == 'c' then
    call('ZREM', K_RUN, member)
    call('HDEL', K_GAVE, j.token)
    add(t, 'run', -1)
    add(ds, 'run', -1)
    if not keep then place(j.token, -1) end
  end
end

-- goes_out enters a job as out until `deadline`, by which a ticket of its tenant must have come to
-- the gate.
local function goes_out(ds, t, id, j, deadline)
  j.state = 'o'
  store(t.name, id, j)
  call('ZADD', K_OUT, int(deadline), t.name .. ' ' .. id)
  if j.suspect > 0 then call('ZADD', K_APART, j.suspect, t.name .. ' ' .. id) end
  call('ZADD', k_outs(t.name), int(j.since), id)
  add(t, 'out', 1)
  add(ds, 'out', 1)
end

-- oldest_out and youngest_out return a job of a tenant that is out: id, state and body. A ticket
-- starts the oldest, whichever job it was released for: tickets of a tenant race each other to the
-- gate, and its jobs must not. A job that cannot be read is passed over, so that it does not stop
-- the others; release brings it back when its ticket's time is over.
local function first_out_by(range, name)
  for i = 1, BATCH do
    if i > 1 and enough() then return nil end
    local id = call(range, k_outs(name), 0, 0)[1]
    if not id then return nil end
    local j, body = state(name, id), call('HGET', k_jobs(name), id)
    if j and j.state == 'o' and body then return id, j, body end
    call('ZREM', k_outs(name), id)
  end
end
local function oldest_out(name) return first_out_by('ZRANGE', name) end
local function youngest_out(name) return first_out_by('ZREVRANGE', name) end

-- inherit: another job, `id`, leaves on the ticket of `own` with that release number. If own is
-- out, it waits for the ticket of id from now on, until id's deadline, but not beyond its own: no
-- job is out for longer than a ticket lives. Call it before id leaves.
local function inherit(name, id, own, release)
  if id == own then return end
  local j, of_it, of_own = state(name, own), call('ZSCORE', K_OUT, name .. ' ' .. id), call('ZSCORE', K_OUT, name .. ' ' .. own)
  if of_it and of_own and j and j.state == 'o' and j.releases == tonumber(release) then
    call('ZADD', K_OUT, int(math.min(tonumber(of_it), tonumber(of_own))), name .. ' ' .. own)
  end
end

-- recede: the ticket of `own` starts nothing. The youngest job of the tenant that is out returns to
-- the front, so that as many are out as tickets, and none overtakes an older one. Returns whether
-- one was out.
local function recede(ds, t, own, release)
  local id, j = youngest_out(t.name)
  if not id then return false end
  inherit(t.name, id, own, release)
  left(ds, t, id, j)
  to_front(t.name, id, j)
  return true
end

local DEAD_MAX = 10000 -- dead jobs that a tenant keeps

local function bury(ds, t, id, j, reason, text, now)
  local name = t.name
  j.state, j.reason, j.error = 'x', reason, text
  store(name, id, j)
  call('ZADD', k_dead(name), int(now), id)
  count(ds, t, 'dead')
  local old = call('ZRANGEBYSCORE', k_dead(name), '-inf', int(now - DEAD_AGE), 'LIMIT', 0, BATCH)
  local over = call('ZCARD', k_dead(name)) - DEAD_MAX
  if over > 0 and #old == 0 then old = call('ZRANGE', k_dead(name), 0, math.min(over, BATCH) - 1) end
  for _, old_id in ipairs(old) do
    if enough(600) then break end -- the next one that dies goes on
    call('ZREM', k_dead(name), old_id)
    call('HDEL', k_jobs(name), old_id)
    call('HDEL', k_state(name), old_id)
    count(ds, t, 'forgotten')
  end
end

-- set_apart takes a job whose state cannot be read out of all books, and makes it dead, reason
-- `unreadable`: so it does not start again by itself, is listed with what was read of it, and can be
-- requeued. An entry in the list of those that wait stays, and is passed over.
local function set_apart(ds, t, id, j, now)
  local name, member = t.name, t.name .. ' ' .. id
  call('ZREM', k_back(name), id)
  call('ZREM', k_later(name), id)
  if call('ZREM', K_OUT, member) + call('ZREM', k_outs(name), id) > 0 then
    add(t, 'out', -1)
    add(ds, 'out', -1)
  end
  if call('ZREM', K_RUN, member) == 1 then
    add(t, 'run', -1)
    add(ds, 'run', -1)
  end
  j.since = read_header(call('HGET', k_jobs(name), id)).since
  bury(ds, t, id, j, j.reason, j.error, now)
end

-- crashed handles a lease that ended: the job comes back to the front, or is dead if it was to
-- blame for that too often. It is to blame if it was all that its pool ran, or the only suspect in
-- flight; of several that ran beside each other each becomes a suspect, and nobody is to blame. The
-- leases of a pool that vanished end one after another: pool:x says that others were lost before.
local function crashed(ds, t, id, j, now)
  local pool = pool_of(j.token)
  local n, lost = unpack(call('HMGET', K_POOLS, pool .. ':n', pool .. ':x'))
  local beside = (tonumber(n) or 1) > 1
  if beside then call('HSET', K_POOLS, pool .. ':x', '1') end
  local blamed = j.suspect == 2 or not (beside or lost)
  log(ds, 'x', t.name, id, int(j.attempts), int(now - j.slot), blamed and 'blamed' or 'suspect')
  left(ds, t, id, j)
  began(ds, t, j)
  count(ds, t, 'crashed')
  if j.state == 'c' then
    finished(ds, t, id, j, 'cancelled', '', now)
    return 'cancelled'
  end
  j.crashes, j.forgiven, j.token = j.crashes + 1, j.forgiven + 1, '-' -- its worker, if it still lives, is told that it came too late
  if blamed then
    j.suspect, j.blamed = 2, j.blamed + 1
  else
    j.suspect = math.min(2, j.suspect + 1)
    count(ds, t, 'suspected')
  end
  if j.blamed >= ds.crashes then
    bury(ds, t, id, j, 'crashed', 'its worker vanished ' .. int(j.crashes) .. ' times', now)
    return 'dead'
  end
  to_front(t.name, id, j)
  return blamed and 'blamed' or 'suspect'
end
