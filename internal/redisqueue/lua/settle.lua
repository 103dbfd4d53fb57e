-- settle ends leases: it removes each entry or gives it a new due time. An entry whose score differs from the token
-- has another lease by now. Such an entry is not removed and not delayed. It only gets the new due time if that is
-- earlier. An entry that is not in the zset has ended, and is not added. But if the type is lost, an entry that is
-- due again is added, because the process that rebuilds the type may have read an older state of the entry.
--
-- KEYS[1]  zset {prefix:v1:0}:sync_user:0:due: entry id -> due time, or lease end while claimed, in unix ms.
--          It also holds the member 'whole ' + the key while no enqueued entry has been lost.
-- ARGV[1]  'whole ' + the key
-- ARGV[2]  entry id
-- ARGV[3]  token, the lease end that the claim returned, unix ms
-- ARGV[4]  time until due again, ms; 0: now, -1: remove. More triples follow.
-- Returns how many entries had their token. It returns 0 if the key holds another type of value.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local later = time[1] * 1000 + math.ceil(time[2] / 1000) -- round due times up, so that nothing comes due early
local settled = 0
local touched, place = {}, {} -- ids, and the new due time of each, false: removed; an id may occur twice
local whole -- result of ZSCORE after the first call

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

-- ZREM comes first, also for entries that stay, because Redis at maxmemory refuses ZADD as the first write.
local again = {}
for _, id in ipairs(touched) do
  if place[id] then
    again[#again + 1] = place[id]
    again[#again + 1] = id
  end
end
-- Eight in a command: some proxies refuse unpack, and one command for each takes longer.
local t, a, i = touched, again, 1
while i + 7 <= #t do
  redis.call('ZREM', KEYS[1], t[i], t[i + 1], t[i + 2], t[i + 3], t[i + 4], t[i + 5], t[i + 6], t[i + 7])
  i = i + 8
end
for rest = i, #t do
  redis.call('ZREM', KEYS[1], t[rest])
end
i = 1
while i + 15 <= #a do
  redis.call('ZADD', KEYS[1], a[i], a[i + 1], a[i + 2], a[i + 3], a[i + 4], a[i + 5], a[i + 6], a[i + 7],
    a[i + 8], a[i + 9], a[i + 10], a[i + 11], a[i + 12], a[i + 13], a[i + 14], a[i + 15])
  i = i + 16
end
for rest = i, #a, 2 do
  redis.call('ZADD', KEYS[1], a[rest], a[rest + 1])
end
return settled
