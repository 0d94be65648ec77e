-- ends: how jobs ended, for as long as their ids must be known.
--
-- end    (k_page)   id, "how keep attempts token ended waited ran digest type", id, …; oldest first
--   how       a letter, see HOW
--   keep      s, its retention
--   attempts  starts; followed by ",forgiven,crashes" if one of them is not 0, see job.lua
--   token     of the owner of its last start; only the end of it, which is random
--   ended     µs
--   waited    µs since it was accepted or due, when it ended
--   ran       µs since its last slot; "-" = it had none
--   digest    of its body, shortened; see brief
--
-- A job that has a retention of its own has its end in k_end too, with its result or error:
--   "how attempts forgiven crashes token slot since ended next digest\ntype\ntext"
-- Older versions kept all ends so, and only so.
--
-- A tenant that has many ends has many pages. A page that is full is followed by another one, which
-- takes over half of some page, until the tenant has as many as its cap allows; then each end
-- displaces the oldest of its page. A downstream that is over its cap gives up the end that would
-- be over next, of those that are oldest in their pages. K_ENDS has each page under the instant at
-- which its oldest end is over.

-- include tenant known

local PAGE = 64 -- ends in a page
local TAKE = 8  -- ends that are taken off a page at a time
local HOUR = 3600000000 -- µs
local LONGEST = 100 * 86400000 -- ms, more than any retention and MARGIN
local MARGIN = 3600000 -- ms that a page stays beyond its last end: until then sweep should have taken it
local TOKEN = 6 -- letters of a token that are kept
local HOW = { d = 'done', c = 'cancelled', e = 'expired', o = 'dropped', r = 'removed' }

-- letter_of is how a job ended as a letter of HOW.
local function letter_of(how) return how == 'dropped' and 'o' or string.sub(how, 1, 1) end

-- brief is a digest as it is kept: 60 bits of the hash, 24 of the nonce.
local function brief(digest)
  local hash, nonce = string.match(digest, '^([^.]*)%.?(.*)$')
  return string.sub(hash, 1, 10) .. '.' .. string.sub(nonce, 1, 4)
end

-- over_at is the instant at which an end is over, µs; 0 if it is nothing of ours.
local function over_at(line)
  local keep, ended = string.match(line or '', '^%l (%d+) %S+ %S+ (%d+) ')
  return keep and ended + keep * 1000000 or 0
end

-- end_of returns how a job ended, nil if that is not known, or is over. With nothing it looks only
-- for what older versions kept.
local function end_of(name, pages, id, now, nothing)
  local kept = call('GET', k_end(name, id))
  if kept then
    local how, token, next_job, digest = string.match(kept, '^(%S+) %S+ %S+ %S+ (%S+) %S+ %S+ %S+ (%S+) (%S+)')
    if not how then return { how = '', token = '', next = '-', digest = '-', line = kept } end -- it may be nothing of ours
    return { how = how, token = token, next = next_job, digest = brief(digest), line = kept }
  end
  if nothing then return nil end
  local page, at = find_end(name, pages, id)
  local line = page and call('LINDEX', k_page(name, page), at + 1)
  if not line or over_at(line) <= now then return nil end
  local letter, attempts, token, ended, waited, ran, digest, kind =
    string.match(line, '^(%l) %d+ (%S+) (%S+) (%d+) (%-?%d+) (%S+) (%S+) (%S+)')
  if not letter then return nil end
  local starts, forgiven, crashes = string.match(attempts, '^(%d+),(%d+),(%d+)$')
  local slot = ran == '-' and 0 or ended - ran
  return { how = HOW[letter] or letter, token = token, next = '-', digest = digest,
    line = table.concat({ HOW[letter] or letter, starts or attempts, forgiven or '0', crashes or '0', token, int(slot), int(ended - waited), ended,
      '-', digest }, ' ') .. '\n' .. kind .. '\n' }
end

-- rescore enters a page in K_ENDS by its oldest end. Where nobody sweeps, K_ENDS times out later than
-- any page.
local function rescore(member, oldest)
  if oldest then
    call('ZADD', K_ENDS, int(over_at(oldest)), member)
    call('PEXPIRE', K_ENDS, LONGEST)
  else
    call('ZREM', K_ENDS, member)
  end
end

