-- giveback: a ticket whose holder will not use it returns its job to the front. Safe to repeat: by the release number.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] tenant  [3] id  [4] release number
--
-- Returns 1 if the job went back, 0 if the ticket was void
--
-- Cost: O(log out).

allow_oom()
local now, T, id = clock(), ARGV[2], ARGV[3]
local j = state(T, id)
if not j or j.st ~= 'o' or j.rel ~= tonumber(ARGV[4]) then return 0 end
local ds = downstream(now)
local t = tenant(ds, T, now)
left(ds, t, id, j)
to_front(T, id, j)
if settle(ds, t, now) or ds.blocked == '1' then wake() end
put(ds, 'blocked', '0')
save(ds)
return 1
