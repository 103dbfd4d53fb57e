-- Makes entries of one type come due. An entry that is already here keeps its place, unless that is later
-- than it could be if somebody had leased it at its due time: then it is pulled in. Where there is no memory for
-- one that wants a place, it is left out, and the type is not whole, nor can it become so by who is rebuilding it.
--
-- KEYS[1] zset {prefix:v1:0}:sync_user:0:due   entry id -> due time, or lease end while claimed; unix ms
--         and 'whole ' + the key, while nothing that was enqueued since has been lost
--         and 'rebuild … ' + the key, the marks of who rebuilds -> 4e15 + end of the period
-- ARGV[1] 'whole ' + the key   ARGV[2] 'rebuild nobody ' + the key
-- ARGV[3] longest lease, ms
-- ARGV[4] most members of the zset, 0: no limit   ARGV[5] ms; an entry due later than that is left out beyond it
-- ARGV[6] entry id   ARGV[7] time until due, ms, 0: now   … and so on in pairs
-- Returns 1 if the earliest due time moved forward, else 0; plus 2 if entries of the type have been lost; plus 4 if
-- there was no memory; plus 8 if the key holds something else, which is left alone.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local later = time[1] * 1000 + math.ceil(time[2] / 1000) -- a due time is rounded up: never early
local longest, limit, near = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local FAR = 4e15 -- no entry is due that late
local FULL = 5000 -- ms until somebody tries to rebuild what had no room

local first = redis.pcall('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
if first.err then
  return string.find(first.err, 'WRONGTYPE', 1, true) and 2 + 8 or first
end
local before = math.min(tonumber(first[2]) or FAR, FAR)
local members = redis.call('ZCOUNT', KEYS[1], '-inf', FAR)

local entries = {} -- due time, id, due time, id …
for i = 6, #ARGV, 2 do
  local wait = tonumber(ARGV[i + 1])
  entries[i - 5] = wait > 0 and later + wait or now
  entries[i - 4] = ARGV[i]
end

-- Mostly all of them are new, and there is room: that is one command. A Redis at maxmemory refuses it even for
-- entries it has; those are looked at below.
local added = 0
if limit == 0 or members + #entries / 2 <= limit then
  local reply = redis.pcall('ZADD', KEYS[1], 'NX', unpack(entries))
  added = type(reply) == 'number' and reply or 0
end

local refusal
local function put(due, id)
  local reply = redis.pcall('ZADD', KEYS[1], due, id)
  if type(reply) == 'number' then
    return reply
  end
  refusal = reply
  return 0
end

if added < #entries / 2 then
  for i = 1, #entries, 2 do
    local due, id, wait = entries[i], entries[i + 1], tonumber(ARGV[i + 6])
    local place = tonumber(redis.call('ZSCORE', KEYS[1], id))
    if place then
      if place > later + wait + longest then
        put(due, id)
      end
    elseif wait <= near or limit == 0 or members < limit then
      members = members + put(due, id)
    end
  end
end

local full = 0
if refusal then
  if not string.find(refusal.err, 'OOM', 1, true) then
    return refusal
  end
  -- What removes is never refused, nor is what follows it. Nobody who is rebuilding the type may call it whole, and for a
  -- while it is no use to begin.
  redis.call('ZREMRANGEBYSCORE', KEYS[1], FAR, '+inf')
  redis.call('ZADD', KEYS[1], FAR + now + FULL, ARGV[2])
  full = 4
end
local head = math.min(tonumber(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]) or FAR, FAR)
return (head < before and 1 or 0) + (redis.call('ZSCORE', KEYS[1], ARGV[1]) and 0 or 2) + full
