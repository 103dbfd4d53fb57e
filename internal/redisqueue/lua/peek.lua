-- Tells when types want attention next.
--
-- KEYS[i] zset {prefix:v1:0}:sync_user:0:due   entry id -> due time, or lease end while claimed; unix ms
--         and 'whole ' + the key, while nothing that was announced since has been lost
-- Returns for each key the µs until its first entry is due, 0: now, -1: no entries; and 1 if entries have been
-- lost, else 0. Under a key that holds something else there are none, and they have.

local FAR = 4e15 -- no entry is due that late
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local answers = {}

for i = 1, #KEYS do
  local first = redis.pcall('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')
  if not first.err then
    local head = tonumber(first[2])
    answers[2 * i - 1] = head and head < FAR and math.max(0, head * 1000 - now) or -1
    answers[2 * i] = redis.call('ZSCORE', KEYS[i], 'whole ' .. KEYS[i]) and 0 or 1
  elseif string.find(first.err, 'WRONGTYPE', 1, true) then
    answers[2 * i - 1], answers[2 * i] = -1, 1
  else
    return first
  end
end
return answers
