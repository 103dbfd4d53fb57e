-- Ends leases: removes each entry, or makes it due again. An entry that no longer carries the token it was
-- claimed with belongs to somebody else: it is not removed and not put off, only pulled in. One that is not here has
-- ended, unless the type is lost: then it is put here, for whoever rebuilds may have read it as it was before.
--
-- KEYS[1] zset {prefix:v1:0}:sync_user:0:due   entry id -> due time, or lease end while claimed; unix ms
--         and 'whole ' + the key, while nothing that was enqueued since has been lost
-- ARGV[1] 'whole ' + the key
-- ARGV[2] entry id   ARGV[3] token   ARGV[4] time until due again, ms, 0: now, -1: remove   … in triples
-- Returns how many entries still carried their token: none under a key that holds something else.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local later = time[1] * 1000 + math.ceil(time[2] / 1000) -- a due time is rounded up: never early
local settled = 0
local touched, place = {}, {} -- ids, and where each is now; an id may come twice
local whole -- as ZSCORE answers, once it is asked

for i = 2, #ARGV, 3 do
  local id, token, wait = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local due = wait > 0 and later + wait or now
  local was = place[id]
  if was == nil then
    was = redis.pcall('ZSCORE', KEYS[1], id)
    if type(was) == 'table' and was.err then
      return string.find(was.err, 'WRONGTYPE', 1, true) and 0 or was
    end
    was = tonumber(was)
  end
  if not was and wait >= 0 and whole == nil then
    whole = redis.call('ZSCORE', KEYS[1], ARGV[1])
  end
  local forgotten = not was and wait >= 0 and not whole
  if forgotten or was and (was == token or wait >= 0 and was > due) then
    if place[id] == nil then
      touched[#touched + 1] = id
    end
    place[id] = wait >= 0 and due
    if was == token then
      settled = settled + 1
    end
  end
end

-- ZREM comes first even for entries that stay: Redis at maxmemory refuses ZADD as the first write.
local again = {}
for _, id in ipairs(touched) do
  if place[id] then
    again[#again + 1] = place[id]
    again[#again + 1] = id
  end
end
if touched[1] then
  redis.call('ZREM', KEYS[1], unpack(touched))
end
if again[1] then
  redis.call('ZADD', KEYS[1], unpack(again))
end
return settled
