-- find: the parts of a job, all of the same instant. Changes nothing. It is a script because Redis
-- refuses MULTI when its memory is used up.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] tenant  [3] id
--
-- Returns {body, state, how it ended (as k_end has it, see ends.lua), µs when it is due, µs when it
-- died, place}; "" for what there is not; place counts from 1, 0 = it does not wait
--
-- Cost: O(1) for one of the first thousand, else O(waiting / 100), see place.lua.

-- include place ends

readable(call('HGET', K_DS, 'schema'))
local name, id = ARGV[2], ARGV[3]
local body = call('HGET', k_jobs(name), id)
if not body then
  local ended = end_of(name, call('HGET', k_tenant(name), 'pages'), id, clock())
  return { '', '', ended and ended.line or '', '', '', 0 }
end
local line = call('HGET', k_state(name), id) or ''
local due = call('ZSCORE', k_later(name), id) or ''
local waits = due == '' and (line == '' or string.sub(line, 1, 2) == 'w ')
return { body, line, '', due, call('ZSCORE', k_dead(name), id) or '', waits and place_of(name, id, read_header(body).since) or 0 }
