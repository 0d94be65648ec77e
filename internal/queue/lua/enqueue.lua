-- enqueue: offer jobs to a tenant's bucket, each on its own. Safe to repeat: a digest holds a nonce
-- of the call. (That shows only which call made a job. If a call found a job, and the job is
-- dropped or cancelled before the call is repeated, the repetition makes it anew: its producer was
-- told that the job was accepted.)
--
-- KEYS[1] prefix  ARGV[1] now µs or 0
-- ARGV[2] tenant
-- ARGV[3…] of each job, at most 200:
--   id
--   delay µs, 0 = none
--   not before, µs since the epoch, 0 = at once
--   digest of the body, "hash.nonce"; hash is empty where the client made the id up
--   body without its first field, see job.lua
--
-- Returns for each job, or for the first ones if all are too much for one call, {status, position,
-- start, retry, state, note, then what each admission rule says (buckets.LuaFunctions), if they were
-- asked}. Times are µs. position counts from 1, 0 = does
-- not wait; start 0 = cannot be said, and note says why (expect.lua); retry -1 = never; state is a
-- letter of job.lua, or how the job ended, or "l" not due yet, or "" there is no job. The status is
-- one of
--   accepted   it waits, or did before this call was repeated
--   duplicate  the id is known with the same body: that job has not ended, or is done
--   dead       the same, but that job is dead and kept
--   conflict   the id is known with another body
--   full       no room (on_full reject, or nothing to drop)
--   block      no room, and the tenant's policy is to wait for it
--   limited    an admission rule refuses; nothing is taken from any
--   unknown    the downstream serves only tenants that were set
--   parked     the tenant is parked, see tenant.lua
-- A refusal writes nothing. The first write is one that may need memory, so with maxmemory reached
-- the script fails before it has changed anything.
--
-- Cost: O(1) a job. What may end in a full bucket to make room is looked for once a call, among at
-- most some hundred jobs; at most BATCH of them end in a call, and one more for each job beyond. At
-- most BUDGET commands a call.

-- include fields known

local FIELDS = 5 -- of a job in ARGV
local now, name = clock(), ARGV[2]
local reply, nth = {}, 3 -- nth: where in ARGV the next job begins
-- Jobs of one call are accepted a µs apart, so that those that come back keep their order, see
-- to_front.

