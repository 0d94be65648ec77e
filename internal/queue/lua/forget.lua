-- forget: remove a tenant, its policy and its timeline, when nothing of it is left. Safe to repeat.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] tenant
--
-- Returns {} if it is gone, or the counts {waiting and delayed, in flight, dead} that keep it
-- Or what was never seen, see unseen; then nothing changes
--
-- Cost: O(1). The hash stays until the last slot is more than an interval ago, so that a tenant
-- that comes back does not start earlier, and for ten seconds at least, so that a repeated call
-- knows that the tenant was seen; and while ids of its jobs are known.

-- include tenant

allow_oom()
local now, name = clock(), ARGV[2]
local what = unseen(name)
if what and call('EXISTS', k_tenant(name)) == 0 then return what end
local ds = downstream(now)
local t = tenant(ds, name, now)
local dead = call('ZCARD', k_dead(name))
if level(name) > 0 or busy(t) > 0 or dead > 0 then return { level(name), busy(t), dead } end
call('HDEL', t.key, 'ver', 'until', tenant_policy())
call('PEXPIRE', t.key, int(math.ceil(math.max(2 * t.timeline.step, num(t, 'known') - now) / 1000) + 10000))
call('ZREM', K_TENANTS, name)
call('ZREM', K_DUE, name)
call('ZREM', K_READY, name)
return {}
