-- dead: bring dead jobs back to their bucket, or forget them. Safe to repeat.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] tenant  [3] "requeue" or "forget"  [4…] ids, at most BATCH
--
-- Returns {jobs handled, 1 = stopped because the bucket is full}
-- Or what was never seen, see unseen; then nothing changes
--
-- Requeued jobs come to the front, in the order in which they were accepted, with all their
-- attempts again. Dead is an end, so the depth bounds what comes back from there like any arrival.
--
-- Cost: O(ids · log dead).

-- include job

allow_oom()
local now, name = clock(), ARGV[2]
local what = unseen(name)
if what then return what end
local ds = downstream(now)
local t = tenant(ds, name, now)
local n, full = 0, 0
for i = 4, #ARGV do
  local id = ARGV[i]
  local j = state(name, id)
  if j and j.state == 'x' then
    if ARGV[3] == 'forget' then
      call('ZREM', k_dead(name), id)
      finished(ds, t, id, j, 'removed', j.error, now)
    elseif level(name) >= rule_number(ds, t, 'p:depth') then
      full = 1
      break
    else
      call('ZREM', k_dead(name), id)
      j.forgiven, j.crashes, j.throttles, j.suspect, j.blamed, j.reason = j.attempts, 0, 0, 0, 0, '-'
      to_front(name, id, j)
    end
    n = n + 1
  end
end
if n > 0 and ARGV[3] ~= 'forget' then put(t, 'own_wait', '1') end -- perhaps one was never started
if settle(ds, t, now) then wake() end
save(ds)
return { n, full }
