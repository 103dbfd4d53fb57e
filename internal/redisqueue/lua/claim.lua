-- Leases due entries of one type: moves them to the end of the lease, where they come due again by
-- themselves unless they are settled.
--
-- KEYS[1] zset {prefix:v1:0}:sync_user:0:due   entry id -> due time, or lease end while claimed; unix ms
--         and 'whole ' + the key, while nothing that was enqueued since has been lost
-- ARGV[1] 'whole ' + the key   ARGV[2] most entries to lease   ARGV[3] lease, ms, > 0
-- Returns {token, µs until the next entry beyond these is due, 0: now, -1: there is none, ids claimed,
-- earliest due first, 1 if entries of the type have been lost, else 0}; token = the lease end written, unix ms.
-- Under a key that holds something else there is none, and the type is lost.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local token = time[1] * 1000 + math.ceil(time[2] / 1000) + tonumber(ARGV[3])
local ids = redis.pcall('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])
if ids.err then
  return string.find(ids.err, 'WRONGTYPE', 1, true) and {token, -1, {}, 1} or ids
end
local FAR = 4e15 -- no entry is due that late
local beyond = tonumber(redis.call('ZRANGE', KEYS[1], #ids, #ids, 'WITHSCORES')[2])
local lost = redis.call('ZSCORE', KEYS[1], ARGV[1]) and 0 or 1

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

if beyond and beyond < FAR then
  return {token, math.max(0, beyond * 1000 - (time[1] * 1000000 + time[2])), ids, lost}
end
return {token, -1, ids, lost}
