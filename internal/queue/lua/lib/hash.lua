-- hash: hashes as tables, and writes with Redis full.

-- include base log

-- allow_oom lets the writes that follow happen with maxmemory reached: Redis refuses only the first
-- write of a script, and only if it may need memory. It is for what drains the queue; enqueue must
-- not call it.
local function allow_oom() call('DEL', PREFIX .. '-') end

-- A hash that is read once and written once: get(key, fields) … put(h, field, value) … save(h).
local function get(key, fields)
  local values, h = call('HMGET', key, unpack(fields)), { key = key, dirty = {} }
  for i, field in ipairs(fields) do
    if values[i] then h[field] = values[i] end
  end
  return h
end

local function put(h, field, value)
  if h[field] == value then return end
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
