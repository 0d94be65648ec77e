-- slot: the one place where a start is granted. Used by gate, and by finish when a worker asks for
-- more work.

-- include tenant job

-- next_slot is the slot that a start of t would get now: the first instant that satisfies the
-- tenant's timeline, and the downstream's where it has one, and that a worker can use.
local function next_slot(ds, t, now)
  local slot = earliest(t.timeline, now, ds.grace)
  if ds.timeline then slot = math.max(slot, earliest(ds.timeline, now, ds.grace)) end
  if ds.need > 0 then slot = math.max(slot, now + ds.need) end
  return slot
end

-- kept is how many µs a tenant that the downstream's timeline puts off keeps its place on its own:
-- with shared spacing an interval of the downstream, but no more than one of its own.
local function kept(ds, t)
  if not ds.timeline or ds.spacing ~= 'shared' then return 0 end
  return math.floor(math.min(ds.timeline.step, t.timeline.step))
end

-- slipped is by how many µs a slot comes after the departure that was the job's turn: it waited, and
-- nobody asked for that departure in time. 0 if it came at its turn, or had none that is known.
local function slipped(ds, t, j, slot)
  local turn = math.max(t.timeline.next, ds.timeline and ds.timeline.next or t.timeline.next)
  local waited = j.state ~= 'r' and j.attempts == 1 and j.since <= turn and math.max(num(t, 'until'), num(ds, 'until')) < turn
  return waited and slot - turn > 1 and slot - turn or 0 -- a turn may have a fraction
end

-- run enters a job as running from slot on, owned by `token`. A job that runs already has missed
-- its slot.
local function run(ds, t, id, j, slot, token, now)
  local keep = kept(ds, t)
  if ds.log then
    log(ds, 'g', t.name, id, int(j.attempts), int(slot), int(slot - now), t.timeline.rate, ds.timeline and ds.timeline.rate or '-', int(ds.tau),
      j.state == 'r' and int(j.slot) or '0', keep > 0 and int(keep) or nil)
  end
  j.slipped = slipped(ds, t, j, slot)
  grant(t, t.timeline, slot, now, keep)
  if ds.timeline then grant(ds, ds.timeline, slot, now, 0) end
  j.state, j.slot, j.token, j.next = 'r', slot, token, '-'
  call('ZADD', K_RUN, int(math.max(slot, now) + ds.lease), t.name .. ' ' .. id)
  if j.suspect > 0 then call('ZADD', K_APART, j.suspect, t.name .. ' ' .. id) end
  store(t.name, id, j)
end

-- entered records that a job which was not running is granted its next start. With kept its pool
-- has kept a place for it, see left. Whether the start happens is not known yet, see began and
-- called_off.
local function entered(ds, t, j, token, kept)
  j.attempts, j.granted = j.attempts + 1, true
  add(t, 'run', 1)
  add(ds, 'run', 1)
  if not kept then place(token, 1) end
end

-- granted is the reply about a start: "run", tenant, id, slot - now (µs, negative if it passed),
-- slot, attempt, starts charged, τ (µs), lease (µs), the tenant's timeout and backoff (ms) and
-- maximum of attempts, body, and by how many µs the slot slipped; 0 in a repeated answer.
local function granted(ds, t, id, j, now, body)
  return { 'run', t.name, id, int(j.slot - now), int(j.slot), int(j.attempts), int(j.attempts - j.forgiven), int(ds.tau), int(ds.lease),
    rule(ds, t, 'p:timeout'), rule(ds, t, 'p:bmin'), rule(ds, t, 'p:bmax'), rule(ds, t, 'p:attempts'), body,
    int(j.slipped or 0) }
end
