-- held: whether a job is in the book that its state names. It says nothing of a job that was never
-- out, which has no state.

-- include base

local function held(name, id, j)
  local member = name .. ' ' .. id
  if j.state == 'r' or j.state == 'c' then return call('ZSCORE', K_RUN, member) end
  if j.state == 'o' then return call('ZSCORE', K_OUT, member) and call('ZSCORE', k_outs(name), id) end
  if j.state == 'w' then return call('ZSCORE', k_back(name), id) end
  if j.state == 'z' then return call('ZSCORE', k_later(name), id) end
  return j.state == 'x' and call('ZSCORE', k_dead(name), id)
end
