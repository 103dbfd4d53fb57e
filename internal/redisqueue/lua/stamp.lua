-- stamp sets a value if there is none.
--
-- KEYS[1]  string {prefix:v1:0}:owner: fingerprint of the database to which the entries belong
-- ARGV[1]  the value to set
-- Returns the value that is there now.

local found = redis.call('GET', KEYS[1])
if found then
  return found
end
redis.call('PEXPIRE', KEYS[1], 1) -- no effect on a missing key, but Redis at maxmemory refuses SET as the first write
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
