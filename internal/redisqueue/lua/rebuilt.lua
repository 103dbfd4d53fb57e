-- rebuilt ends the rebuild of a type. It marks the type as whole if the zset still has the caller's mark.
--
-- KEYS[1]  zset {prefix:v1:0}:sync_user:0:due: entry id -> due time, or lease end while claimed, in unix ms.
--          It also holds the member 'whole ' + the key while no enqueued entry has been lost,
--          and members 'rebuild … ' + the key, the marks, with the score 4e15 + the end of the period.
-- ARGV[1]  'whole ' + the key
-- ARGV[2]  the caller's mark
-- Returns 1 if the type is whole now, else 0. It also returns 0 if the key holds another type of value.

local FAR = 4e15 -- later than any due time; marks have higher scores

local mine = redis.pcall('ZSCORE', KEYS[1], ARGV[2])
if type(mine) == 'table' and mine.err then
  return string.find(mine.err, 'WRONGTYPE', 1, true) and 0 or mine
end
if redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return 1
end
if not mine then
  return 0
end
redis.call('ZREMRANGEBYSCORE', KEYS[1], FAR, '+inf') -- first, because Redis at maxmemory refuses ZADD as the first write
redis.call('ZADD', KEYS[1], 2 * FAR, ARGV[1])
return 1
