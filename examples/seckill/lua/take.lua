-- Takes one piece for a buyer, and notes the ticket until it is confirmed or given back. Run again with the same ticket
-- it takes nothing more.
-- KEYS[1] string {name:goods}:edition   KEYS[2] string :stock   KEYS[3] hash :buyers  buyer -> ticket
-- KEYS[4] zset :open  buyer -> when taken; ms by Redis's clock
-- ARGV[1] buyer   ARGV[2] ticket
-- Returns {"taken" | "again" | "sold out" | "no sale", edition}.
local edition = redis.call('GET', KEYS[1])
if not edition then return {'no sale', ''} end
local held = redis.call('HGET', KEYS[3], ARGV[1])
if held == ARGV[2] then return {'taken', edition} end
if held then return {'again', edition} end
if tonumber(redis.call('GET', KEYS[2]) or '0') <= 0 then return {'sold out', edition} end
local now = redis.call('TIME')
redis.call('DECR', KEYS[2])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[4], now[1] * 1000 + math.floor(now[2] / 1000), ARGV[1])
return {'taken', edition}
