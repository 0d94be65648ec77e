-- admit: the admission checks of a downstream, asked on the way into a bucket. buckets.LuaFunctions
-- stands before it.
--
-- The downstream's field `admit` has a line a rule, fields parted by tabs (written by
-- admission.go): name, scope ("tenant" or "downstream"), text for people, algorithm, and the
-- arguments of its function for one request

-- include base algorithms

local RULE_ARGS = 8 -- of an algorithm's function, see buckets.LuaFunctions

-- admission returns the rules as {key, algorithm, where its arguments stand in ARGV}.
local function admission(ds, name)
  local rules = {}
  if not ds.admit or ds.admit == '' then return rules end
  for line in string.gmatch(ds.admit, '[^\n]+') do
    local fields = {}
    for field in string.gmatch(line, '[^\t]+') do fields[#fields + 1] = field end
    local at = #ARGV
    for i = 1, RULE_ARGS do ARGV[at + i] = fields[4 + i] or '0' end
    rules[#rules + 1] = { key = k_admit(fields[1], fields[2] == 'tenant' and name or ''), ask = algorithms[fields[4]], at = at + 1 }
  end
  return rules
end

-- consult asks every rule whether one more job may come, and takes it from all of them if `take`,
-- which is only right after they have been asked without and all agreed. Returns whether all agree,
-- and what each says, then the rules themselves: the client needs them to read it. Without rules it
-- returns nothing to read.
local function consult(ds, rules, now, take)
  local all, says = true, {}
  for i, check in ipairs(rules) do
    local agrees, row = check.ask(check.key, now, check.at, take, take)
    all = all and agrees
    says[i] = row
  end
  if #rules > 0 then says[#rules + 1] = ds.admit end
  return all, says
end
