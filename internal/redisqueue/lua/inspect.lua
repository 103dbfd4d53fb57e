-- inspect returns what the queue holds of one entry. It changes nothing.
--
-- KEYS[1]  zset {prefix:v1:0}:sync_user:0:due: entry id -> due time, or lease end while claimed, in unix ms.
--          It also holds the member 'whole ' + the key while no enqueued entry has been lost.
-- ARGV[1]  'whole ' + the key
-- ARGV[2]  entry id
-- Returns {queued, wait, lost}:
--   queued  1 if the entry is in the queue, else 0
--   wait    ms until the entry is due; 0: now, or the entry is not in the queue
--   lost    1 if entries of the type have been lost, else 0
-- If the key holds another type of value, queued is 0 and lost is 1.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local due = redis.pcall('ZSCORE', KEYS[1], ARGV[2])
if type(due) == 'table' and due.err then
  return string.find(due.err, 'WRONGTYPE', 1, true) and {0, 0, 1} or due
end
local wait = due and math.max(0, tonumber(due) - now) or 0
return {due and 1 or 0, wait, redis.call('ZSCORE', KEYS[1], ARGV[1]) and 0 or 1}
