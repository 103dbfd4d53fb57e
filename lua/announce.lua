-- Makes entries of one type come due. An entry that is already here keeps its place, unless that is later
-- than it could be if somebody had leased it at its due time: then it is pulled in.
--
-- KEYS[1] zset {prefix:v1:0}:sync_user:0:due   entry id -> due time, or lease end while claimed; unix ms
-- ARGV[1] longest lease, ms
-- ARGV[2] most members of the zset, 0: no limit   ARGV[3] ms; an entry due later than that is left out beyond it
-- ARGV[4] entry id   ARGV[5] time until due, ms, 0: now   … and so on in pairs
-- Returns 1 if the earliest due time moved forward, else 0.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local later = time[1] * 1000 + math.ceil(time[2] / 1000) -- a due time is rounded up: never early
local longest, limit, near = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local members = redis.call('ZCARD', KEYS[1])
local head = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]
local earliest = math.huge
local place, moved = {}, {} -- where an entry is now; due time and id in turn. An id may come twice

for i = 4, #ARGV, 2 do
  local id, wait = ARGV[i], tonumber(ARGV[i + 1])
  local due = wait > 0 and later + wait or now
  local was = place[id] or tonumber(redis.call('ZSCORE', KEYS[1], id))
  local pulled = was and was > later + wait + longest
  local added = not was and (wait <= near or limit == 0 or members < limit)
  if added then
    members = members + 1
  end
  if pulled or added then
    place[id] = due
    moved[#moved + 1] = due
    moved[#moved + 1] = id
    earliest = math.min(earliest, due)
  end
end

if moved[1] then
  redis.call('ZADD', KEYS[1], unpack(moved))
end
if earliest < (tonumber(head) or math.huge) then
  return 1
end
return 0
