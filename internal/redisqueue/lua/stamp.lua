-- Leaves a value where none is.
--
-- KEYS[1] string {prefix:v1:0}:epoch   drawn when the keys of this hash tag were first used
--      or string {prefix:v1:0}:owner   fingerprint of the database the entries belong to
-- ARGV[1] the value to leave
-- Returns the value that is there now.

local found = redis.call('GET', KEYS[1])
if found then
  return found
end
redis.call('PEXPIRE', KEYS[1], 1) -- there is nothing to expire, but Redis at maxmemory refuses SET as the first write
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
