-- Begins to rebuild a type that has lost entries, unless somebody is at it. The caller's mark is left among the entries: should
-- they be lost again, the mark is lost, too, and rebuilt.lua knows. Both the mark and 'whole' name the key: a zset that was
-- renamed says nothing of the type whose key it has now.
--
-- KEYS[1] zset {prefix:v1:0}:sync_user:0:due   entry id -> due time, or lease end while claimed; unix ms
--         and 'whole ' + the key, while nothing that was enqueued since has been lost
--         and 'rebuild … ' + the key, the mark -> 4e15 + end of the period
-- ARGV[1] 'whole ' + the key   ARGV[2] the caller's mark   ARGV[3] period, ms, > 0, in which nobody else begins
-- Returns 1 if the caller is to enqueue everything again, else 0: also where the key holds something else.

local FAR = 4e15 -- no entry is due that late
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local names = string.sub(ARGV[1], 6) -- ' ' + the key, at the end of each mark of this type

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
redis.call('ZREM', KEYS[1], ARGV[2]) -- first: Redis at maxmemory refuses ZADD as the first write
redis.call('ZADD', KEYS[1], FAR + now + ARGV[3], ARGV[2])
return 1
