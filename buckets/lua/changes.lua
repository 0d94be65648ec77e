-- changes: what timeline.lua needs from a script that keeps one hash. Changed fields are gathered
-- and written together.

local changed = {} -- field, value …

local function put(h, field, value)
  h[field] = value
  changed[#changed + 1] = field
  changed[#changed + 1] = type(value) == 'number' and string.format('%d', value) or value
end

local function num(h, field) return tonumber(h[field] or 0) end
