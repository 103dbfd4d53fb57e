-- The script of manual.go.
-- KEYS[1] stock   KEYS[2] set of buyers   KEYS[3] stream
-- ARGV[1] goods   ARGV[2] buyer   ARGV[3] ticket
-- Returns 0 if it took a piece, 1 for sold out, 2 for bought already. It fails if there is no stock key.
if tonumber(redis.call('GET', KEYS[1])) <= 0 then return 1 end
if redis.call('SISMEMBER', KEYS[2], ARGV[2]) == 1 then return 2 end
redis.call('INCRBY', KEYS[1], -1)
redis.call('SADD', KEYS[2], ARGV[2])
redis.call('XADD', KEYS[3], '*', 'ticket', ARGV[3], 'goods', ARGV[1], 'buyer', ARGV[2])
return 0
