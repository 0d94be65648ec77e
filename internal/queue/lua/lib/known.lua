-- known: where the end of a job is found, see ends.lua. A tenant's ends are spread over pages by
-- their ids, so that a page stays small enough for Redis to pack, and to be searched. The tenant's
-- field `pages` says how many there are, if there is more than one.

-- include base

-- page_of is the page of an id among so many. With one page more, only the ids of one page move.
local function page_of(id, pages)
  if pages <= 1 then return 0 end
  local top = 1
  while 2 * top <= pages do top = 2 * top end
  local page = tonumber(string.sub(redis.sha1hex(id), 1, 8), 16) % (2 * top)
  return page < pages and page or page - top
end

-- find_end returns the page of a tenant that an id is in, and where it is there last; nil if it is
-- in none.
local function find_end(name, pages, id)
  local page = page_of(id, tonumber(pages) or 1)
  local at = call('LPOS', k_page(name, page), id, 'RANK', -1)
  if at then return page, at end
end
