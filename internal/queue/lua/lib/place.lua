-- place: a job's position in its bucket. What came back is ahead of all that was never out.

-- include job

local NEAR = 1000 -- jobs at the head among which an id is looked for; beyond, the list is searched by `since`

-- accepted_before is how many jobs of the list are before the first that was accepted at `since` or
-- later, which is looked for between low and high.
local function accepted_before(name, since, low, high)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local body = call('HGET', k_jobs(name), call('LINDEX', k_wait(name), middle))
    if read_header(body).since < since then low = middle + 1 else high = middle end
  end
  return low
end

local found -- index in the list of the job that place_of found last; who asks for many often asks in order

-- place_of is the place, from 1, of a waiting job that was accepted at `since`; 0 if it does not
-- wait. Behind the first thousand it may be off where jobs are not in the order of `since`, as one
-- was delayed: by as many as overtook.
local function place_of(name, id, since)
  local rank = call('ZRANK', k_back(name), id)
  if rank then return rank + 1 end
  local list, ahead = k_wait(name), call('ZCARD', k_back(name)) + 1
  local at = found and call('LINDEX', list, found + 1) == id and found + 1 or call('LPOS', list, id, 'MAXLEN', NEAR)
  if at then
    found = at
    return ahead + at
  end
  local low, high = NEAR, call('LLEN', list)
  if high <= NEAR then return 0 end
  low = accepted_before(name, since, low, high)
  for i, other in ipairs(call('LRANGE', list, math.max(low - BATCH, 0), low + BATCH)) do
    if other == id then
      found = math.max(low - BATCH, 0) + i - 1
      return ahead + found
    end
  end
  return ahead + low
end
