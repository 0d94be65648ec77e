-- hash: hashes as tables, and writes with Redis full.

-- include base fields log

-- allow_oom lets the writes that follow happen with maxmemory reached: Redis refuses only the first
-- write of a script, and only if it may need memory. It is for what drains the queue; enqueue must
-- not call it.
local function allow_oom() call('DEL', PREFIX .. '-') end

local LARGEST = 9e18 -- within what int prints; a virtual time grows by 1e9 a second at 1000/s
-- Fields that are no numbers, besides those of a policy, which check_words looks at; of these any
-- value will do.
local WORDS = { rid = true, ended = true, schema = true, refile = true, blocked = true, admit = true, log = true, busy = true, own_wait = true, healing = true,
  r = true }

-- may_be_none tells whether a number that is less than 1 can be a field's value. Fields of a policy
-- that have a default are 1 or more, except that max_wait may be for ever.
local function may_be_none(field, n) return n > -LARGEST and (field == 'p:wait' or not fallback(field)) end

-- illegible parks h, since nobody can say what its field should be: `parked` is "field=value" of the
-- first such field. It then reads as if it were not set, and is not written.
local function illegible(h, field, value)
  h[field] = nil
  h.illegible = h.illegible or {}
  h.illegible[field] = true
  h.parked = h.parked or field .. '=' .. string.sub(value, 1, 64)
end

-- check_words parks h if a field of its policy that is no number cannot be read.
local function check_words(h) policy_words(h, illegible) end

-- A hash that is read once and written once: get(key, fields) … put(h, field, value) … save(h).
local function get(key, fields)
  local values, h = call('HMGET', key, unpack(fields)), { key = key, dirty = {} }
  for i, field in ipairs(fields) do
    local value = values[i]
    if value then
      local n = tonumber(value)
      if n and n < LARGEST and (n >= 1 or may_be_none(field, n)) or WORDS[field] or POLICY_WORDS[field] then
        h[field] = value
      else
        illegible(h, field, value)
      end
    end
  end
  return h
end

local function put(h, field, value)
  if h[field] == value or h.illegible and h.illegible[field] then return end
  h[field] = value
  h.dirty[field] = value
end

local function save(h)
  local args = {}
  for field, value in pairs(h.dirty) do
    args[#args + 1] = field
    args[#args + 1] = type(value) == 'number' and int(value) or value
  end
  h.dirty = {}
  if #args > 0 then call('HSET', h.key, unpack(args)) end
  if h.restarted then -- logged with the run id that is saved: once
    h.restarted = nil
    log(h, 'i')
  end
end

local function num(h, field) return tonumber(h[field] or 0) end
local function add(h, field, n) put(h, field, math.max(0, num(h, field) + n)) end
