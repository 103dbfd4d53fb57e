-- Deletes the messages that every group of a stream has been given and has acknowledged. Without a group: none.
-- KEYS[1] stream
-- Returns how many were deleted.

-- less compares two ids, "ms-seq", whose numbers are too large for Lua's.
local function less(a, b)
	local ams, aseq = string.match(a, '(%d+)-(%d+)')
	local bms, bseq = string.match(b, '(%d+)-(%d+)')
	if ams ~= bms then
		return #ams < #bms or (#ams == #bms and ams < bms)
	end
	return #aseq < #bseq or (#aseq == #bseq and aseq < bseq)
end

-- after is the id that follows; where Lua cannot count that far, the same one, which spares one message.
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
