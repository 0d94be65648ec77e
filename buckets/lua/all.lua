-- all: asks several limits, of any algorithms, for all or nothing.
--
-- KEYS[i]   the key of request i; no two the same
-- ARGV[1]   now in µs since the epoch, or '' for the time of this server
-- ARGV[2…]  for request i the name of its algorithm, then its arguments: nine places
-- returns   for request i the reply of its algorithm: whether it alone would pass, and its
--           state as it now is
-- cost      linear in the requests; each with twice the reads that its algorithm states
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

local all, reply = true, {}
for i = 1, #KEYS do
  local at = 2 + (i - 1) * 9
  all = all and algorithms[ARGV[at]](KEYS[i], now, at + 1, false, false)
end
for i = 1, #KEYS do
  local at = 2 + (i - 1) * 9
  local _, row = algorithms[ARGV[at]](KEYS[i], now, at + 1, all, true)
  reply[i] = row
end
return reply
