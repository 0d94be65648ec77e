-- policy: set fields of the downstream or of a tenant, by hand. Safe to repeat.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] tenant, "" = the downstream
-- ARGV[3…] field, value …; an empty value unsets the field
--
-- Returns 1
--
-- Cost: O(fields); for the downstream O(tenants that have something to release) besides.

-- include policies

allow_oom()
local now, name = clock(), ARGV[2]
local ds = survey(now)
if name == '' then
  write_downstream(3, #ARGV, now, false)
else
  save(ds)
  write_tenant(ds, name, 3, #ARGV, now, false)
end
wake()
return 1
