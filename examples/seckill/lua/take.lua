-- Takes one piece for a buyer, and keeps the ticket as open until it is confirmed or given back. A second run with the
-- same ticket changes nothing.
-- KEYS[1] hash {name:goods}:sale   edition and stock, in one key so that Redis loses neither alone
-- KEYS[2] hash {name:goods}:buyers buyer -> ticket
-- KEYS[3] zset {name:goods}:open   buyer -> time of taking, in ms by Redis's clock
-- ARGV[1] buyer   ARGV[2] ticket
-- Returns {"taken" | "again" | "sold out" | "no sale", edition}.
local sale = redis.call('HMGET', KEYS[1], 'edition', 'stock')
if not sale[1] then return {'no sale', ''} end
local held = redis.call('HGET', KEYS[2], ARGV[1])
if held == ARGV[2] then return {'taken', sale[1]} end
if held then return {'again', sale[1]} end
if tonumber(sale[2]) <= 0 then return {'sold out', sale[1]} end
local now = redis.call('TIME')
redis.call('HINCRBY', KEYS[1], 'stock', -1)
redis.call('HSET', KEYS[2], ARGV[1], ARGV[2])
redis.call('ZADD', KEYS[3], now[1] * 1000 + math.floor(now[2] / 1000), ARGV[1])
return {'taken', sale[1]}
