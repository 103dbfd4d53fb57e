-- lead makes an instance the leader for a period, or extends its leadership.
--
-- KEYS[1]  string {prefix:v1:0}:lead: the instance that leads; it expires
-- ARGV[1]  instance
-- ARGV[2]  period, ms, > 0
-- Returns 1 if the instance leads for the period from now on, else 0.

local leader = redis.call('GET', KEYS[1])
if not leader then
  redis.call('PEXPIRE', KEYS[1], 1) -- no effect on a missing key, but Redis at maxmemory refuses SET as the first write
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
if leader == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return 1
end
return 0
