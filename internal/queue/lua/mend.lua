-- mend: look at some jobs of a tenant, or at entries of one of its books, and put right what a lost
-- write left behind. A job that is in no book goes where its state says; an entry that its job does
-- not bear out is removed. If a worker runs a job that the books lost, it keeps it. Safe to repeat.
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] 1 = mend, 0 = only look
-- ARGV[3] tenant
-- ARGV[4] what to look at: "lines", "back", "later", "outs", "dead", "waits" or "jobs"; or "ids"
-- ARGV[5] where to go on, "0" = the beginning; with "ids" from here on the ids, each of which may
--         be in no book, or twice in the list of those that wait
--
-- Returns {where to go on, "0" = that was all, {kind, id, …} of what was wrong, {ids to look at}}.
-- After "waits" the ids are those that were looked at; after "jobs" those that can be nowhere but
-- in the list of those that wait, which is not searched for each of them. The kinds are
--   waiting, delayed, out, running, dead   the job was not in the book of those; now it is
--   state   its state was lost or outdated: it is written anew, if need be as that of a job that
--           was never started; or it cannot be read: the job is set apart
--   stray   an entry, or a state, that no job bears out: it is removed
--   body    the same, and no end of the job is known: Redis lost the job itself
--   ended   the job had ended, but its body was still there: it is removed
--
-- Cost: O(BATCH · log jobs), or a small hash or set as a whole; O(FAR) where the
-- list is searched or changed. What it mends is at most BUDGET commands a call.

-- include held place

local FAR = 5000 -- entries of a list that a call walks over

local mends, name = ARGV[2] == '1', ARGV[3]
local now = clock()
local ds = downstream(now)
local t = tenant(ds, name, now)
local found, ids, goes_on, wrong = {}, {}, '0', false
if mends then
  allow_oom()
  heal(ds, t, now)
  save(t)
  save(ds)
end

