-- gate: the one door to a handler. A ticket's holder asks to start a job of its tenant and is
-- granted a slot; or, holding a slot that it missed by more than the tolerance, asks for another
-- one. Safe to repeat: by the new token.
--
-- A ticket says "wake up for this tenant" and starts the oldest job that is out. So tickets may
-- race to the gate, be lost, doubled or years late, and the jobs still start in their order, each
-- once, in slots of their own. Which job a ticket was released for matters only where tickets get
-- lost: if another job is started on it, its own job waits for the ticket of that other one, and
-- inherits its deadline. A ticket that starts nothing, since its tenant is paused or the slot is
-- far ahead, sends back the youngest job that is out, so nothing overtakes.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] tenant  [3] id  [4] the ticket's release number
-- ARGV[5] token that owns the job, "-" for a ticket  [6] token that will own it, "pool.random"
--
-- Returns granted (slot.lua), or
--   {"gone"}       no job of the tenant is out, so the ticket is void; or the token owns nothing
--   {"back", why}  a job went back to the front: "parked" or "paused", or "early": its slot is too
--                  far ahead to hold a worker
--   {"expired"}    the job waited too long and ended
--
-- Cost: O(log running).

-- include slot

allow_oom()
local now, name, id, old, new = clock(), ARGV[2], ARGV[3], ARGV[5], ARGV[6]
local receipt = k_receipt(new) -- for a repeated call
local ticket = old == '-'
local ds = downstream(now)
local t = tenant(ds, name, now)

local function mine(j) return j and (j.state == 'r' or j.state == 'c') and j.token == new end
local j, body = state(name, id), call('HGET', k_jobs(name), id)
if ticket and not mine(j) then
  local before = call('GET', receipt)
  j = before and state(name, before)
  if mine(j) then
    id, body = before, call('HGET', k_jobs(name), before)
  else
    id, j, body = oldest_out(name)
  end
end
if not j or not body then return { 'gone' } end
if mine(j) then return granted(ds, t, id, j, now, body) end

local function freed(reply)
  if settle(ds, t, now) or ds.blocked == '1' then wake() end
  put(ds, 'blocked', '0')
  save(ds)
  return reply
end

-- unused logs that a start whose slot was missed never happened.
local function unused(became) if ds.log then log(ds, 'f', name, id, int(j.attempts), became, '-', int(now - j.slot)) end end

if j.state == 'c' and j.token == old then -- cancelled, and it missed its slot: it need not start to end
  unused('cancelled')
  left(ds, t, id, j)
  called_off(j)
  finished(ds, t, id, j, 'cancelled', '', now)
  return freed({ 'gone' })
end
if not (ticket and j.state == 'o' or j.state == 'r' and j.token == old) then return { 'gone' } end

-- back: nothing starts. A job that had a slot returns to the front; a ticket sends the youngest
-- back.
local function back(why)
  if ticket then
    recede(ds, t, ARGV[3], ARGV[4])
  else
    unused('back')
    left(ds, t, id, j)
    called_off(j)
    to_front(name, id, j)
  end
  return freed({ 'back', why })
end

if ticket and j.attempts == 0 and overdue(ds, t, read_header(body), now) then
  inherit(name, id, ARGV[3], ARGV[4])
  left(ds, t, id, j)
  finished(ds, t, id, j, 'expired', '', now)
  return freed({ 'expired' })
end
if t.parked then return back('parked') end
if num(t, 'until') > now or num(ds, 'until') > now then return back('paused') end
local slot = next_slot(ds, t, now)
if slot - now > ds.hold then return back('early') end
if ticket then
  inherit(name, id, ARGV[3], ARGV[4])
  left(ds, t, id, j)
  entered(ds, t, j, new)
  if id ~= ARGV[3] then call('SET', receipt, id, 'PX', 60000) end
end
if not ticket then call('HDEL', K_GAVE, old) end
run(ds, t, id, j, slot, new, now)
if settle(ds, t, now) then wake() end
save(ds)
return granted(ds, t, id, j, now, body)
