-- expect: when a job that waits will start, as timelines, pauses and the present backlogs say.

local SAMPLE = 16 -- tenants of each book that are looked at; the others are taken to be like them

-- crowd lists the tenants that share the downstream's rate with t. Each stands for `like` of them: waiting jobs, tickets out,
-- the instant from which on its next may leave, its interval, virtual time and weight.
local function crowd(ds, t, now)
  local list = {}
  for _, book in ipairs({ K_READY, K_DUE }) do
    local names = call('ZRANGE', book, 0, SAMPLE - 1)
    local like = call('ZCARD', book) / math.max(#names, 1)
    for _, T in ipairs(names) do
      if T ~= t.name then
        local v = call('HMGET', k_tenant(T), 'out', 'next', 'until', 'vt', 'p:rate', 'p:weight')
        local events, period = string.match(v[5] or rule(ds, {}, 'p:rate'), '^(%d+)/(%d+)$')
        list[#list + 1] = { like = like, waiting = bucket(T), out = tonumber(v[1] or 0),
          first = math.max(now, tonumber(v[2] or 0), tonumber(v[3] or 0)), step = period / events,
          vt = math.max(num(ds, 'vt'), tonumber(v[4] or 0)), weight = tonumber(v[6] or rule(ds, {}, 'p:weight')) }
      end
    end
  end
  return list
end

-- shared is when the nth job of t starts at the downstream's rate, and not before `own`, when its own timeline lets it. Before it go
-- what is out, those of t, and of every other tenant what it has, what its own rate lets pass until then, and what its weight earns
-- it; see pick. The instant stands on both sides, so it is approached from below.
local function shared(ds, t, nth, own, first, now)
  if not ds.crowd then ds.crowd = crowd(ds, t, now) end
  local vt, at = math.max(num(ds, 'vt'), num(t, 'vt')) + (nth - 1) * 1000000 / nrule(ds, t, 'p:weight'), own
  for _ = 1, 16 do
    local before = num(ds, 'out') + nth - 1
    for _, o in ipairs(ds.crowd) do
      before = before + o.like * math.max(0, math.min(o.waiting, math.ceil((vt - o.vt) * o.weight / 1000000),
        math.floor((at - o.first) / o.step) + 1 - o.out))
    end
    local later = math.max(own, first + math.floor(before * ds.tl.step))
    if later <= at then break end
    at = later
  end
  return at
end

-- expected is when the nth of the jobs that wait in t's bucket starts; or 0, and why that cannot be said: "paused" without an end,
-- "no_workers", or "in_flight", where it hangs on how long other jobs run.
local function expected(ds, t, nth, now)
  local paused = math.max(num(t, 'until'), num(ds, 'until'))
  if paused >= FOREVER then return 0, 'paused' end
  if num(ds, 'alive') < now then return 0, 'no_workers' end
  if nth > by_time(ds, t, now) then return 0, 'in_flight' end
  local from = math.max(now, paused)
  local at = math.max(from, earliest(t.tl, now, ds.grace)) + math.floor((num(t, 'out') + nth - 1) * t.tl.step)
  if ds.tl then at = shared(ds, t, nth, at, math.max(from, earliest(ds.tl, now, ds.grace)), now) end
  return at, ''
end
