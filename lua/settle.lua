-- Ends leases: removes each entry, or makes it due again. An entry that no longer carries the token it was
-- claimed with belongs to somebody else: it is not removed and not put off, only pulled in.
--
-- KEYS[1] zset {prefix:v1:0}:sync_user:0:due   entry id -> due time, or lease end while claimed; unix ms
-- ARGV[1] entry id   ARGV[2] token   ARGV[3] time until due again, ms, 0: now, -1: remove   … in triples
-- Returns how many entries still carried their token.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local later = time[1] * 1000 + math.ceil(time[2] / 1000) -- a due time is rounded up: never early
local settled = 0

for i = 1, #ARGV, 3 do
  local id, token, wait = ARGV[i], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2])
  local due = wait > 0 and later + wait or now
  local place = tonumber(redis.call('ZSCORE', KEYS[1], id))
  if place and (place == token or wait >= 0 and place > due) then
    -- ZREM comes first even for an entry that stays: Redis at maxmemory refuses ZADD as the first write.
    redis.call('ZREM', KEYS[1], id)
    if wait >= 0 then
      redis.call('ZADD', KEYS[1], due, id)
    end
    if place == token then
      settled = settled + 1
    end
  end
end
return settled
