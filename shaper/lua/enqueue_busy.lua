-- enqueue, the common case: the tenant is busy, jobs wait before the new ones, there is room, and no admission rule to ask. Then nothing changes
-- about when the head may leave, so a few commands do; what follows in this script, also the making of its functions, is
-- never reached. A job that is anything else (delayed, known already) ends the loop, and the rest takes the long way.

local FIELDS = 5 -- of a job in ARGV, see enqueue.lua
local now, T = clock(), ARGV[2]
local reply, nth = {}, 3 -- nth: where in ARGV the next job begins
-- Jobs of one call are accepted a µs apart, so that those that come back are told apart by it, see to_front.
do
  local wait = k_wait(T)
  local waiting = call('LLEN', wait)
  if waiting > 0 then
    local t = call('HMGET', k_tenant(T), 'busy', 'ver', 'p:depth', 'p:rate', 'until', 'due')
    local d = call('HMGET', K_DS, 'unknown', 'p:depth', 'p:rate', 'admit')
    local room = tonumber(t[3] or d[2] or 1000) - waiting - call('ZCARD', k_later(T))
    if t[1] and not d[4] and (t[2] or d[1] ~= 'refuse') and tonumber(t[5] or 0) <= now then
      local events, period = string.match(t[4] or d[3] or '10/1000000', '^(%d+)/(%d+)$')
      local due, step = tonumber(t[6] or 0), period / events
      local jobs, ids, prefix = k_jobs(T), {}, k_end(T, '')
      while nth <= #ARGV and #ids < room do
        local id = ARGV[nth]
        if ARGV[nth + 1] ~= '0' or ARGV[nth + 2] ~= '0' or call('EXISTS', prefix .. id) == 1
          or call('HSETNX', jobs, id, int(now + (nth - 3) / FIELDS) .. ' ' .. ARGV[nth + 4]) == 0 then
          break
        end
        ids[#ids + 1] = id
        reply[#reply + 1] = { 'accepted', waiting + #ids, int(math.max(due, now) + (waiting + #ids - 1) * step), '0' }
        nth = nth + FIELDS
      end
      if #ids > 0 then
        call('RPUSH', wait, unpack(ids))
        call('HINCRBY', k_tenant(T), 'accepted', #ids)
        call('HINCRBY', K_DS, 'accepted', #ids)
      end
    end
  end
  if nth > #ARGV then return reply end
end
