-- timeline: when the next departure may be. The same function as Timeline of timeline.go, over a hash.
--
-- Needs put(h, field, value) and num(h, field) of whoever includes it, which keep a table h for a hash in Redis.
-- Fields of the hash, all absent until the first grant:
--   slot  µs  the last slot granted
--   next  µs  whole part of the next departure, rem its remainder in 1/events µs (exact: no drift)
--   r         the rate "events/period-µs" that next was computed with
--   seen  µs  when slot was granted

local function after(slot, ev, per) return slot + math.floor(per / ev), per % ev end

local function note(h, tl)
  put(h, 'slot', tl.slot)
  put(h, 'next', tl.next)
  put(h, 'rem', tl.rem)
  put(h, 'r', tl.rate)
  put(h, 'seen', tl.seen)
end

-- timeline brings h up to now and to the rate that applies now. It changes only the table, not Redis. A clock that
-- stepped back is noted in it, so that whoever saves h starts the wait; noted by nobody, the wait would never end.
--   epoch  µs since when this Redis is known to have forgotten nothing; 0 = it never did
--   ahead  µs by which a grant may lie in the future of the call that granted it
local function timeline(h, rate, now, epoch, ahead)
  local ev, per = string.match(rate, '^(%d+)/(%d+)$')
  ev, per = tonumber(ev), tonumber(per)
  local tl = { ev = ev, per = per, rate = rate, step = per / ev,
    slot = tonumber(h.slot), next = tonumber(h.next) or -math.huge, rem = num(h, 'rem'), seen = tonumber(h.seen) }
  if tl.slot and now < tl.seen then
    -- The clock stepped back. What lay ahead then lies ahead now; the time in between counts as none.
    tl.slot, tl.seen = tl.slot - (tl.seen - now), now
    tl.next, tl.rem = after(tl.slot, ev, per)
    note(h, tl)
  elseif tl.slot and h.r ~= rate then
    tl.next, tl.rem = after(tl.slot, ev, per)
  end
  if epoch > 0 and (not tl.seen or tl.seen < epoch) then
    -- Redis restarted or failed over since: a grant that it forgot may lie up to `ahead` after epoch.
    local hold, rem = after(epoch + ahead, ev, per)
    if hold >= tl.next then tl.next, tl.rem = hold, rem end
  end
  return tl
end

-- earliest returns the slot that a grant would get: the next departure, also if it passed at most `grace` ago (so that
-- lateness is made up), else now. Idle time earns nothing.
local function earliest(tl, now, grace)
  local at = tl.next + (tl.rem > 0 and 1 or 0)
  if at < now - grace then return now end
  return at
end

local function grant(h, tl, slot, now)
  if slot == tl.next + (tl.rem > 0 and 1 or 0) then
    local rem = tl.rem + tl.per
    tl.next, tl.rem = tl.next + math.floor(rem / tl.ev), rem % tl.ev
  else
    tl.next, tl.rem = after(slot, tl.ev, tl.per)
  end
  tl.slot, tl.seen = slot, now
  note(h, tl)
end
