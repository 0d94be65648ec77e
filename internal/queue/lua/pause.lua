-- pause: let nothing of a tenant, or of the whole downstream, start until an instant; or go on.
-- Safe to repeat.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] tenant, "" = the downstream  [3] µs from now, -1 = without an end, 0 = go on
--
-- Returns µs since the epoch until when it is paused, 0 = it is not
-- Or what was never seen, see unseen; then nothing changes
--
-- Cost: O(1).

-- include tenant

allow_oom()
local now, name, duration = clock(), ARGV[2], tonumber(ARGV[3])
local what = unseen(name)
if what then return what end
local ends = duration < 0 and FOREVER or duration > 0 and now + duration or 0
local ds = downstream(now)
local was
if name == '' then
  was = num(ds, 'until') > now
  put(ds, 'until', ends)
else
  local t = tenant(ds, name, now)
  heal(ds, t, now)
  was = num(t, 'until') > now
  put(t, 'until', ends)
  -- A pause is an order, and keeps the tenant's hash as a policy does.
  if ends > 0 and not t.ver then put(t, 'ver', 1) end
  settle(ds, t, now)
  if ends > 0 then call('PERSIST', t.key) end
end
save(ds)
-- Only a change is logged, so a repeated call is not.
if ends > 0 and not was then log(ds, 'p', name == '' and '-' or name, int(ends)) end
if ends == 0 and was then log(ds, 'r', name == '' and '-' or name) end
if ends == 0 then wake() else tell_paused(name) end
return int(ends)
