-- enqueue, the common case: the tenant is busy, jobs wait before the new ones, there is room, no admission rule to ask, and
-- the tenant's own rate decides when they start. Then nothing changes about when the head may leave, so a few commands do;
-- what follows in this script, also the making of its functions, is never reached. A job that is anything else (delayed, known
-- already, with a wait of its own) ends the loop, and the rest takes the long way.

local FIELDS = 5 -- of a job in ARGV, see enqueue.lua
local now, T = clock(), ARGV[2]
local reply, nth = {}, 3 -- nth: where in ARGV the next job begins
-- Jobs of one call are accepted a µs apart, so that those that come back are told apart by it, see to_front.
do
  local jobs, ids, prefix = k_jobs(T), {}, k_end(T, '')
  local waiting = call('LLEN', k_wait(T)) + call('ZCARD', k_back(T))
  local t = call('HMGET', k_tenant(T), 'busy', 'ver', 'p:depth', 'p:rate', 'until', 'due', 'by_time')
  local d = call('HMGET', K_DS, 'unknown', 'p:depth', 'p:rate', 'admit', 'rate', 'until', 'alive')
  local paused, by_time, note = math.max(tonumber(t[5] or 0), tonumber(d[6] or 0)), tonumber(t[7] or 0), '' -- see expect.lua
  local events, period = string.match(t[4] or d[3] or fallback('p:rate'), '^(%d+)/(%d+)$')
  local due, step = tonumber(t[6] or 0), period / events
  if paused >= FOREVER then
    note = 'paused'
  elseif tonumber(d[7] or 0) < now then
    note = 'no_workers'
  elseif d[5] or paused <= now and due < now - 2 * step - 100000 then
    by_time = 0 -- tenants share a rate; or the head should have left, and something holds it
  end
  if t[1] and waiting > 0 and not d[4] and (t[2] or d[1] ~= 'refuse') then
    local room = tonumber(t[3] or d[2] or fallback('p:depth')) - call('ZCARD', k_later(T)) - waiting
    if note == '' then room = math.min(room, by_time - waiting) end
    local first = math.max(due, now, paused)
    while nth <= #ARGV and #ids < room do
      local id, body = ARGV[nth], ARGV[nth + 4]
      if ARGV[nth + 1] ~= '0' or ARGV[nth + 2] ~= '0' or string.sub(body, 1, 2) ~= '0 ' or call('EXISTS', prefix .. id) == 1
        or call('HSETNX', jobs, id, int(now + (nth - 3) / FIELDS) .. ' ' .. body) == 0 then
        break
      end
      ids[#ids + 1] = id
      reply[#reply + 1] = { 'accepted', waiting + #ids, note == '' and int(first + (waiting + #ids - 1) * step) or '0', '0', 'w', note }
      nth = nth + FIELDS
    end
    if #ids > 0 then
      call('RPUSH', k_wait(T), unpack(ids))
      call('HINCRBY', k_tenant(T), 'accepted', #ids)
      call('HINCRBY', K_DS, 'accepted', #ids)
    end
  end
  if nth > #ARGV then return reply end
end
