-- base: keys, clock and numbers of every script.
--
-- Every script has the same first arguments:
--   KEYS[1]  prefix of one downstream's keys, "shaper:{D}:". It carries the hash tag, so they all
--            share a slot, and a script may build the others from it. Twin: keys.go.
--   KEYS[2]  not read: see Queue.Keys
--   ARGV[1]  the instant in µs since the epoch that a test pretends, or "0" for Redis' own clock
--
-- Names that mean the same in every script:
--   ds, t  the tables of the downstream and of a tenant, see tenant.lua; h is either
--   name   a tenant's name
--   id, j  a job's id, and the table of its state, see job.lua
--   now    the instant of the call, µs since the epoch
--
-- Lua's numbers are doubles: µs since the epoch fit, but `..` and tostring cut them to 14 digits.
-- int() does not.
local PREFIX = KEYS[1]

-- Redis serves nobody else while a script runs. So a call has a budget of commands: it makes no more
-- than BUDGET, whatever there is to do, and the loop is in Go. Work that can be put off asks enough()
-- before each item; what is put off stays where it is, and the reply says that there is more.
local BUDGET = 1200 -- twin: scripts.go
local commands = 0  -- that were made so far, or are sure to come

local function call(...)
  commands = commands + 1
  return redis.call(...)
end

-- try is a call that returns an error instead of ending the script with it.
local function try(...)
  commands = commands + 1
  return redis.pcall(...)
end

-- enough tells whether a call should begin nothing more, if `kept` commands must be left for what is
-- more urgent and comes later. One item, and what ends a call, take a hundred at most.
local function enough(kept) return commands + (kept or 0) > BUDGET - 100 end

local K_DS      = PREFIX .. 'd'        -- HASH   the downstream: policy, timeline, counts
local K_DUE     = PREFIX .. 'due'      -- ZSET   tenant -> µs when its head may leave; only those with something to release
local K_READY   = PREFIX .. 'ready'    -- ZSET   tenant -> virtual time; those whose time has come, in fair order
local K_OUT     = PREFIX .. 'out'      -- ZSET   "tenant id" -> µs by which its ticket must have come to the gate
local K_RUN     = PREFIX .. 'run'      -- ZSET   "tenant id" -> µs at which its lease ends
local K_APART   = PREFIX .. 'apart'    -- ZSET   "tenant id" -> 1 or 2; suspects in flight, see apart.lua
local K_POOLS   = PREFIX .. 'pools'    -- HASH   pool -> "places µs", pool:n -> jobs that it runs, pool:d -> µs of its round trip, pool:x -> 1: it lost some
local K_TENANTS = PREFIX .. 'tenants'  -- ZSET   tenant -> µs since when it is idle, FOREVER while it is busy
local K_LOG     = PREFIX .. 'log'      -- STREAM the departure log, see log.lua
local K_NAMED   = PREFIX .. 'named'    -- ZSET   tenant -> generation of the configuration that named it last
local K_ENDS    = PREFIX .. 'ends'     -- ZSET   "tenant:page" of k_page -> µs when the oldest end in it is over
local K_GAVE    = PREFIX .. 'gave'     -- HASH   token -> "tenant/id"; running jobs that finish gave
local K_CONFIGS = PREFIX .. 'configs'  -- ZSET   digest of a configuration -> µs when a daemon with it looked last
-- The channel of signals: "w" something is due earlier, "t" tickets are on their way, "c tenant id"
-- that job was cancelled, "p" the downstream is paused, "p tenant" that tenant is.
local SIGNAL    = PREFIX .. 'sig'

local function k_tenant(name) return PREFIX .. 't:' .. name end  -- HASH   policy, timeline, counts
local function k_wait(name) return PREFIX .. 'w:' .. name end    -- LIST   waiting ids that were never out; the head leaves next
local function k_back(name) return PREFIX .. 'b:' .. name end    -- ZSET   id -> since; those that came back, all ahead of k_wait
local function k_later(name) return PREFIX .. 'z:' .. name end   -- ZSET   id -> µs; delayed, or waiting out a backoff
local function k_jobs(name) return PREFIX .. 'j:' .. name end    -- HASH   id -> body, written once
local function k_state(name) return PREFIX .. 's:' .. name end   -- HASH   id -> state; absent until a job first leaves its bucket
local function k_outs(name) return PREFIX .. 'o:' .. name end    -- ZSET   id -> since; jobs whose tickets are out, oldest first
local function k_dead(name) return PREFIX .. 'x:' .. name end    -- ZSET   id -> µs when it died
-- LIST with TTL: ids of ended jobs, and how each ended, see ends.lua
local function k_page(name, page) return PREFIX .. 'k:' .. name .. ':' .. page end
-- STRING with TTL: how a job ended, with its result
local function k_end(name, id) return PREFIX .. 'e:' .. name .. ':' .. id end
-- STRING with TTL: the job that was granted on a ticket released for another one
local function k_receipt(token) return PREFIX .. 'g:' .. token end
-- what an admission rule remembers, with TTL; name is '' for a rule that tenants share
local function k_admit(rule, name) return PREFIX .. 'a:' .. rule .. ':' .. name end

local FOREVER = 9e15 -- `until` of a pause without an end
local BATCH = 50 -- items that one call handles at most; the loop is in Go

-- The version of the state is the downstream's field schema, "major.minor"; none is 1.0. See ADR 12.
local SCHEMA = '1.0'

-- unreadable ends the call, which has not changed anything yet, since a field of the downstream
-- cannot be read. Twin: refusal.go.
local function unreadable(field) error('UNREADABLE [[' .. string.sub(field, 1, 100) .. ']]', 0) end

-- readable does so if the state is of another major version. Every script asks it.
local function readable(schema)
  if schema and schema ~= SCHEMA and not string.find(schema, '^1%.%d+$') then unreadable('schema=' .. schema) end
end

local function int(n) return string.format('%d', n) end

local function clock()
  if ARGV[1] ~= '0' then return tonumber(ARGV[1]) end
  local t = call('TIME')
  return t[1] * 1000000 + t[2]
end
