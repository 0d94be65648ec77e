-- giveback: a ticket whose holder will not use it. The youngest job of its tenant that is out
-- returns to the front, so that as many jobs are out as tickets; see gate. Safe to repeat: one job
-- too many goes back, and is released again.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] tenant  [3] id  [4] release number
--
-- Returns 1 if a job went back, 0 if none is out
--
-- Cost: O(log out).

-- include job

allow_oom()
local now = clock()
local ds = downstream(now)
local t = tenant(ds, ARGV[2], now)
if not recede(ds, t, ARGV[3], ARGV[4]) then return 0 end
if settle(ds, t, now) or ds.blocked == '1' then wake() end
put(ds, 'blocked', '0')
save(ds)
return 1
