-- Replaces all data of a sale by the data of the database.
-- KEYS as in take.lua of a sale   ARGV[1] edition   ARGV[2] stock   ARGV[3..] buyer, ticket, buyer, ticket, ...
redis.call('DEL', KEYS[1])
redis.call('DEL', KEYS[2])
redis.call('DEL', KEYS[3])
redis.call('HSET', KEYS[1], 'edition', ARGV[1], 'stock', ARGV[2])
for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
return redis.status_reply('OK')
