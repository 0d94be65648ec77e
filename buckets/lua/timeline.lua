-- timeline: when the next departure may be. The same function as Timeline of timeline.go, over a
-- hash.
--
-- The script that includes it must define put(h, field, value) and num(h, field), where the table h
-- stands for a hash in Redis. Fields of the hash, all but `seen` absent until the first grant:
--   slot  µs  the last slot granted
--   next  µs  whole part of the next departure, rem its remainder in 1/events µs (exact: no drift)
--   r         the rate "events/period-µs" that next was computed with
--   seen  µs  when slot was granted, or the timeline was last noted after a restart

local function after(slot, ev, per) return slot + math.floor(per / ev), per % ev end

local function note(h, tl)
  if tl.slot then
    put(h, 'slot', tl.slot)
    put(h, 'next', tl.next)
    put(h, 'rem', tl.rem)
    put(h, 'r', tl.rate)
  end
  put(h, 'seen', tl.seen)
end

local function depart(tl, slot)
  tl.slot = slot
  tl.next, tl.rem = after(slot, tl.ev, tl.per)
end

-- timeline brings h up to now and to the rate that applies now. It changes only the table, not
-- Redis. It notes there that the clock stepped back, so that saving h starts the wait; unsaved, the
-- wait would never end.
--   epoch  µs since which this Redis is known to have forgotten nothing; 0 = it never did
--   ahead  µs by which a slot may lie ahead of the call that granted it
--   grace  µs, see earliest
--   most   µs that a timeline with no grant waits at most for one that it may have forgotten;
--          nil = an interval
-- After an epoch tl.doubted says that the script must note the timeline; see Timeline.Settled.
local function timeline(h, rate, now, epoch, ahead, grace, most)
  local ev, per = string.match(rate, '^(%d+)/(%d+)$')
  ev, per = tonumber(ev), tonumber(per)
  local tl = { ev = ev, per = per, rate = rate, step = per / ev,
    slot = tonumber(h.slot), next = tonumber(h.next) or -math.huge, rem = num(h, 'rem'), seen = num(h, 'seen') }
  local kept = tl.next
  if tl.slot and now < tl.seen then
    -- The clock stepped back. What lay ahead then lies as far ahead now; the time in between does
    -- not count.
    kept = kept - (tl.seen - now)
    depart(tl, tl.slot - (tl.seen - now))
    tl.seen = now
    note(h, tl)
  elseif tl.slot and h.r ~= rate then
    depart(tl, tl.slot)
  end
  tl.seen = math.min(tl.seen, now)
  if tl.seen < epoch then
    -- Redis restarted or failed over since. A grant that it forgot lies before epoch + ahead, and
    -- not before the next departure that it has kept. So either there was none, or one is assumed,
    -- at the latest such instant. The rate may have changed before the grant was forgotten or
    -- after, so the nearer departure counts.
    tl.seen, tl.doubted = now, true
    local latest = epoch + ahead
    if math.min(kept, tl.next) < latest then
      local step = math.floor(per / ev)
      if not tl.slot and most and step > most then latest = latest - (step - most) end
      local held, rem = after(latest, ev, per)
      if held + (rem > 0 and 1 or 0) >= now - grace then depart(tl, latest) end
    end
  end
  return tl
end

-- earliest returns the slot that a grant would get: the next departure, even if it passed up to
-- `grace` ago (so that lateness is made up), else now. Idle time earns nothing.
local function earliest(tl, now, grace)
  local at = tl.next + (tl.rem > 0 and 1 or 0)
  if at < now - grace then return now end
  return at
end

-- grant takes a slot. keep is how long ago the departure may have been due and the next one still
-- counts from that, in µs before slot, see Terms.Keep.
local function grant(h, tl, slot, now, keep)
  if tl.slot and tl.next + (tl.rem > 0 and 1 or 0) >= slot - keep then
    local rem = tl.rem + tl.per
    tl.next, tl.rem = tl.next + math.floor(rem / tl.ev), rem % tl.ev
  else
    tl.next, tl.rem = after(tl.slot and slot - keep or slot, tl.ev, tl.per)
  end
  tl.slot, tl.seen = slot, now
  note(h, tl)
end