-- The common case: the tenant is busy, jobs wait before the new ones, there is room, there is no
-- admission rule to ask, and the tenant's own rate decides when they start. Then the head leaves
-- when it would have left anyway, so a few commands do, and the rest of this script is not reached,
-- not even where it makes its functions. Any other job (delayed, known already, with a max_wait of
-- its own) ends the loop; it and those behind it take the long way.
do
  local jobs, ids, prefix = k_jobs(name), {}, k_end(name, '')
  local waiting = call('LLEN', k_wait(name)) + call('ZCARD', k_back(name))
  local own = call('HMGET', k_tenant(name), 'busy', 'ver', 'p:depth', 'p:rate', 'until', 'due', 'by_time', 'known', 'pages')
  local common = call('HMGET', K_DS, 'unknown', 'p:depth', 'p:rate', 'admit', 'rate', 'until', 'alive', 'schema')
  readable(common[8])
  local pause, common_pause, alive = tonumber(own[5] or 0), tonumber(common[6] or 0), tonumber(common[7] or 0)
  local depth, due, by_time = tonumber(own[3] or common[2] or fallback('p:depth')), tonumber(own[6] or 0), tonumber(own[7] or 0)
  local events, period = string.match(own[4] or common[3] or fallback('p:rate'), '^([1-9]%d*)/([1-9]%d*)$')
  local legible = pause and common_pause and alive and depth and due and by_time and events -- else the long way says what is not
  local has_ends = (tonumber(own[8] or 0) or FOREVER) > now
  if legible and own[1] and waiting > 0 and not common[4] and (own[2] or common[1] ~= 'refuse') then
    local paused, step, note = math.max(pause, common_pause), period / events, '' -- note: see expect.lua
    if paused >= FOREVER then
      note = 'paused'
    elseif alive < now then
      note = 'no_workers'
    elseif common[5] or paused <= now and due < now - 2 * step - 100000 then
      by_time = 0 -- tenants share a rate; or the head should have left, and something holds it back
    end
    local room = depth - call('ZCARD', k_later(name)) - waiting
    if note == '' then room = math.min(room, by_time - waiting) end
    local first = math.max(due, now, paused)
    while nth <= #ARGV and #ids < room do
      local id, body = ARGV[nth], ARGV[nth + 4]
      if ARGV[nth + 1] ~= '0' or ARGV[nth + 2] ~= '0' or string.sub(body, 1, 2) ~= '0 ' or call('EXISTS', prefix .. id) == 1
        or has_ends and find_end(name, own[9], id)
        or call('HSETNX', jobs, id, int(now + (nth - 3) / FIELDS) .. ' ' .. body) == 0 then
        break
      end
      ids[#ids + 1] = id
      reply[#reply + 1] = { 'accepted', waiting + #ids, note == '' and int(first + (waiting + #ids - 1) * step) or '0', '0', 'w', note }
      nth = nth + FIELDS
    end
    if #ids > 0 then
      call('RPUSH', k_wait(name), unpack(ids))
      try('HINCRBY', k_tenant(name), 'accepted', #ids) -- as count in job.lua
      try('HINCRBY', K_DS, 'accepted', #ids)
    end
  end
  if nth > #ARGV then return reply end
end

-- include place expect admit

local ds = downstream(now)
local t = tenant(ds, name, now)

local last = #ARGV
local rules = admission(ds, name)
local depth, on_full = rule_number(ds, t, 'p:depth'), rule(ds, t, 'p:on_full')
local level_now, waiting = level(name), bucket(name)
local changed = false

-- same tells whether an offer has the body of the job that is known under its id, whose digest is
-- `before`.
local function same(before, digest, body, known)
  local hash, offered = string.match(before, '^([^.]*)%.'), string.match(digest, '^([^.]*)%.')
  if hash ~= '' then return hash == offered end
  -- Its id was made up, so its body was not digested: compare the bodies, if there is one, from
  -- behind their first lines.
  return known ~= nil and string.match(known, '\n.*$') == string.match(body, '\n.*$')
end

-- once_due is when a job starts that is not due before `due`. It then joins the bucket behind all
-- that waits: what is there now and has not left, and what falls due before it, perhaps much of
-- that at about the same time. A job that is tried again comes to the front.
local last_due = {} -- the last question and its answer
local function once_due(due, again)
  if again then
    local start, note = expected(ds, t, 1, now)
    return start > 0 and math.max(start, due) or 0, note
  end
  local later, step = k_later(name), t.timeline.step
  local before = call('ZCOUNT', later, '-inf', '(' .. int(due))
  local start, note = expected(ds, t, waiting + before + 1, now)
  if start == 0 then return start, note end
  start = math.max(start, due)
  if last_due.before == before - 1 and last_due.due <= due then -- right behind that job
    start = math.max(start, last_due.start + step)
  else
    local i = 1
    while i <= before do -- the ith job before it is due then, with i - 1 between them
      local its_due = call('ZRANGE', later, before - i, before - i, 'WITHSCORES')[2]
      start = math.max(start, its_due + i * step)
      i = math.max(i + 1, math.floor(i * 1.1))
    end
  end
  last_due = { before = before, due = due, start = start }
  return math.floor(start), ''
end

-- standing is the answer to an offer of a job that has not ended, or is dead and kept.
local function standing(id, digest, body, known)
  local header, j = read_header(known), state(name, id)
  local letter = j and (j.state == '?' and 'x' or j.state) or 'w' -- it is set apart when its turn comes
  local status = header.digest == digest and 'accepted' or not same(header.digest, digest, body, known) and 'conflict'
    or letter == 'x' and 'dead' or 'duplicate'
  if letter == 'r' or letter == 'c' then return { status, 0, int(j.slot), '-1', letter, '' } end
  if letter == 'x' then return { status, 0, '0', '-1', letter, '' } end
  if letter == 'o' then
    local rank = call('ZRANK', k_outs(name), id) or 0
    return { status, 0, int(likely(t.timeline, rank, now, ds.grace)), '-1', letter, '' }
  end
  local due = call('ZSCORE', k_later(name), id)
  if due then
    local start, note = once_due(tonumber(due), j)
    return { status, 0, int(start), '-1', j and 'z' or 'l', note }
  end
  local position = place_of(name, id, j and j.since or header.since)
  local start, note = expected(ds, t, math.max(position, 1), now)
  return { status, position, int(start), '-1', letter, note }
end

local LOOK = 16 -- waiting jobs that are looked at where some may have waited too long

-- expire_or_drop finds what need not stay in a full bucket: jobs that waited too long, or else
-- (drop-oldest) those that have waited longest and were never started. It only looks, and returns
-- what to end as {id, job, how}; nil if that makes no room. Where the depth was lowered, room for
-- one job may take more endings than a call makes: drop-oldest then ends BATCH jobs, and accepts
-- the new one all the same, so the level falls, and never rises. in_vain: another look in this call
-- would find nothing either.
local in_vain, ended = false, 0
local function expire_or_drop()
  local drop, expires = on_full == 'drop-oldest', rule_number(ds, t, 'p:wait') > 0 or t.own_wait
  if in_vain or not drop and not expires then return nil end
  local need = level_now - depth + 1
  local most = math.min(need, math.max(1, BATCH - ended))
  local ends, oldest = {}, {}
  local function look(ids)
    for _, id in ipairs(ids) do
      if #ends == most or not expires and #oldest == most then return end
      local j = state(name, id)
      local body = not (j and (j.attempts > 0 or j.state ~= 'w')) and call('HGET', k_jobs(name), id)
      if body then
        local header = read_header(body)
        if overdue(ds, t, header, now) then
          ends[#ends + 1] = { id, j or fresh(header.since), 'expired' }
        elseif drop and #oldest < most then
          oldest[#oldest + 1] = { id, j or fresh(header.since), 'dropped' }
        end
      end
    end
  end
  look(call('ZRANGE', k_back(name), 0, 2 * BATCH - 1))
  look(call('LRANGE', k_wait(name), 0, (expires and math.max(most, LOOK) or most) - 1))
  for _, ending in ipairs(oldest) do
    if #ends == most then break end
    ends[#ends + 1] = ending
  end
  if #ends < need and not (drop and #ends == most) then
    in_vain = true
    return nil
  end
  return ends
end

-- µs: how soon to ask again where nobody can say when there is room, and how late at the latest,
-- since a pause may end, or a policy change, sooner than it seems
local RETRY, LATEST = { paused = 10000000, no_workers = 5000000, in_flight = 1000000 }, 60000000

-- until_room is how long it takes until a job leaves a full bucket, as far as can be said. That
-- depends on what keeps it full.
local function until_room()
  local at, why = expected(ds, t, 1, now)
  if RETRY[why] then return RETRY[why] end
  if waiting == 0 then -- the first of those that are not due yet
    at = math.max(at, tonumber(call('ZRANGE', k_later(name), 0, 0, 'WITHSCORES')[2] or now))
  end
  if at - now < 1000 then at = now + math.max(t.timeline.step, 1000) end -- its turn came, and it has not left yet
  return math.min(at - now, LATEST)
end

local room_in -- until_room, the same for all jobs of a call

local function offer(id, delay, at, digest, body)
  local known = call('HGET', k_jobs(name), id)
  if known then return standing(id, digest, body, known) end
  local before = end_of(name, t.pages, id, now, num(t, 'known') <= now)
  if before then
    local how = before.how
    if before.digest == brief(digest) then return { 'accepted', 0, '0', '-1', how, '' } end
    if not same(before.digest, brief(digest), body) then return { 'conflict', 0, '0', '-1', how, '' } end
    if how == 'done' then return { 'duplicate', 0, '0', '-1', how, '' } end
  end
  if t.parked then return { 'parked', 0, '0', '10000000', '', 'parked' } end
  if ds.unknown == 'refuse' and not t.ver then return { 'unknown', 0, '0', '-1', '', '' } end

  local ends = {}
  if level_now >= depth then
    ends = expire_or_drop()
    if not ends then
      room_in = room_in or int(until_room())
      return { on_full == 'block' and 'block' or 'full', 0, '0', room_in, '', '' }
    end
  end

  local agreed, says = consult(ds, rules, now, false)
  if not agreed then return { 'limited', 0, '0', '0', '', '', says } end

  local since = math.max(at ~= '0' and tonumber(at) or now + delay, now)
  call('HSET', k_jobs(name), id, int(since + (nth - 3) / FIELDS) .. ' ' .. body)
  for _, ending in ipairs(ends) do
    if call('ZREM', k_back(name), ending[1]) == 0 then call('LREM', k_wait(name), 1, ending[1]) end
    finished(ds, t, ending[1], ending[2], ending[3], '', now)
  end
  if before then forget_end(ds, t, id, now) end -- it ended undone, and begins anew
  ended, level_now, waiting = ended + #ends, level_now - #ends + 1, waiting - #ends
  if read_header(int(since) .. ' ' .. body).max_wait > 0 then put(t, 'own_wait', '1') end
  agreed, says = consult(ds, rules, now, true)
  count(ds, t, 'accepted')
  changed, in_vain = true, false
  if since > now then
    call('ZADD', k_later(name), int(since), id)
    local start, note = once_due(since)
    return { 'accepted', 0, int(start), '0', 'l', note, says }
  end
  call('RPUSH', k_wait(name), id)
  waiting = waiting + 1
  local start, note = expected(ds, t, waiting, now)
  return { 'accepted', waiting, int(start), '0', 'w', note, says }
end

while nth <= last do
  -- What one offer may take: the dear ones are those that look for room, and for when a delayed job
  -- starts.
  local kept = level_now >= depth and 250 + 10 * math.min(level_now - depth + 1, BATCH) or 100
  if #reply > 0 and enough(kept) then break end
  reply[#reply + 1] = offer(ARGV[nth], ARGV[nth + 1], ARGV[nth + 2], ARGV[nth + 3], ARGV[nth + 4])
  nth = nth + FIELDS
end
if changed then
  if settle(ds, t, now) then wake() end
  save(ds)
else
  -- It removes nothing; but a server that has become a replica fails here, rather than answer from
  -- old data.
  call('DEL', PREFIX .. '-')
end
return reply
