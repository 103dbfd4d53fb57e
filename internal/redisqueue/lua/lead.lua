-- Takes the lead for a period, or keeps it.
--
-- KEYS[1] string {prefix:v1:0}:lead   instance that leads; expires
-- ARGV[1] instance   ARGV[2] period, ms, > 0
-- Returns 1 if the instance leads from now on for the period, else 0.

local leader = redis.call('GET', KEYS[1])
if not leader then
  redis.call('PEXPIRE', KEYS[1], 1) -- there is nothing to expire, but Redis at maxmemory refuses SET as the first write
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
if leader == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
return 0
