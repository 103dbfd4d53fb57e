-- Ends the rebuilding of a type: it is whole if it still carries the caller's mark.
--
-- KEYS[1] zset {prefix:v1:0}:sync_user:0:due   entry id -> due time, or lease end while claimed; unix ms
--         and 'whole ' + the key, while nothing that was enqueued since has been lost
--         and 'rebuild … ' + the key, the mark of who rebuilds -> 4e15 + end of its period
-- ARGV[1] 'whole ' + the key   ARGV[2] the caller's mark
-- Returns 1 if the type is whole now, else 0: also where the key holds something else.

local FAR = 4e15 -- no entry is due that late

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
redis.call('ZREMRANGEBYSCORE', KEYS[1], FAR, '+inf') -- first: Redis at maxmemory refuses ZADD as the first write
redis.call('ZADD', KEYS[1], 2 * FAR, ARGV[1])
return 1
