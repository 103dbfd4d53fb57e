-- Replaces all that is known of a sale by what the database says.
-- KEYS as in take.lua   ARGV[1] edition   ARGV[2] stock   ARGV[3..] buyer, ticket, buyer, ticket, ...
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
redis.call('SET', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) end
return redis.status_reply('OK')
