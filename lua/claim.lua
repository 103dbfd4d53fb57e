-- Leases due entries of one type: moves them to the end of the lease, where they come due again by
-- themselves unless they are settled.
--
-- KEYS[1] zset {prefix:v1:0}:sync_user:0:due   entry id -> due time, or lease end while claimed; unix ms
-- ARGV[1] most entries to lease   ARGV[2] lease, ms, > 0
-- Returns {token, µs until the next entry beyond these is due, 0: now, -1: there is none, ids claimed,
-- earliest due first}; token = the lease end written, unix ms.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local token = time[1] * 1000 + math.ceil(time[2] / 1000) + tonumber(ARGV[2])
local ids = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[1])
local beyond = redis.call('ZRANGE', KEYS[1], #ids, #ids, 'WITHSCORES')[2]

-- At maxmemory Redis refuses ZADD as the first write of a script, though moving an entry needs no memory.
-- ZREM is allowed, and after it the rest is, so a full Redis still drains.
if ids[1] then
  local leased = {}
  for i, id in ipairs(ids) do
    leased[2 * i - 1], leased[2 * i] = token, id
  end
  redis.call('ZREM', KEYS[1], ids[1])
  redis.call('ZADD', KEYS[1], unpack(leased))
end

if beyond then
  return {token, math.max(0, beyond * 1000 - (time[1] * 1000000 + time[2])), ids}
end
return {token, -1, ids}
