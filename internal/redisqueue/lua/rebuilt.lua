-- Ends the rebuilding of types: those are whole that still carry the caller's mark.
--
-- KEYS[i] zset {prefix:v1:0}:sync_user:0:due   entry id -> due time, or lease end while claimed; unix ms
--         and 'whole ' + the key, while nothing that was announced since has been lost
--         and 'rebuild … ' + the key, the mark of who rebuilds -> 4e15 + end of its period
-- ARGV[1] the caller's mark, without the key
-- Returns for each key 1 if it is whole now, else 0: also where it holds something else.

local FAR = 4e15 -- no entry is due that late
local whole = {}

for i = 1, #KEYS do
  local mine = redis.pcall('ZSCORE', KEYS[i], ARGV[1] .. ' ' .. KEYS[i])
  if type(mine) == 'table' and mine.err then
    if not string.find(mine.err, 'WRONGTYPE', 1, true) then
      return mine
    end
    whole[i] = 0
  else
    whole[i] = redis.call('ZSCORE', KEYS[i], 'whole ' .. KEYS[i]) and 1 or 0
    if whole[i] == 0 and mine then
      redis.call('ZREMRANGEBYSCORE', KEYS[i], FAR, '+inf') -- first: Redis at maxmemory refuses ZADD as the first write
      redis.call('ZADD', KEYS[i], 2 * FAR, 'whole ' .. KEYS[i])
      whole[i] = 1
    end
  end
end
return whole
