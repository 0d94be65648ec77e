-- held: whether a job is in the book that its state names. That of one that was never out is not
-- said by its state.

-- include base

local function held(T, id, j)
  local member = T .. ' ' .. id
  if j.st == 'r' or j.st == 'c' then return call('ZSCORE', K_RUN, member) end
  if j.st == 'o' then return call('ZSCORE', K_OUT, member) and call('ZSCORE', k_outs(T), id) end
  if j.st == 'w' then return call('ZSCORE', k_back(T), id) end
  if j.st == 'z' then return call('ZSCORE', k_later(T), id) end
  return j.st == 'x' and call('ZSCORE', k_dead(T), id)
end
