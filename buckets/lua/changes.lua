-- changes: what timeline.lua needs, for a script that keeps one hash: the fields that changed are
-- gathered, to be written at once.

local changed = {} -- field, value …

local function put(h, field, value)
  h[field] = value
  changed[#changed + 1] = field
  changed[#changed + 1] = type(value) == 'number' and string.format('%d', value) or value
end

local function num(h, field) return tonumber(h[field] or 0) end
