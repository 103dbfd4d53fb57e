-- Takes one piece for a buyer and adds the message for its order, both atomically. A second run with the same
-- ticket changes nothing.
-- KEYS[1] hash {name:goods}:sale     edition and stock, in one key so that Redis loses neither alone
-- KEYS[2] hash {name:goods}:buyers   buyer -> ticket
-- KEYS[3] stream {name:goods}:orders ticket, goods, buyer, edition
-- ARGV[1] goods   ARGV[2] buyer   ARGV[3] ticket
-- Returns {"taken" | "again" | "sold out" | "no sale", edition}.
local sale = redis.call('HMGET', KEYS[1], 'edition', 'stock')
if not sale[1] then return {'no sale', ''} end
local held = redis.call('HGET', KEYS[2], ARGV[2])
if held == ARGV[3] then return {'taken', sale[1]} end
if held then return {'again', sale[1]} end
if tonumber(sale[2]) <= 0 then return {'sold out', sale[1]} end
redis.call('HINCRBY', KEYS[1], 'stock', -1)
redis.call('HSET', KEYS[2], ARGV[2], ARGV[3])
if redis.call('XLEN', KEYS[3]) == 0 then
  -- A lost stream may have used ids of this millisecond for messages that are already in the log. Start after them.
  local now = redis.call('TIME')
  local behind = string.format('%.0f-0', now[1] * 1000 + math.floor(now[2] / 1000) + 1)
  local added = redis.pcall('XADD', KEYS[3], behind, 'ticket', ARGV[3], 'goods', ARGV[1], 'buyer', ARGV[2], 'edition', sale[1])
  if not added.err then return {'taken', sale[1]} end
end
redis.call('XADD', KEYS[3], '*', 'ticket', ARGV[3], 'goods', ARGV[1], 'buyer', ARGV[2], 'edition', sale[1])
return {'taken', sale[1]}
