-- base: keys, clock and numbers of every script.
--
-- Every script has the same two first arguments:
--   KEYS[1]  prefix of one downstream, "shaper:{D}:". It carries the hash tag, so all keys of a downstream
--            share a slot and a script may build the others from it. Twin: keys.go.
--   KEYS[2]  not read: see Queue.Keys
--   ARGV[1]  the instant in µs since the epoch that a test pretends, or "0" for Redis' own clock
--
-- Lua's numbers are doubles: µs since the epoch fit, but `..` and tostring cut them to 14 digits.
-- int() does not.
local P = KEYS[1]
local call = redis.call

local K_DS      = P .. 'd'        -- HASH   the downstream: policy, timeline, counts
local K_DUE     = P .. 'due'      -- ZSET   tenant -> µs when its head may leave; tenants with something to release only
local K_READY   = P .. 'ready'    -- ZSET   tenant -> virtual time; those whose time has come, in fair order
local K_OUT     = P .. 'out'      -- ZSET   "tenant id" -> µs by which its ticket must have come to the gate
local K_RUN     = P .. 'run'      -- ZSET   "tenant id" -> µs at which its lease ends
local K_POOLS   = P .. 'pools'    -- HASH   pool -> "places µs", pool:n -> jobs that it runs
local K_TENANTS = P .. 'tenants'  -- ZSET   tenant -> µs since when it is idle, FOREVER while it is busy
local K_LOG     = P .. 'log'      -- STREAM the departure log, see log.lua
local K_NAMED   = P .. 'named'    -- ZSET   tenant that the configuration names -> generation of the one that set it last
local K_CONFIGS = P .. 'configs'  -- ZSET   digest of a configuration -> µs when a daemon with it looked last
local SIGNAL    = P .. 'sig'      -- channel: "w" something is due earlier, "t" tickets are on their way, "c tenant id" cancel,
                                  -- "p" all is paused, "p tenant" that tenant is

local function k_tenant(T) return P .. 't:' .. T end  -- HASH  policy, timeline, counts
local function k_wait(T) return P .. 'w:' .. T end    -- LIST  waiting ids that were never out, head leaves next
local function k_back(T) return P .. 'b:' .. T end    -- ZSET  id -> since; those that came back, ahead of all that were never out
local function k_later(T) return P .. 'z:' .. T end   -- ZSET  id -> µs; delayed, or waiting out a backoff
local function k_jobs(T) return P .. 'j:' .. T end    -- HASH  id -> body, written once
local function k_state(T) return P .. 's:' .. T end   -- HASH  id -> state; absent until a job first leaves its bucket
local function k_outs(T) return P .. 'o:' .. T end  -- ZSET  id -> since; those of the tenant whose tickets are out, oldest first
local function k_dead(T) return P .. 'x:' .. T end    -- ZSET  id -> µs when it died
local function k_receipt(tok) return P .. 'g:' .. tok end -- STRING with TTL: the job that a ticket of another one was granted
local function k_end(T, id) return P .. 'e:' .. T .. ':' .. id end -- STRING with TTL: how a job ended

local function k_admit(rule, T) return P .. 'a:' .. rule .. ':' .. T end -- state of an admission rule, with TTL; T is '' for one that tenants share

local FOREVER = 9e15 -- `until` of a pause without an end
local BATCH = 50 -- items that one call handles at most; the loop is in Go

local function int(n) return string.format('%d', n) end

local function clock()
  if ARGV[1] ~= '0' then return tonumber(ARGV[1]) end
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end
