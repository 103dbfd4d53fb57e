-- The database has the ticket: nobody needs to look after it any more.
-- KEYS as in take.lua   ARGV[1] buyer   ARGV[2] ticket
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('ZREM', KEYS[3], ARGV[1])
