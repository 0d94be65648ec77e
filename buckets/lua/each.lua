-- each: asks one algorithm, `ask`, about one key or several, each on its own, one after the other.
--
-- KEYS[i]   the key of request i
-- ARGV[1]   now in µs since the epoch, or '' for the time of this server
-- ARGV[2…]  for request i the arguments of the algorithm: eight places
-- returns   for request i the reply of the algorithm, or where that failed the text of the error,
--           since one broken key must not fail the others; a single request gets its reply
--           alone, not in a list
-- cost      linear in the requests; each costs what its algorithm states
-- `write` says whether anything may be written; it is false in a script that only looks.
local now = tonumber(ARGV[1])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end

if #KEYS == 1 then -- the common case
  local _, reply = ask(KEYS[1], now, 2, true, write)
  return reply
end
local reply = {}
for i = 1, #KEYS do
  local good, failure, row = pcall(ask, KEYS[i], now, 2 + (i - 1) * 8, true, write)
  if good then
    reply[i] = row
  else
    reply[i] = type(failure) == 'table' and failure.err or tostring(failure)
  end
end
return reply
