-- Tells when types want attention next.
--
-- KEYS[i] zset {prefix:v1:0}:sync_user:0:due   entry id -> due time, or lease end while claimed; unix ms
-- Returns for each key the µs until its first entry is due, 0: now, -1: no entries.

local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local waits = {}

for i = 1, #KEYS do
  local head = redis.call('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')[2]
  waits[i] = head and math.max(0, head * 1000 - now) or -1
end
return waits
