-- forget removes a consumer from a group if it has nothing pending. XGROUP DELCONSUMER would lose pending messages.
--
-- KEYS[1]  stream
-- ARGV[1]  group
-- ARGV[2]  consumer
-- Returns 1 if the consumer was removed or did not exist, 0 if it has pending messages.

if #redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', 1, ARGV[2]) > 0 then
	return 0
end
redis.call('XGROUP', 'DELCONSUMER', KEYS[1], ARGV[1], ARGV[2])
return 1
