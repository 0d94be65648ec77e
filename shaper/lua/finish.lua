-- finish: how a start ended; only the owner of the last one may say so. A worker that wants more work is given the
-- next job of the downstream in the same call, with its slot. Safe to repeat: by both tokens.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] tenant  [3] id  [4] token that owns the job
-- ARGV[5] outcome: ok, error, dead, throttled (the tenant), throttled-all (the downstream), back (handed back unstarted or at a shutdown)
-- ARGV[6] µs: backoff of an error, pause of a throttle
-- ARGV[7] result or error text  [8] token for the next job, "-" = no more work
--
-- Returns {answer, then granted (slot.lua) of the next job}
--   done, retry, dead, cancelled, back   what became of the job
--   stale                                the token does not own it: somebody else does, or it ended
--
-- Cost: O(log tenants); with a next job about twice a gate.

allow_oom()
local now, T, id, tok, outcome, text, more = clock(), ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[7], ARGV[8]
local ds = downstream(now)
local t = tenant(ds, T, now)
local j = state(T, id)

-- replayed answers a repeated call: what became of the job, and the next job if it is still this worker's.
local function replayed(answer, nx)
  local reply = { answer }
  local T2, id2 = string.match(nx, '^([^/]+)/(.+)$')
  if T2 and more ~= '-' then
    local j2, body = state(T2, id2), call('HGET', k_jobs(T2), id2)
    if j2 and body and (j2.st == 'r' or j2.st == 'c') and j2.tok == more then
      for _, v in ipairs(granted(ds, tenant(ds, T2, now), id2, j2, now, body)) do reply[#reply + 1] = v end
    end
  end
  return reply
end

if not j then
  local ended = call('GET', k_end(T, id))
  if ended then
    local how, last, nx = string.match(ended, '^(%S+) %S+ %S+ %S+ (%S+) %S+ %S+ %S+ (%S+)')
    if last == tok then return replayed(how, nx) end
  end
  return { 'stale' }
end
if j.tok ~= tok then return { 'stale' } end
if j.st ~= 'r' and j.st ~= 'c' then
  return replayed(j.st == 'x' and 'dead' or j.st == 'z' and 'retry' or 'back', j.nx)
end

heal(ds, t, now)
local cancelled = j.st == 'c'
local chains = more ~= '-' and (outcome == 'ok' or outcome == 'error' or outcome == 'dead')
left(ds, t, id, j, chains)

-- The next job is picked before this one is written down, so that the receipt names it.
local t2, id2, j2, body2
if chains then
  local cache, cap = { [T] = t }, tonumber(ds.cap or 0)
  promote(ds, cache, now)
  if cap == 0 or busy(ds) < cap then t2, id2, j2, body2 = pick(ds, cache, now) end
  if t2 then
    j2.att = j2.att + 1
    entered(ds, t2, more, true)
    run(ds, t2, id2, j2, next_slot(ds, t2, now), more, now)
    j.nx = t2.name .. '/' .. id2
  else
    place(tok, -1)
  end
end

local answer
if outcome == 'ok' then
  finished(ds, t, id, j, 'done', text, now)
  answer = 'done'
elseif cancelled then
  finished(ds, t, id, j, 'cancelled', text, now)
  answer = 'cancelled'
elseif outcome == 'back' then
  j.fg = j.fg + 1
  to_front(T, id, j)
  answer = 'back'
elseif outcome == 'throttled' or outcome == 'throttled-all' then
  local h = outcome == 'throttled' and t or ds
  if num(h, 'until') < now + ARGV[6] then put(h, 'until', now + ARGV[6]) end
  j.fg, j.err = j.fg + 1, text
  to_front(T, id, j)
  count(t, 'throttled')
  answer = 'back'
else
  count(t, 'failed')
  local h = header(call('HGET', k_jobs(T), id))
  local most = h.attempts > 0 and h.attempts or nrule(ds, t, 'p:attempts')
  if outcome == 'dead' or j.att - j.fg >= most then
    bury(t, id, j, outcome == 'dead' and 'refused' or 'failed', text, now)
    answer = 'dead'
  else
    j.st, j.err = 'z', text
    store(T, id, j)
    call('ZADD', k_later(T), int(now + ARGV[6]), id)
    count(t, 'retried')
    answer = 'retry'
  end
end

if t2 then picked(ds, t2, now) end
if t2 ~= t then
  if settle(ds, t, now) or (ds.blocked == '1' and not t2) then wake() end
end
if not t2 then put(ds, 'blocked', '0') end
save(ds)

local reply = { answer }
if t2 then
  for _, v in ipairs(granted(ds, t2, id2, j2, now, body2)) do reply[#reply + 1] = v end
end
return reply
