-- Returns a ticket's piece to the stock. A second run changes nothing, because the ticket is then no longer stored.
-- KEYS as in take.lua of a sale   ARGV[1] buyer   ARGV[2] ticket
-- Returns 1 if the piece went back.
if redis.call('HGET', KEYS[2], ARGV[1]) ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end -- the next filling counts the piece
redis.call('HINCRBY', KEYS[1], 'stock', 1)
return 1
