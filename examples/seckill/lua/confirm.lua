-- Removes a ticket from the open tickets, because the database has it.
-- KEYS as in take.lua   ARGV[1] buyer   ARGV[2] ticket
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then return 0 end
return redis.call('ZREM', KEYS[3], ARGV[1])
