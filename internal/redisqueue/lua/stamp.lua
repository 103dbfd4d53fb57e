-- Leaves a value where none is. It reads first: Redis at maxmemory refuses SET even where SET NX would
-- change nothing.
--
-- KEYS[1] string {prefix:v1:0}:epoch   drawn when the keys of this hash tag were first used
--      or string {prefix:v1:0}:owner   fingerprint of the database the entries belong to
-- ARGV[1] the value to leave
-- Returns the value that is there now.

local found = redis.call('GET', KEYS[1])
if found then
  return found
end
redis.call('SET', KEYS[1], ARGV[1])
return ARGV[1]
