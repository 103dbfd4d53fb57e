-- trim deletes the messages that every group of a stream has received and acknowledged. If there is no group, it
-- deletes nothing.
--
-- KEYS[1]  stream
-- Returns the number of deleted messages.

-- less reports whether id a is less than id b. Ids have the form "ms-seq". Their numbers exceed Lua's numbers, so less
-- compares texts.
local function less(a, b)
	local ams, aseq = string.match(a, '(%d+)-(%d+)')
	local bms, bseq = string.match(b, '(%d+)-(%d+)')
	if ams ~= bms then
		return #ams < #bms or (#ams == #bms and ams < bms)
	end
	return #aseq < #bseq or (#aseq == #bseq and aseq < bseq)
end

-- after returns the next id. If Lua cannot count that far, it returns the same id, so one message more is kept.
local function after(id)
	local ms, seq = string.match(id, '(%d+)-(%d+)')
	if #seq > 14 then
		return id
	end
	return ms .. '-' .. string.format('%.0f', tonumber(seq) + 1)
end

local bound
for _, info in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
	local group = {}
	for i = 1, #info, 2 do
		group[info[i]] = info[i + 1]
	end
	local keep = after(group['last-delivered-id'])
	if group['pending'] > 0 then
		keep = redis.call('XPENDING', KEYS[1], group['name'])[2]
	end
	if not bound or less(keep, bound) then
		bound = keep
	end
end
if not bound then
	return 0
end
return redis.call('XTRIM', KEYS[1], 'MINID', bound)
