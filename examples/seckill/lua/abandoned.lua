-- KEYS as in take.lua   ARGV[1] age, ms   ARGV[2] limit
-- Returns {buyer, ticket, buyer, ticket, ...}, oldest first, for tickets that have been open for longer than age.
-- Removes open buyers that have no ticket.
local now = redis.call('TIME')
local before = now[1] * 1000 + math.floor(now[2] / 1000) - ARGV[1]
local found = {}
for _, buyer in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', before, 'LIMIT', 0, ARGV[2])) do
	local ticket = redis.call('HGET', KEYS[2], buyer)
	if ticket then
		found[#found + 1] = buyer
		found[#found + 1] = ticket
	else
		redis.call('ZREM', KEYS[3], buyer)
	end
end
return found
