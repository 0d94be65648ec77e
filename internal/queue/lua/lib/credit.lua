-- credit: how many tickets may be out. By Little's law that is how many come to the gate in a
-- second, times the seconds that one takes. So tickets take as long as we let them: there are no
-- more of them than would come in that time. See ADR 15.
--
-- The downstream's field pace is how many tickets came in about the last span, in thousandths: what
-- came before fades. sent is how many were out after the last release: of those, whatever is not
-- out now has come, or is not waited for any more.

-- include hash

local FLOOR = 2 * BATCH -- tickets that may be out in any case: what one call released may be lost, and another goes on

-- span is a quarter of the time that a ticket has. Twice what came in one may be out: so tickets
-- take half their time at most while the gate is as quick as it was, and while they take less,
-- there may be more and more.
local function span(ticket_ttl) return math.max(1, math.floor(ticket_ttl / 4)) end

-- look is after how long a scheduler looks again while no more may be out.
local function look(ticket_ttl) return math.max(1, math.floor(ticket_ttl / 100)) end

-- credited is how many tickets may be out, those that are out already included. last is when it was
-- called last.
local function credited(ds, last, now, ticket_ttl)
  local whole, passed = span(ticket_ttl), now - last
  local came = math.max(0, num(ds, 'sent') - num(ds, 'out'))
  local pace = num(ds, 'pace') - math.floor(num(ds, 'pace') * math.min(passed, whole) / whole)
  put(ds, 'pace', pace + math.floor(1000 * came * whole / math.max(passed, whole)))
  return math.max(FLOOR, math.floor(num(ds, 'pace') / 500))
end

-- credit_left is how many more may go out. Where none may, one does if none did since the last
-- look: those that are out may all be lost, and a tenant that is not to blame for that has its
-- turn.
local function credit_left(ds, credit, now, ticket_ttl)
  local left = credit - num(ds, 'out')
  if ds.losing then left = left + call('ZCOUNT', K_OUT, '-inf', int(now)) end -- those were lost, and another call brings them back
  if left > 0 then return left end
  local youngest = call('ZREVRANGE', K_OUT, 0, 0, 'WITHSCORES')[2]
  return youngest and now - (youngest - ticket_ttl) < look(ticket_ttl) and 0 or 1
end
