-- finish: workers report how starts ended; only the owner of a job's last start may do so. A worker
-- that wants more work is given the downstream's next job in the same call, with its slot. Many
-- reports share a call, each on its own. Safe to repeat: by both tokens.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2…] of each report, at most BATCH:
--   tenant
--   id
--   token that owns the job
--   outcome: ok, error, uncharged (an error that is not charged), dead, throttled (the tenant),
--     throttled-all (the downstream), back (handed back unstarted, or at a shutdown)
--   µs: backoff of an error, pause of a throttled start
--   result or error text
--   token for the next job, "-" = no more work
--   µs from its slot to its start, "?" = not known, "-" = it never started; only with dead and back
--
-- Returns for each report, or for the first ones if all are too much for one call, {answer, then
-- granted (slot.lua) of the next job}
--   done, retry, dead, cancelled, back   what became of the job
--   stale                                the token does not own it: somebody else does, or it ended
--   fault, text                          its record cannot be read
-- The answer to a throttled start is followed by "throttled" and how many starts of the tenant in a
-- row were throttled.
--
-- Cost: O(log tenants) a report; with a next job about twice a gate; at most BUDGET commands a call.

-- include pick slot

allow_oom()
local FIELDS = 8 -- of a report in ARGV
local now = clock()
local ds = downstream(now)
local cache = {}     -- tenants by name
local touched = {}   -- tenants whose jobs changed
local gave = {}      -- tenants that gave a next job
local promoted = false
local woken, freed = false, false -- something may leave earlier; a place became free

