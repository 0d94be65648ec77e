-- admit: the admission checks of a downstream, asked on the way into a bucket.
--
-- The downstream's field `admit` has a line for each rule, written by admission.go of package
-- shaper. Its fields, parted by tabs, are name, scope ("tenant" or "downstream"), text for people,
-- algorithm, and the arguments of the algorithm's function for one request.

-- include tenant algorithms

local RULE_ARGS = 8 -- that an algorithm's function takes, see buckets.LuaFunctions

-- admission returns the rules, each with its key, its function, and where its arguments begin in
-- ARGV.
local function admission(ds, name)
  local rules = {}
  if not ds.admit or ds.admit == '' then return rules end
  for line in string.gmatch(ds.admit, '[^\n]+') do
    local fields = {}
    for field in string.gmatch(line, '[^\t]+') do fields[#fields + 1] = field end
    local at = #ARGV
    local legible = algorithms[fields[4]]
    for i = 1, RULE_ARGS do
      local arg = fields[4 + i] or '0'
      legible = legible and (tonumber(arg) or i == RULE_ARGS and is_rate(arg))
      ARGV[at + i] = arg
    end
    if not legible then unreadable('admit=' .. line) end -- offers ask it, and nothing else
    rules[#rules + 1] = { key = k_admit(fields[1], fields[2] == 'tenant' and name or ''), ask = algorithms[fields[4]], at = at + 1 }
  end
  return rules
end

-- consult asks every rule whether one more job may come. With `take` it takes the job from all of
-- them, which is only right after they were asked without `take` and all agreed. Returns whether
-- all agree, and a list: what each says, then the rules themselves, which the client needs to read
-- that. Without rules the list is empty.
local function consult(ds, rules, now, take)
  local all, says = true, {}
  for i, check in ipairs(rules) do
    commands = commands + 2 -- that it makes by itself
    local agrees, row = check.ask(check.key, now, check.at, take, take)
    all = all and agrees
    says[i] = row
  end
  if #rules > 0 then says[#rules + 1] = ds.admit end
  return all, says
end
