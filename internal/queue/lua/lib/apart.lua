-- apart: suspects run again apart, so that the next crash says which of them is to blame.
--
-- A suspect is a job whose worker vanished, and of which no start came to an end since (j.suspect).
-- The first time, few of them are in flight at once: the square root of the places, since then two
-- rounds find the culprit among as many as there are places. The second time, or if it ran alone,
-- it is the only one in flight. Whoever finds no room is back from a backoff of a second, and the
-- one whose last start is the longest ago has the next turn, if it asks for it in time. Jobs that
-- are no suspects are not held back.
--
-- The downstream's fields turn and turn_until: the last slot of the suspect that has the next turn,
-- and until when.

-- include job

local ASK_AGAIN = 1000000 -- µs after which a suspect that found no room asks again
local TURN = 10000000     -- µs that others leave the next turn to it

-- has_room tells whether a suspect may be in flight now.
local function has_room(ds, j, now)
  local kept = call('HMGET', K_DS, 'turn', 'turn_until')
  local turn, ends = tonumber(kept[1] or 0), tonumber(kept[2] or 0)
  local reserved = turn and ends and ends > now and ends <= now + TURN -- beyond that the clock stepped back
  if reserved and j.slot > turn then return false end
  local last = call('ZRANGE', K_APART, -1, -1, 'WITHSCORES')
  if last[1] and not (call('ZSCORE', K_RUN, last[1]) or call('ZSCORE', K_OUT, last[1])) then
    call('ZREM', K_APART, last[1]) -- the books were wrong; another one, if there is, is found by who asks next
  elseif last[1] and (j.suspect > 1 or tonumber(last[2]) > 1
    or call('ZCARD', K_APART) >= math.floor(math.sqrt(num(ds, 'places')))) then
    call('HSET', K_DS, 'turn', int(j.slot), 'turn_until', int(now + TURN))
    return false
  end
  if reserved then call('HDEL', K_DS, 'turn', 'turn_until') end
  return true
end

-- set_aside has a suspect ask again later.
local function set_aside(ds, t, id, j, now)
  j.state = 'z'
  store(t.name, id, j)
  back_off(ds, t, id, now + ASK_AGAIN)
end
