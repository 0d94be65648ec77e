-- expect: when a job that waits will start, as timelines, pauses and the present backlogs say.

-- include tenant pools

local SPREAD = 25 -- of so many jobs that follow each other in a call, only the first is calculated
local ALL_OF, SAMPLE = 12, 4 -- up to so many tenants that share a rate are all looked at; of more, the first few of each book

-- crowd lists the tenants that share the downstream's rate with t: how many of them each stands for
-- (`like`), its waiting jobs and tickets out, the first instant at which its next job may leave,
-- its interval, virtual time and weight.
local function crowd(ds, t, now)
  local list, counts = {}, { [K_READY] = call('ZCARD', K_READY), [K_DUE] = call('ZCARD', K_DUE) }
  local most = counts[K_READY] + counts[K_DUE] <= ALL_OF and ALL_OF or SAMPLE
  for book, n in pairs(counts) do
    local names = n > 0 and call('ZRANGE', book, 0, most - 1) or {}
    for _, name in ipairs(names) do
      if name ~= t.name then
        local other = get(k_tenant(name), { 'out', 'next', 'until', 'vt', 'p:rate', 'p:weight' })
        check_words(other)
        if not other.parked then
          local events, period = string.match(rule(ds, other, 'p:rate'), '^(%d+)/(%d+)$')
          list[#list + 1] = { like = n / #names, waiting = bucket(name), out = num(other, 'out'),
            first = math.max(now, num(other, 'next'), num(other, 'until')), step = period / events,
            virtual = math.max(num(ds, 'vt'), num(other, 'vt')), weight = rule_number(ds, other, 'p:weight') }
        end
      end
    end
  end
  return list
end

-- shared is when the nth job of t starts at the downstream's rate, but not before `own`, when its
-- own timeline lets it start. Before it go all jobs that are out, those of t that wait before it,
-- and of every other tenant as many as wait, as its own rate lets pass until then, and as its
-- weight earns it, whichever is least; see pick. The instant depends on itself, so it is approached
-- from below.
local function shared(ds, t, nth, own, first)
  local virtual, at = math.max(num(ds, 'vt'), num(t, 'vt')) + (nth - 1) * 1000000 / rule_number(ds, t, 'p:weight'), own
  for _, other in ipairs(ds.crowd) do
    other.most = math.max(0, math.min(other.waiting, math.ceil((virtual - other.virtual) * other.weight / 1000000)))
  end
  for _ = 1, 16 do
    local before = num(ds, 'out') + nth - 1
    for _, other in ipairs(ds.crowd) do
      local passed = math.floor((at - other.first) / other.step) + 1 - other.out
      before = before + other.like * math.max(0, math.min(other.most, passed))
    end
    local later = math.max(own, first + math.floor(before * ds.timeline.step))
    if later <= at then break end
    at = later
  end
  return at
end

-- expected is when the nth of the jobs that wait in t's bucket starts; or 0, and why that cannot be
-- said: "parked", "paused" (without an end), "no_workers", or "in_flight" (it depends on how long
-- other jobs run).
local function expected(ds, t, nth, now)
  if t.parked then return 0, 'parked' end
  local paused = math.max(num(t, 'until'), num(ds, 'until'))
  if paused >= FOREVER then return 0, 'paused' end
  if num(ds, 'alive') < now then return 0, 'no_workers' end
  if nth > by_time(ds, t, now) then return 0, 'in_flight' end
  local from = math.max(now, paused)
  local own, turn = math.max(from, earliest(t.timeline, now, ds.grace)), num(t, 'out') + nth - 1
  if not ds.timeline then return own + math.floor(turn * t.timeline.step), '' end

  -- Of the jobs of a call that follow each other, every SPREADth is calculated; those between lie
  -- on a line from one to the next.
  if not ds.crowd then ds.crowd = crowd(ds, t, now) end
  local first = math.max(from, earliest(ds.timeline, now, ds.grace))
  local function at(k) return shared(ds, t, nth + k, own + math.floor((turn + k) * t.timeline.step), first) end
  local line = ds.line
  if not line or nth < line.nth or nth >= line.nth + SPREAD then
    line = { nth = nth, at = at(0) }
    ds.line = line
    return line.at, ''
  end
  line.slope = line.slope or (at(SPREAD + line.nth - nth) - line.at) / SPREAD
  return math.floor(line.at + (nth - line.nth) * line.slope), ''
end
