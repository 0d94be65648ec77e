-- release: hand out tickets for the heads of all buckets of a downstream that may leave within the
-- lead; and bring back what was lost: jobs whose tickets never came to the gate, and those whose
-- lease ended. Safe to repeat: a ticket whose reply was lost is one that never comes to the gate.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] most tickets of this call  [3] µs within which a ticket must come to the gate
-- ARGV[4] 1 = tidy the index of tenants too  [5] µs that the caller's round trip to Redis takes
--
-- Returns {wait, more, suspects, blamed, dead, then tenant, id, release number of each ticket}
--   wait  µs until something may leave, for the caller's sleep; -1 = nothing is filed
--   more  1 = call again at once, with the same arguments
--   suspects, blamed, dead  how many jobs whose lease ended became what, see crashed
--
-- Cost: O(log tenants) a ticket, at most BATCH of each kind of work and BUDGET commands a call;
-- nothing grows with idle tenants. What comes first leaves enough for what comes later.

-- include held refile credit

local SWEEPS = 5 -- pages of ends that a call takes ends off

allow_oom()
local now = clock()
local limit, ticket_ttl = tonumber(ARGV[2]), tonumber(ARGV[3])
local ds = downstream(now)
local cache, out, more = {}, {}, false

-- From the instant at which a ticket may leave until its job is granted a slot, two round trips of a
-- scheduler pass (its sleep ends half of one late; then this call, and the ticket's way to asynq),
-- and up to three of a worker (a look for tickets that comes a moment too soon, another, the gate).
-- It may be too long: what waits out a delay or a pause is filed by it, and is filed anew when it
-- gets shorter. While all is well it is promised not to get longer for a while, so that after a
-- restart it is known how far ahead slots were granted that were forgotten.
local CALM = 5000000
local reach = math.min(2 * ARGV[5] + 3 * num(ds, 'far'), ds.most - ds.least)
local longer, calm = reach > num(ds, 'reach'), math.min(num(ds, 'calm'), now + CALM)
if longer and now > calm or reach < num(ds, 'reach') / 2 - 5000 then
  if not longer then put(ds, 'refile', BEFORE_ALL) end
  put(ds, 'reach', reach)
  reaches(ds, reach)
  longer = false
end
if not longer and num(ds, 'alive') >= now then calm = now + CALM end
put(ds, 'calm', calm)

-- Where the clock stepped back, every tenant is filed anew, and deadlines that lie further ahead
-- than any can are brought near.
local step = num(ds, 'back') - num(ds, 'healed')
if step > 0 then
  put(ds, 'healed', num(ds, 'back'))
  put(ds, 'refile', BEFORE_ALL)
  put(ds, 'beyond', '1')
  local nearer = {}
  each_pool(function(pool, n, deadline, _, _, rest)
    nearer[#nearer + 1] = pool
    nearer[#nearer + 1] = int(n) .. ' ' .. int(deadline - step) .. rest
  end)
  if nearer[1] then call('HSET', K_POOLS, unpack(nearer)) end
end
if ds.beyond == '1' then
  put(ds, 'beyond', '0')
  for key, ahead in pairs({ [K_OUT] = ticket_ttl, [K_RUN] = ds.lease + ds.hold }) do
    local members, nearer = call('ZRANGEBYSCORE', key, '(' .. int(now + ahead), '+inf', 'LIMIT', 0, BATCH), {}
    for _, member in ipairs(members) do
      nearer[#nearer + 1] = int(now + ahead)
      nearer[#nearer + 1] = member
    end
    if nearer[1] then call('ZADD', key, unpack(nearer)) end
    if #members == BATCH then
      put(ds, 'beyond', '1')
      more = true
    end
  end
end

-- Where Redis was away, or all schedulers were, live workers may have been unable to beat. Leases
-- that ended meanwhile, or end just now, are not over until those workers had time to beat again.
-- Leases that had ended before are over; so a scheduler that calls rarely does not put them off for
-- ever. If Redis restarts again before they had that time, they get it then.
local last, lease_end = num(ds, 'clock'), now
local credit = credited(ds, last, now, ticket_ttl)
local restarted = ds.epoch > last
if last > 0 and (restarted or now - last > math.min(5000000, math.max(2000000, ds.lease / 2))) then
  if not (restarted and last < num(ds, 'spared_until')) then put(ds, 'spared_from', last) end
  put(ds, 'spared_until', now + math.min(4000000, ds.lease))
end
if now < num(ds, 'spared_until') then lease_end = num(ds, 'spared_from') end
put(ds, 'clock', now)

-- back brings back the jobs of a book whose time is over; those that it puts off are the latest.
-- Returns whether there may be more.
local function back(book, counter, over, kept, bring)
  local members = call('ZRANGEBYSCORE', book, '-inf', int(over), 'LIMIT', 0, BATCH)
  for i = 1, #members do
    if enough(kept) then return true end
    local name, id = string.match(members[i], '^(%S+) (%S+)$')
    local t, j
    if name then t, j = load(ds, cache, name, now), state(name, id) end
    if not name then -- it names no job
      call('ZREM', book, members[i])
    elseif j and (book == K_OUT and j.state == 'o' or book == K_RUN and (j.state == 'r' or j.state == 'c')) then
      bring(t, id, j)
    elseif j and j.state == '?' then
      set_apart(ds, t, id, j, now)
    else -- the books were wrong: it leaves this one, and is not lost if it is in no other, or cannot be read
      call('ZREM', book, members[i])
      if not j or (j.state == 'w' or j.state == 'o') and not held(name, id, j) then
        local body = call('HGET', k_jobs(name), id)
        -- Else it ended, and its count was taken off then.
        if call('ZREM', K_OUT, members[i]) + call('ZREM', k_outs(name), id) > 0 or body then
          add(t, counter, -1)
          add(ds, counter, -1)
        end
        if body then to_front(name, id, j or fresh(read_header(body).since)) end
      end
    end
    if name then settle(ds, t, now) end
  end
  return #members == BATCH
end
ds.losing = back(K_OUT, 'out', now, 850, function(t, id, j)
  left(ds, t, id, j)
  to_front(t.name, id, j)
  count(ds, t, 'lost_tickets')
end)
local became = { suspect = 0, blamed = 0, dead = 0, cancelled = 0 }
if back(K_RUN, 'run', lease_end, 700, function(t, id, j)
  local what = crashed(ds, t, id, j, now)
  became[what] = became[what] + 1
end) or ds.losing then more = true end

if refile(ds, cache, now) then more = true end
for _ = 1, SWEEPS do
  if sweep(ds, 0, now) == 0 then break end
end
if promote(ds, cache, now) then more = true end
local free = places(ds, now)
local cap = tonumber(ds.cap or 0)
if cap and cap > 0 then free = math.min(free, cap - busy(ds)) end
local n, room = 0, math.min(free, credit_left(ds, credit, now, ticket_ttl))
while n < limit and n < room do
  local t, id, j = pick(ds, cache, now)
  if not t then break end
  n = n + 1
  goes_out(ds, t, id, j, now + ticket_ttl)
  picked(ds, t, now)
  out[#out + 1] = t.name
  out[#out + 1] = id
  out[#out + 1] = int(j.releases)
end
put(ds, 'sent', num(ds, 'out'))
if n == limit or ds.unfinished then more = true end
if n > 0 then call('PUBLISH', SIGNAL, 't') end

-- When the next call makes sense. Whatever waits for a place is woken by the job that leaves one.
local at
if num(ds, 'until') > now then
  at = num(ds, 'until')
else
  local first = call('ZRANGE', K_DUE, 0, 0, 'WITHSCORES')
  at = first[2] and first[2] - ds.lead
  if call('ZCARD', K_READY) > 0 then
    if n >= free then
      put(ds, 'blocked', '1')
    elseif n >= room then -- nobody wakes a scheduler when a ticket comes to the gate
      at = math.min(at or FOREVER, now + look(ticket_ttl))
    elseif ds.timeline and likely(ds.timeline, num(ds, 'out'), now, ds.grace) > now + ds.lead then
      at = math.min(at or FOREVER, likely(ds.timeline, num(ds, 'out'), now, ds.grace) - ds.lead)
    else
      more = true
    end
  end
end

if ARGV[4] == '1' then -- forget tenants whose hash has timed out
  local names = call('ZRANGEBYSCORE', K_TENANTS, '-inf', int(now - IDLE_TTL * 1000), 'LIMIT', 0, BATCH)
  if #names == BATCH then more = true end
  for _, name in ipairs(names) do
    if enough() then
      more = true
      break
    end
    if call('EXISTS', k_tenant(name)) == 1 then
      call('ZADD', K_TENANTS, int(now), name)
    else
      call('ZREM', K_TENANTS, name)
      -- What it still has are dead jobs that were too old.
      if level(name) == 0 then call('UNLINK', k_dead(name), k_jobs(name), k_state(name), k_outs(name), k_back(name)) end
    end
  end
end
for _, t in pairs(cache) do save(t) end
save(ds)
local reply = { at and at < FOREVER and int(math.max(at - now, 0)) or '-1', more and 1 or 0, became.suspect, became.blamed, became.dead }
for _, v in ipairs(out) do reply[#reply + 1] = v end
return reply
