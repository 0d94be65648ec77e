-- gate: the one door to a handler. A ticket's holder asks to start its job and is granted a slot; or, holding a
-- slot that it missed by more than the tolerance, asks for another one. Safe to repeat: by the new token.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] tenant  [3] id  [4] the ticket's release number
-- ARGV[5] token that owns the job, "-" for a ticket  [6] token that will own it, "pool.random"
--
-- Returns granted (slot.lua), or
--   {"gone"}              the ticket is void: its job is elsewhere
--   {"back", why}         the job went back to the front: "paused", or "early" (its slot is too far ahead to hold a worker)
--   {"expired"}           the job waited too long and ended
--
-- Cost: O(log running).

allow_oom()
local now, T, id, old, new = clock(), ARGV[2], ARGV[3], ARGV[5], ARGV[6]
local j = state(T, id)
if not j then return { 'gone' } end
local ds = downstream(now)
local t = tenant(ds, T, now)
local body = call('HGET', k_jobs(T), id)
if (j.st == 'r' or j.st == 'c') and j.tok == new then return granted(ds, t, id, j, now, body) end

if body and j.st == 'c' and j.tok == old then -- cancelled, and its slot was missed: it need not start to end
  left(ds, t, id, j)
  finished(ds, t, id, j, 'cancelled', '', now)
  if settle(ds, t, now) or ds.blocked == '1' then wake() end
  put(ds, 'blocked', '0')
  save(ds)
  return { 'gone' }
end
local ticket = j.st == 'o' and old == '-' and j.rel == tonumber(ARGV[4])
if not body or not (ticket or (j.st == 'r' and j.tok == old)) then return { 'gone' } end

-- back returns the job to the front of its bucket; a start that did not happen is forgiven.
local function back(why)
  left(ds, t, id, j)
  if not ticket then j.fg = j.fg + 1 end
  to_front(T, id, j)
  local woken = settle(ds, t, now)
  if woken or ds.blocked == '1' then wake() end
  put(ds, 'blocked', '0')
  save(ds)
  return { 'back', why }
end

if ticket and j.att == 0 and overdue(ds, t, header(body), now) then
  left(ds, t, id, j)
  finished(ds, t, id, j, 'expired', '', now)
  if settle(ds, t, now) or ds.blocked == '1' then wake() end
  put(ds, 'blocked', '0')
  save(ds)
  return { 'expired' }
end
if num(t, 'until') > now or num(ds, 'until') > now then return back('paused') end
local slot = next_slot(ds, t, now)
if slot - now > ds.hold then return back('early') end
if ticket then
  left(ds, t, id, j)
  j.att = j.att + 1
  entered(ds, t, new)
end
run(ds, t, id, j, slot, new, now)
if settle(ds, t, now) then wake() end
save(ds)
return granted(ds, t, id, j, now, body)
