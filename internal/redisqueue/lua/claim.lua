-- claim leases due entries of one type. It sets their due time to the end of the lease. So they come due again by
-- themselves unless they are settled.
--
-- KEYS[1]  zset {prefix:v1:0}:sync_user:0:due: entry id -> due time, or lease end while claimed, in unix ms.
--          It also holds the member 'whole ' + the key while no enqueued entry has been lost.
-- ARGV[1]  'whole ' + the key
-- ARGV[2]  maximum number of entries to lease
-- ARGV[3]  lease, ms, > 0
-- Returns {token, wait, ids, lost}:
--   token  the lease end that was written, unix ms
--   wait   µs until the next unclaimed entry is due; 0: now, -1: there is none
--   ids    the claimed entries, earliest due first
--   lost   1 if entries of the type have been lost, else 0
-- If the key holds another type of value, there are no ids, and lost is 1.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local token = time[1] * 1000 + math.ceil(time[2] / 1000) + tonumber(ARGV[3])
local ids = redis.pcall('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])
if ids.err then
  return string.find(ids.err, 'WRONGTYPE', 1, true) and {token, -1, {}, 1} or ids
end
local FAR = 4e15 -- later than any due time; marks have higher scores
local beyond = tonumber(redis.call('ZRANGE', KEYS[1], #ids, #ids, 'WITHSCORES')[2])
local lost = redis.call('ZSCORE', KEYS[1], ARGV[1]) and 0 or 1

-- At maxmemory Redis refuses ZADD as the first write of a script, although a new score needs no memory. After a ZREM
-- all commands are allowed. So a full Redis still serves claims.
if ids[1] then
  redis.call('ZREM', KEYS[1], ids[1])
  local i = 1
  while i + 7 <= #ids do -- eight in a command: some proxies refuse unpack, and one command for each takes longer
    redis.call('ZADD', KEYS[1], token, ids[i], token, ids[i + 1], token, ids[i + 2], token, ids[i + 3],
      token, ids[i + 4], token, ids[i + 5], token, ids[i + 6], token, ids[i + 7])
    i = i + 8
  end
  for rest = i, #ids do
    redis.call('ZADD', KEYS[1], token, ids[rest])
  end
end

if beyond and beyond < FAR then
  return {token, math.max(0, beyond * 1000 - (time[1] * 1000000 + time[2])), ids, lost}
end
return {token, -1, ids, lost}
