-- rebuild begins to rebuild a type that has lost entries, unless another process is rebuilding it. It adds the
-- caller's mark to the zset. If the zset is lost again, the mark is lost with it, and rebuilt.lua notices that.
-- The marks contain the key, so that the marks of a renamed zset do not count for the type of the new name.
--
-- KEYS[1]  zset {prefix:v1:0}:sync_user:0:due: entry id -> due time, or lease end while claimed, in unix ms.
--          It also holds the member 'whole ' + the key while no enqueued entry has been lost,
--          and members 'rebuild … ' + the key, the marks, with the score 4e15 + the end of the period.
-- ARGV[1]  'whole ' + the key
-- ARGV[2]  the caller's mark
-- ARGV[3]  period, ms, > 0; no other process begins a rebuild during this time
-- Returns 1 if the caller must enqueue all entries again, else 0. It also returns 0 if the key holds another type of
-- value.

local FAR = 4e15 -- later than any due time; marks have higher scores
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local names = string.sub(ARGV[1], 6) -- ' ' + the key: the end of each mark of this type

local own = redis.pcall('ZSCORE', KEYS[1], ARGV[2])
if type(own) == 'table' and own.err then
  return string.find(own.err, 'WRONGTYPE', 1, true) and 0 or own
end
local busy = redis.call('ZSCORE', KEYS[1], ARGV[1])
for _, other in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], FAR + now, '+inf')) do
  busy = busy or string.sub(other, 1, 8) == 'rebuild ' and string.sub(other, -#names) == names
end
if busy and not own then
  return 0
end
redis.call('ZREM', KEYS[1], ARGV[2]) -- first, because Redis at maxmemory refuses ZADD as the first write
redis.call('ZADD', KEYS[1], FAR + now + ARGV[3], ARGV[2])
return 1
