-- Ends the rebuilding of types: those are whole that still carry the caller's mark.
--
-- KEYS[i] zset {prefix:v1:0}:sync_user:0:due   entry id -> due time, or lease end while claimed; unix ms
--         and 'whole', while nothing that was announced since has been lost
--         and 'rebuild …', the mark of who rebuilds -> 4e15 + end of its period
-- ARGV[1] the caller's mark
-- Returns for each key 1 if it is whole now, else 0.

local FAR = 4e15 -- no entry is due that late
local whole = {}

for i = 1, #KEYS do
  whole[i] = redis.call('ZSCORE', KEYS[i], 'whole') and 1 or 0
  if whole[i] == 0 and redis.call('ZSCORE', KEYS[i], ARGV[1]) then
    redis.call('ZREMRANGEBYSCORE', KEYS[i], FAR, '+inf') -- first: Redis at maxmemory refuses ZADD as the first write
    redis.call('ZADD', KEYS[i], 2 * FAR, 'whole')
    whole[i] = 1
  end
end
return whole
