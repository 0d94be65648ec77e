-- pools: which pools of workers live, how many places they have, and how far away they are.

-- include hash

-- each_pool calls look(pool, places, deadline, running, µs of a round trip, rest) for every pool that
-- is known. rest is what newer versions add.
local function each_pool(look)
  local flat, values = call('HGETALL', K_POOLS), {}
  for i = 1, #flat, 2 do values[flat[i]] = flat[i + 1] end
  for pool, line in pairs(values) do
    local n, deadline, rest = string.match(line, '^(%d+) (%d+)(.*)$')
    if n then
      look(pool, tonumber(n), tonumber(deadline), tonumber(values[pool .. ':n']) or 0, tonumber(values[pool .. ':d']) or 0, rest)
    end
  end
end

-- live is how many places the live pools have, until when at least one of them counts as live, and
-- the round trip of the furthest.
local function live(now)
  local total, alive, far = 0, 0, 0
  each_pool(function(_, n, deadline, _, trip)
    if n > 0 and deadline >= now then total, alive, far = total + n, math.max(alive, deadline), math.max(far, trip) end
  end)
  return total, alive, far
end

-- places is how many places of the live pools are free. Only what live pools run is counted: a job
-- of a pool that vanished must not take a place of one that is there.
local function places(ds, now)
  local free, gone = 0, {}
  each_pool(function(pool, n, deadline, running)
    if deadline >= now then
      free = free + math.max(0, n - running)
    elseif deadline < now - 60000000 and #gone < 1000 then
      gone[#gone + 1] = pool
      gone[#gone + 1] = pool .. ':d'
    end
  end)
  if gone[1] then call('HDEL', K_POOLS, unpack(gone)) end
  return free - num(ds, 'out')
end
