-- Makes entries of one type come due. An entry that is already here keeps its place, unless that is later
-- than it could be if somebody had leased it at its due time: then it is pulled in.
--
-- KEYS[1] zset {prefix:v1:0}:sync_user:0:due   entry id -> due time, or lease end while claimed; unix ms
--         and 'whole', while nothing that was announced since has been lost
-- ARGV[1] longest lease, ms
-- ARGV[2] most members of the zset, 0: no limit   ARGV[3] ms; an entry due later than that is left out beyond it
-- ARGV[4] entry id   ARGV[5] time until due, ms, 0: now   … and so on in pairs
-- Returns 1 if the earliest due time moved forward, else 0; plus 2 if entries of the type have been lost.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local later = time[1] * 1000 + math.ceil(time[2] / 1000) -- a due time is rounded up: never early
local longest, limit, near = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local FAR = 4e15 -- no entry is due that late
local members = redis.call('ZCOUNT', KEYS[1], '-inf', FAR)

local function earliest()
  return tonumber(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]) or math.huge
end

local before = earliest()
local entries = {} -- due time, id, due time, id …
for i = 4, #ARGV, 2 do
  local wait = tonumber(ARGV[i + 1])
  entries[i - 3] = wait > 0 and later + wait or now
  entries[i - 2] = ARGV[i]
end

-- Mostly all of them are new, and there is room: that is one command. A Redis at maxmemory refuses it even for
-- entries it has; those are looked at below.
local added = 0
if limit == 0 or members + #entries / 2 <= limit then
  local reply = redis.pcall('ZADD', KEYS[1], 'NX', unpack(entries))
  added = type(reply) == 'number' and reply or 0
end

if added < #entries / 2 then
  for i = 1, #entries, 2 do
    local due, id, wait = entries[i], entries[i + 1], tonumber(ARGV[i + 4])
    local place = tonumber(redis.call('ZSCORE', KEYS[1], id))
    if place then
      if place > later + wait + longest then
        redis.call('ZADD', KEYS[1], due, id)
      end
    elseif wait <= near or limit == 0 or members < limit then
      redis.call('ZADD', KEYS[1], due, id)
      members = members + 1
    end
  end
end
return (earliest() < before and 1 or 0) + (redis.call('ZSCORE', KEYS[1], 'whole') and 0 or 2)