-- replayed answers a report that was made before: what became of the job, and the next job if this
-- worker still owns it.
local function replayed(answer, next_job, next_token)
  local reply = { answer }
  local next_name, next_id = string.match(next_job, '^([^/]+)/(.+)$')
  if next_name and next_token ~= '-' then
    local next_j, body = state(next_name, next_id), call('HGET', k_jobs(next_name), next_id)
    if next_j and body and (next_j.state == 'r' or next_j.state == 'c') and next_j.token == next_token then
      for _, v in ipairs(granted(ds, load(ds, cache, next_name, now), next_id, next_j, now, body)) do reply[#reply + 1] = v end
    end
  end
  return reply
end

-- touch notes that a tenant must be filed in the end, and the commands that this will take.
local function touch(t)
  if not touched[t.name] then commands = commands + 8 end
  touched[t.name] = t
end

-- take_next starts the next job of the downstream under `next_token`. Returns tenant, id, job,
-- body; or nil.
local function take_next(next_token)
  if enough() then return nil end
  if not promoted then
    promote(ds, cache, now)
    promoted = true
  end
  local cap = tonumber(ds.cap or 0)
  if cap > 0 and busy(ds) >= cap then return nil end
  local out = num(ds, 'out')
  local t, id, j, body = pick(ds, cache, now, true)
  if num(ds, 'out') < out then freed = true end -- the place that was kept for a ticket
  if not t then return nil end
  entered(ds, t, j, next_token, true)
  run(ds, t, id, j, next_slot(ds, t, now), next_token, now)
  touch(t)
  gave[t.name] = true
  return t, id, j, body
end

-- retry has a job wait out its backoff.
local function retry(ds, t, id, j, text, at)
  j.state, j.error = 'z', text
  store(t.name, id, j)
  back_off(ds, t, id, at)
  count(ds, t, 'retried')
end

local function report(name, id, token, outcome, delay, text, next_token, late)
  local j = state(name, id)
  if not j then
    local ended = end_of(name, call('HGET', k_tenant(name), 'pages'), id, now)
    if ended and (ended.token == token or ended.token == string.sub(token, -TOKEN)) then
      return replayed(ended.how, call('HGET', K_GAVE, next_token) or ended.next, next_token)
    end
    return { 'stale' }
  end
  if j.token ~= token then return { 'stale' } end
  if j.state ~= 'r' and j.state ~= 'c' then
    return replayed(j.state == 'x' and 'dead' or j.state == 'z' and 'retry' or 'back', j.next, next_token)
  end

  local t = load(ds, cache, name, now)
  touch(t)
  local cancelled, attempt = j.state == 'c', j.attempts
  local unstarted = late == '-' and (outcome == 'back' or outcome == 'dead')
  if unstarted then called_off(j) else began(ds, t, j) end
  local throttled = outcome == 'throttled' or outcome == 'throttled-all'
  if throttled then
    put(t, 'row', num(t, 'row') + 1)
  elseif outcome ~= 'back' and not unstarted and num(t, 'row') > 0 then
    put(t, 'row', 0)
  end
  local chains = next_token ~= '-' and (outcome == 'ok' or outcome == 'error' or outcome == 'uncharged' or outcome == 'dead')
  left(ds, t, id, j, chains)
  if outcome ~= 'back' and not unstarted then j.suspect = 0 end -- it took nothing down
  if late ~= '-' then -- how long its jobs run, on average of the last eight or so
    local took = math.max(0, now - j.slot)
    put(t, 'took', t.took and math.floor(t.took + (took - t.took) / 8) or took)
  end
  if busy(t) + 1 == rule_number(ds, t, 'p:cap') and level(name) > 0 then -- it was in no book while it was full
    woken = settle(ds, t, now) or woken
    promoted = false
  end
  -- The next job is picked before this one is written, so that what is kept of this one names it.
  local next_t, next_id, next_j, next_body
  if chains then
    next_t, next_id, next_j, next_body = take_next(next_token)
    if next_t then
      j.next = next_t.name .. '/' .. next_id
      call('HSET', K_GAVE, next_token, j.next)
    else
      place(token, -1)
    end
  end
  if not next_t then freed = true end

  local answer
  if outcome == 'ok' then
    finished(ds, t, id, j, 'done', text, now)
    answer = 'done'
  elseif cancelled then
    finished(ds, t, id, j, 'cancelled', text, now)
    answer = 'cancelled'
  elseif outcome == 'back' then
    if not unstarted then j.forgiven = j.forgiven + 1 end
    to_front(name, id, j)
    answer = 'back'
  elseif throttled or outcome == 'uncharged' then
    if throttled then
      local h = outcome == 'throttled' and t or ds
      if num(h, 'until') < now + delay then
        put(h, 'until', now + delay)
        tell_paused(outcome == 'throttled' and name or '')
      end
      count(ds, t, 'throttled')
    end
    j.forgiven, j.throttles, j.error = j.forgiven + 1, j.throttles + 1, text
    if j.throttles >= rule_number(ds, t, 'p:throttles') and not t.parked then
      bury(ds, t, id, j, throttled and 'throttled' or 'failed', text, now)
      answer = 'dead'
    elseif throttled then
      to_front(name, id, j)
      answer = 'back'
    else
      retry(ds, t, id, j, text, now + delay)
      answer = 'retry'
    end
  else
    count(ds, t, 'failed')
    local header = read_header(call('HGET', k_jobs(name), id))
    local most = header.max_attempts > 0 and header.max_attempts or rule_number(ds, t, 'p:attempts')
    if outcome == 'dead' or j.attempts - j.forgiven >= most and not t.parked then
      bury(ds, t, id, j, outcome == 'dead' and 'refused' or 'failed', text, now)
      answer = 'dead'
    else
      retry(ds, t, id, j, text, now + delay)
      answer = 'retry'
    end
  end
  if ds.log then
    local became = answer == 'back' and outcome ~= 'back' and 'throttled' or answer
    log(ds, 'f', name, id, int(attempt), became, late, int(now - j.slot))
  end
  local reply = { answer }
  if throttled then reply = { answer, 'throttled', num(t, 'row') } end
  if next_t then
    for _, v in ipairs(granted(ds, next_t, next_id, next_j, now, next_body)) do reply[#reply + 1] = v end
  end
  return reply
end

local replies = {}
for i = 2, #ARGV, FIELDS do
  if i > 2 and enough() then break end
  local ok, reply = pcall(report, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6],
    ARGV[i + 7])
  replies[#replies + 1] = ok and reply or { 'fault', tostring(type(reply) == 'table' and reply.err or reply) }
end
for name, t in pairs(touched) do
  if gave[name] then woken = picked(ds, t, now) or woken else woken = settle(ds, t, now) or woken end
end
for _, t in pairs(cache) do save(t) end -- heal may have changed those that were only looked at
if woken or ds.unfinished or (freed and ds.blocked == '1') then wake() end
if freed then put(ds, 'blocked', '0') end
save(ds)
return replies