-- find records what is wrong, and says whether to mend it.
local function find(kind, id)
  found[#found + 1] = kind
  found[#found + 1] = id
  wrong = true
  return mends
end

local function each(scanned, step, look)
  goes_on = scanned[1]
  for i = 1, #scanned[2], step do
    if mends and wrong and enough() then
      goes_on = ARGV[5] -- the same again: what was mended is right then
      return
    end
    look(scanned[2][i], scanned[2][i + 1])
  end
end

-- gone is the kind of an entry that has no job.
local function gone(id) return end_of(name, t.pages, id, now) and 'stray' or 'body' end

-- entry looks at an entry of a sorted set, whose job should be in the state `letter`. If it is in
-- another one, and is where that says, the entry is outdated; else the state is. With `anew`, a
-- state that was lost is written anew.
local function entry(key, id, letter, anew)
  local j, body = state(name, id), call('HGET', k_jobs(name), id)
  if not body then
    if find(gone(id), id) then call('ZREM', key, id) end
  elseif j and j.state ~= letter then
    if held(name, id, j) then
      if find('stray', id) then call('ZREM', key, id) end
    elseif j.state == '?' and letter ~= 'x' then
      if find('state', id) then set_apart(ds, t, id, j, now) end
    elseif find('state', id) then
      j.state = letter
      store(name, id, j)
    end
  elseif not j and anew and find('state', id) then
    j = fresh(read_header(body).since)
    j.state, j.error = letter, 'what was known of its starts is lost'
    store(name, id, j)
  end
end

-- line looks at a state whose job may be gone.
local function line(id)
  if call('HEXISTS', k_jobs(name), id) == 1 then return end
  local j = state(name, id)
  local runs = j and (j.state == 'r' or j.state == 'c')
  if runs then
    if not held(name, id, j) and find('running', id) then call('ZADD', K_RUN, int(math.max(now, j.slot) + ds.lease), name .. ' ' .. id) end
  elseif find(gone(id), id) then
    if j then left(ds, t, id, j) end
    for _, key in ipairs({ k_back(name), k_later(name), k_dead(name) }) do call('ZREM', key, id) end
    call('HDEL', k_state(name), id)
  end
end

-- backoff is the longest that a job can have to wait after its last start, in µs: it may come back
-- late, but never early.
local function backoff(j)
  local least, most = rule_number(ds, t, 'p:bmin'), rule_number(ds, t, 'p:bmax')
  return 1000 * math.max(least, math.min(most, least * 2 ^ math.max(0, j.attempts - j.forgiven - 1)))
end

local function job(id, body)
  local j = state(name, id)
  -- Where only K_RUN says that it runs, the end of its lease decides.
  if call('ZSCORE', K_RUN, name .. ' ' .. id) and not (j and (j.state == 'r' or j.state == 'c')) then return end
  if j and held(name, id, j) then return end
  if not j then
    for _, key in ipairs({ k_back(name), k_later(name), k_outs(name), k_dead(name) }) do
      if call('ZSCORE', key, id) then return end
    end
    if not call('ZSCORE', K_OUT, name .. ' ' .. id) then ids[#ids + 1] = id end
  elseif j.state == '?' then
    if find('state', id) then set_apart(ds, t, id, j, now) end
  elseif j.state == 'r' or j.state == 'c' then
    if find('running', id) then call('ZADD', K_RUN, int(math.max(now, j.slot) + ds.lease), name .. ' ' .. id) end
  elseif j.state == 'z' then
    if find('delayed', id) then back_off(ds, t, id, now + backoff(j)) end
  elseif j.state == 'x' then
    if find('dead', id) then call('ZADD', k_dead(name), int(now), id) end
  elseif find(j.state == 'o' and 'out' or 'waiting', id) then
    left(ds, t, id, j)
    to_front(name, id, j)
  end
end

-- waits looks at a page of the list, beginning at its end, where it grows, so that nothing slips
-- by. An entry that should not be in it does no harm, since it is passed over when its turn comes;
-- it is removed where that means walking over few entries.
local function waits(from)
  local list = k_wait(name)
  local length = call('LLEN', list)
  ids = call('LRANGE', list, -from - BATCH, -from - 1)
  local walks = length <= FAR and math.floor(FAR / math.max(length, 1)) or 0
  local took, more = 0, from + BATCH < length
  for _, id in ipairs(ids) do
    local j, kept = state(name, id), call('HEXISTS', k_jobs(name), id) == 1
    if length <= FAR and (not kept or j and j.state ~= 'w') then
      if took == walks then
        goes_on = int(from) -- the rest of this page in another call
        return
      end
      if find(kept and 'stray' or gone(id), id) then
        call('LREM', list, 1, id)
        took = took + 1
      end
    end
  end
  if more then goes_on = int(from + BATCH - took) end
end

-- missing looks at a job that may be in no book, or in the list twice.
local function missing(id)
  local list, body = k_wait(name), call('HGET', k_jobs(name), id)
  if not body or state(name, id) then return end
  job(id, body)
  if #ids == 0 then return end
  ids = {}
  local at = call('LPOS', list, id, 'COUNT', 2, 'MAXLEN', FAR)
  if at[2] and call('LLEN', list) <= FAR then
    if find('stray', id) then call('LREM', list, -1, id) end
  end
  if at[1] or call('LPOS', list, id, 'RANK', -1, 'MAXLEN', FAR) then return end
  if end_of(name, t.pages, id, now) then
    if find('ended', id) then call('HDEL', k_jobs(name), id) end
    return
  end
  local since, length = read_header(body).since, call('LLEN', list)
  if since > now then
    if find('delayed', id) then call('ZADD', k_later(name), int(since), id) end
  elseif find('waiting', id) then
    local place = accepted_before(name, since, 0, length)
    if place == length then
      call('RPUSH', list, id)
    elseif length <= FAR then
      call('LINSERT', list, 'BEFORE', call('LINDEX', list, place), id)
    else
      to_front(name, id, fresh(since)) -- its place is too far in: better early than late
    end
  end
end

-- What is to come later may never have been out, and then has no state. A job that is out without a
-- state is brought back by release when its ticket's time is over.
local sets = { back = { k_back(name), 'w', true }, dead = { k_dead(name), 'x', true },
  later = { k_later(name), 'z', false }, outs = { k_outs(name), 'o', false } }
local what, from = ARGV[4], ARGV[5]
if what == 'lines' then
  each(call('HSCAN', k_state(name), from, 'COUNT', BATCH), 2, line)
elseif sets[what] then
  local key, letter, anew = unpack(sets[what])
  each(call('ZSCAN', key, from, 'COUNT', BATCH), 2, function(id) entry(key, id, letter, anew) end)
elseif what == 'waits' then
  waits(tonumber(from))
elseif what == 'jobs' then
  each(call('HSCAN', k_jobs(name), from, 'COUNT', BATCH), 2, job)
else
  for i = 5, #ARGV do missing(ARGV[i]) end
end
if mends and wrong then
  put(t, 'own_wait', '1') -- perhaps
  if settle(ds, t, now) then wake() end
  save(ds)
end
return { goes_on, found, ids }
