-- finish: how starts ended; only the owner of a job's last one may say so. A worker that wants more
-- work is given the next job of the downstream in the same call, with its slot. Many reports share
-- a call, each on its own. Safe to repeat: by both tokens.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2…] of each report, at most BATCH:
--   tenant id token that owns the job outcome: ok, error, uncharged (an error that is not charged),
--   dead, throttled (the tenant), throttled-all (the downstream), back (handed back unstarted or at
--   a shutdown) µs: backoff of an error, pause of a throttle result or error text token for the
--   next job, "-" = no more work µs from its slot to its start, "?" = not known, "-" = it never
--   started, which only dead and back can say of it
--
-- Returns for each report {answer, then granted (slot.lua) of the next job}
--   done, retry, dead, cancelled, back   what became of the job
--   stale                                the token does not own it: somebody else does, or it ended
--   fault, text                          its record cannot be read
-- After the answer to a throttled start: "throttled", how many of the tenant were so in a row
--
-- Cost: O(log tenants) a report; with a next job about twice a gate.

-- include pick slot

allow_oom()
local FIELDS = 8 -- of a report in ARGV
local now = clock()
local ds = downstream(now)
local cache = {}     -- tenants by name
local touched = {}   -- tenants whose jobs changed
local gave = {}      -- tenants that gave a next job
local promoted = false
local woken, freed = false, false -- something may leave earlier; a place is free

-- replayed answers a report that was made before: what became of the job, and the next job if it is
-- still this worker's.
local function replayed(answer, nx, more)
  local reply = { answer }
  local T2, id2 = string.match(nx, '^([^/]+)/(.+)$')
  if T2 and more ~= '-' then
    local j2, body = state(T2, id2), call('HGET', k_jobs(T2), id2)
    if j2 and body and (j2.st == 'r' or j2.st == 'c') and j2.tok == more then
      for _, v in ipairs(granted(ds, load(ds, cache, T2, now), id2, j2, now, body)) do reply[#reply + 1] = v end
    end
  end
  return reply
end

-- take_next starts the next job of the downstream under the token `more`. Returns tenant, id, job,
-- body; or nil.
local function take_next(more)
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
  entered(ds, t, j, more, true)
  run(ds, t, id, j, next_slot(ds, t, now), more, now)
  touched[t.name], gave[t.name] = t, true
  return t, id, j, body
end

-- retry has a job wait out its backoff.
local function retry(ds, t, id, j, text, at)
  j.st, j.err = 'z', text
  store(t.name, id, j)
  call('ZADD', k_later(t.name), int(at), id)
  count(ds, t, 'retried')
end

local function report(T, id, tok, outcome, delay, text, more, late)
  local j = state(T, id)
  if not j then
    local ended = call('GET', k_end(T, id))
    if ended then
      local how, last, nx = string.match(ended, '^(%S+) %S+ %S+ %S+ (%S+) %S+ %S+ %S+ (%S+)')
      if last == tok then return replayed(how, nx, more) end
    end
    return { 'stale' }
  end
  if j.tok ~= tok then return { 'stale' } end
  if j.st ~= 'r' and j.st ~= 'c' then
    return replayed(j.st == 'x' and 'dead' or j.st == 'z' and 'retry' or 'back', j.nx, more)
  end

  local t = load(ds, cache, T, now)
  touched[T] = t
  local cancelled, attempt = j.st == 'c', j.att
  local unstarted = late == '-' and (outcome == 'back' or outcome == 'dead')
  if unstarted then called_off(j) else began(ds, t, j) end
  local throttled = outcome == 'throttled' or outcome == 'throttled-all'
  if throttled then
    put(t, 'row', num(t, 'row') + 1)
  elseif outcome ~= 'back' and not unstarted and num(t, 'row') > 0 then
    put(t, 'row', 0)
  end
  local chains = more ~= '-' and (outcome == 'ok' or outcome == 'error' or outcome == 'uncharged' or outcome == 'dead')
  left(ds, t, id, j, chains)
  if late ~= '-' then -- how long its jobs run, on average of the last eight or so
    local took = math.max(0, now - j.slot)
    put(t, 'took', t.took and math.floor(t.took + (took - t.took) / 8) or took)
  end
  if busy(t) + 1 == nrule(ds, t, 'p:cap') then -- it was in no book while it was full
    woken = settle(ds, t, now) or woken
    promoted = false
  end
  -- The next job is picked before this one is written down, so that the receipt names it.
  local t2, id2, j2, body2
  if chains then
    t2, id2, j2, body2 = take_next(more)
    if t2 then j.nx = t2.name .. '/' .. id2 else place(tok, -1) end
  end
  if not t2 then freed = true end

  local answer
  if outcome == 'ok' then
    finished(ds, t, id, j, 'done', text, now)
    answer = 'done'
  elseif cancelled then
    finished(ds, t, id, j, 'cancelled', text, now)
    answer = 'cancelled'
  elseif outcome == 'back' then
    if not unstarted then j.fg = j.fg + 1 end
    to_front(T, id, j)
    answer = 'back'
  elseif throttled or outcome == 'uncharged' then
    if throttled then
      local h = outcome == 'throttled' and t or ds
      if num(h, 'until') < now + delay then
        put(h, 'until', now + delay)
        tell_paused(outcome == 'throttled' and T or '')
      end
      count(ds, t, 'throttled')
    end
    j.fg, j.throttles, j.err = j.fg + 1, j.throttles + 1, text
    if j.throttles >= nrule(ds, t, 'p:throttles') then
      bury(ds, t, id, j, throttled and 'throttled' or 'failed', text, now)
      answer = 'dead'
    elseif throttled then
      to_front(T, id, j)
      answer = 'back'
    else
      retry(ds, t, id, j, text, now + delay)
      answer = 'retry'
    end
  else
    count(ds, t, 'failed')
    local h = header(call('HGET', k_jobs(T), id))
    local most = h.attempts > 0 and h.attempts or nrule(ds, t, 'p:attempts')
    if outcome == 'dead' or j.att - j.fg >= most then
      bury(ds, t, id, j, outcome == 'dead' and 'refused' or 'failed', text, now)
      answer = 'dead'
    else
      retry(ds, t, id, j, text, now + delay)
      answer = 'retry'
    end
  end
  if ds.log then
    local became = answer == 'back' and outcome ~= 'back' and 'throttled' or answer
    log(ds, 'f', T, id, int(attempt), became, late, int(now - j.slot))
  end
  local reply = { answer }
  if throttled then reply = { answer, 'throttled', num(t, 'row') } end
  if t2 then
    for _, v in ipairs(granted(ds, t2, id2, j2, now, body2)) do reply[#reply + 1] = v end
  end
  return reply
end

local replies = {}
for i = 2, #ARGV, FIELDS do
  local ok, reply = pcall(report, ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], ARGV[i + 4], ARGV[i + 5], ARGV[i + 6],
    ARGV[i + 7])
  replies[#replies + 1] = ok and reply or { 'fault', tostring(type(reply) == 'table' and reply.err or reply) }
end
for T, t in pairs(touched) do
  if gave[T] then woken = picked(ds, t, now) or woken else woken = settle(ds, t, now) or woken end
end
for _, t in pairs(cache) do save(t) end -- heal may have changed those that were only looked at
if woken or ds.unfinished or (freed and ds.blocked == '1') then wake() end
if freed then put(ds, 'blocked', '0') end
save(ds)
return replies