-- shorten takes ends off the front of a page, "tenant:page": those that are over, and until it has
-- taken `surplus` others too, which are counted. Returns how many it took.
local function shorten(ds, member, surplus, now)
  local name, key = string.match(member, '^[^:]*'), PREFIX .. 'k:' .. member
  local front, n, evicted = call('LRANGE', key, 0, 2 * TAKE - 1), 0, 0
  while front[2 * n + 1] do
    if over_at(front[2 * n + 2]) > now then
      if n >= surplus then break end
      evicted = evicted + 1
      call('DEL', k_end(name, front[2 * n + 1]))
    end
    n = n + 1
  end
  if n > 0 then
    call('LTRIM', key, 2 * n, -1)
    add(ds, 'ends', -n)
  end
  rescore(member, front[2 * n + 2] or call('LINDEX', key, 1))
  if evicted > 0 then
    call('HINCRBY', K_DS, 'evicted', evicted)
    if call('EXISTS', k_tenant(name)) == 1 then call('HINCRBY', k_tenant(name), 'evicted', evicted) end
  end
  return n
end

-- sweep takes ends off one page of the downstream, if one is over, or there are too many with those
-- that are coming. Returns how many it took. Ends that timed out with their pages, since nobody swept,
-- count as kept until no page is left.
local function sweep(ds, coming, now)
  local first = call('ZRANGE', K_ENDS, 0, 0, 'WITHSCORES')
  if not first[1] then
    if num(ds, 'ends') > 0 then put(ds, 'ends', 0) end
    return 0
  end
  local surplus = num(ds, 'ends') + coming - tonumber(ds.max_ends or fallback('max_ends'))
  if surplus <= 0 and tonumber(first[2]) > now then return 0 end
  return shorten(ds, first[1], surplus, now)
end

-- push adds ends to a page. It lives until all that its tenant ever had is over, so that no time-out
-- is ever shortened.
local function push(t, page, now, ends)
  local length = call('RPUSH', k_page(t.name, page), unpack(ends))
  call('PEXPIRE', k_page(t.name, page), int(math.ceil((num(t, 'known') - now) / 1000) + MARGIN))
  return length / 2
end

-- set_pages is written at once: where the ends are must not depend on what the call does later.
local function set_pages(t, pages)
  t.pages = int(pages)
  call('HSET', t.key, 'pages', t.pages)
end

-- split gives a tenant one page more, and it what belongs there of the page that it comes from.
local function split(ds, t, now)
  local page, top = tonumber(t.pages) or 1, 1
  while 2 * top <= page do top = 2 * top end
  local from = page - top
  local all, stay, go = call('LRANGE', k_page(t.name, from), 0, -1), {}, {}
  for i = 1, #all, 2 do
    local to = page_of(all[i], page + 1) == page and go or stay
    to[#to + 1] = all[i]
    to[#to + 1] = all[i + 1]
  end
  set_pages(t, page + 1)
  call('DEL', k_page(t.name, from))
  for number, ends in pairs({ [from] = stay, [page] = go }) do
    if #ends > 0 then push(t, number, now, ends) end
    rescore(t.name .. ':' .. number, ends[2])
  end
  ds.has_split = true -- one in a call: it costs as much as a hundred commands
end

-- remember keeps the end of a job. What has to go for it goes first, so that a call that is
-- repeated finds its own end.
local function remember(ds, t, id, line, now)
  sweep(ds, 1, now)
  if t.pages and num(t, 'known') <= now then set_pages(t, 1) end -- nothing is left of what it had
  if over_at(line) > num(t, 'known') then put(t, 'known', math.ceil(over_at(line) / HOUR) * HOUR) end
  local pages = tonumber(t.pages) or 1
  local page = page_of(id, pages)
  local member = t.name .. ':' .. page
  local length = push(t, page, now, { id, line })
  if length == 1 then rescore(member, line) end
  add(ds, 'ends', 1)
  local cap = rule_number(ds, t, 'p:ends')
  local grows = pages < math.ceil(cap / PAGE)
  local room = grows and PAGE or math.max(1, math.floor(cap / pages))
  if length > room and shorten(ds, member, grows and 0 or length - room, now) == 0 and grows and not ds.has_split then split(ds, t, now) end
end

-- forget_end forgets how a job ended.
local function forget_end(ds, t, id, now)
  call('DEL', k_end(t.name, id))
  local page, at = find_end(t.name, t.pages, id)
  if not page then return end
  local key = k_page(t.name, page)
  call('LSET', key, at, '-')
  call('LSET', key, at + 1, '-')
  call('LREM', key, 2, '-')
  add(ds, 'ends', -1)
  if at == 0 then shorten(ds, t.name .. ':' .. page, 0, now) end
end
