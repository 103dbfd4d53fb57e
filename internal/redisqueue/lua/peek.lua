-- peek returns when the first entry of a type is due.
--
-- KEYS[1]  zset {prefix:v1:0}:sync_user:0:due: entry id -> due time, or lease end while claimed, in unix ms.
--          It also holds the member 'whole ' + the key while no enqueued entry has been lost.
-- ARGV[1]  'whole ' + the key
-- Returns {wait, lost}:
--   wait  µs until the first entry is due; 0: now, -1: there are no entries
--   lost  1 if entries of the type have been lost, else 0
-- If the key holds another type of value, wait is -1 and lost is 1.

local FAR = 4e15 -- later than any due time; marks have higher scores
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local first = redis.pcall('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if first.err then
  return string.find(first.err, 'WRONGTYPE', 1, true) and {-1, 1} or first
end
local head = tonumber(first[2])
local wait = head and head < FAR and math.max(0, head * 1000 - now) or -1
return {wait, redis.call('ZSCORE', KEYS[1], ARGV[1]) and 0 or 1}
