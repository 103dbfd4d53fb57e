-- Begins to rebuild types that have lost entries, unless somebody is at it. Whoever begins leaves a mark among the
-- entries: should they be lost again, so is the mark, and rebuilt.lua knows. Both the mark and 'whole' name the key: a
-- zset that was renamed says nothing of the type whose key it has now.
--
-- KEYS[i] zset {prefix:v1:0}:sync_user:0:due   entry id -> due time, or lease end while claimed; unix ms
--         and 'whole ' + the key, while nothing that was announced since has been lost
--         and 'rebuild … ' + the key, the mark -> 4e15 + end of the period
-- ARGV[1] the caller's mark, without the key   ARGV[2] period, ms, > 0, in which nobody else begins
-- Returns for each key 1 if the caller is to announce everything again, else 0: also where a key holds something else.

local FAR = 4e15 -- no entry is due that late
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local begun = {}

for i = 1, #KEYS do
  local mark = ARGV[1] .. ' ' .. KEYS[i]
  local own = redis.pcall('ZSCORE', KEYS[i], mark)
  if type(own) == 'table' and own.err then
    if not string.find(own.err, 'WRONGTYPE', 1, true) then
      return own
    end
    begun[i] = 0
  else
    local busy = redis.call('ZSCORE', KEYS[i], 'whole ' .. KEYS[i])
    for _, other in ipairs(redis.call('ZRANGEBYSCORE', KEYS[i], FAR + now, '+inf')) do
      busy = busy or string.sub(other, 1, 8) == 'rebuild ' and string.sub(other, -#KEYS[i] - 1) == ' ' .. KEYS[i]
    end
    begun[i] = (own or not busy) and 1 or 0
    if begun[i] == 1 then
      redis.call('ZREM', KEYS[i], mark) -- first: Redis at maxmemory refuses ZADD as the first write
      redis.call('ZADD', KEYS[i], FAR + now + ARGV[2], mark)
    end
  end
end
return begun
