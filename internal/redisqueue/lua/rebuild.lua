-- Begins to rebuild types that have lost entries, unless somebody is at it. Whoever begins leaves a mark among the
-- entries: should they be lost again, so is the mark, and rebuilt.lua knows.
--
-- KEYS[i] zset {prefix:v1:0}:sync_user:0:due   entry id -> due time, or lease end while claimed; unix ms
--         and 'whole', while nothing that was announced since has been lost
--         and 'rebuild …', the mark -> 4e15 + end of the period
-- ARGV[1] the caller's mark   ARGV[2] period, ms, > 0, in which nobody else begins
-- Returns for each key 1 if the caller is to announce everything again, else 0.

local FAR = 4e15 -- no entry is due that late
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local begun = {}

for i = 1, #KEYS do
  local whole = redis.call('ZSCORE', KEYS[i], 'whole')
  local own = redis.call('ZSCORE', KEYS[i], ARGV[1])
  if not own and (whole or redis.call('ZCOUNT', KEYS[i], FAR + now, '+inf') > 0) then
    begun[i] = 0
  else
    redis.call('ZADD', KEYS[i], FAR + now + ARGV[2], ARGV[1])
    begun[i] = 1
  end
end
return begun
