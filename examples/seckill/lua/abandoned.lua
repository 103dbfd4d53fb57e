-- KEYS as in take.lua   ARGV[1] age, ms   ARGV[2] limit
-- Returns {buyer, ticket, buyer, ticket, ...}, oldest first, of tickets that are open for longer than age.
local now = redis.call('TIME')
local before = now[1] * 1000 + math.floor(now[2] / 1000) - ARGV[1]
local found = {}
for _, buyer in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', before, 'LIMIT', 0, ARGV[2])) do
	found[#found + 1] = buyer
	found[#found + 1] = redis.call('HGET', KEYS[3], buyer) or ''
end
return found
