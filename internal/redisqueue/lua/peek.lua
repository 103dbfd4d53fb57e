-- Tells when a type wants attention next.
--
-- KEYS[1] zset {prefix:v1:0}:sync_user:0:due   entry id -> due time, or lease end while claimed; unix ms
--         and 'whole ' + the key, while nothing that was enqueued since has been lost
-- ARGV[1] 'whole ' + the key
-- Returns {µs until the first entry is due, 0: now, -1: no entries, 1 if entries have been lost, else 0}. Under a key that
-- holds something else there are no entries, and they have been lost.

local FAR = 4e15 -- no entry is due that late
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local first = redis.pcall('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if first.err then
  return string.find(first.err, 'WRONGTYPE', 1, true) and {-1, 1} or first
end
local head = tonumber(first[2])
local wait = head and head < FAR and math.max(0, head * 1000 - now) or -1
return {wait, redis.call('ZSCORE', KEYS[1], ARGV[1]) and 0 or 1}
