-- refile: after a change of the downstream's policy, or a step back of the clock, every tenant that
-- has jobs is filed anew, since a default may have changed, or each instant. That is done for a few
-- in a call, in the order of their names, beside what is due: nobody starts late because of the
-- others.
--
-- The downstream's field refile is the last name that was done, BEFORE_ALL at the beginning, '' when
-- all are.

-- include pick

local REFILE = 20 -- tenants in a call

-- refile files the next tenants that have jobs. Returns true if there may be more of them.
local function refile(ds, cache, now)
  local last = ds.refile or ''
  if last == '' then return false end
  local from
  if last == BEFORE_ALL then
    from = call('ZCOUNT', K_TENANTS, '-inf', '(' .. int(FOREVER))
  else -- its place, though it may have gone: nothing else sorts between a name and the name with a blank
    call('ZADD', K_TENANTS, int(FOREVER), last .. ' ')
    from = call('ZRANK', K_TENANTS, last .. ' ')
    call('ZREM', K_TENANTS, last .. ' ')
  end
  local names = call('ZRANGE', K_TENANTS, from, from + REFILE - 1)
  for i, name in ipairs(names) do
    if i > 1 and enough(600) then
      put(ds, 'refile', names[i - 1])
      return true
    end
    -- One that is in the fair order already is looked at there.
    if not call('ZSCORE', K_READY, name) then settle(ds, load(ds, cache, name, now), now) end
  end
  put(ds, 'refile', #names == REFILE and names[REFILE] or '')
  return #names == REFILE
end
