-- enqueue adds entries of one type to the queue. An entry that is in the queue keeps its due time, unless that is
-- later than the new due time plus the longest lease. Then the entry gets the new due time.
--
-- An entry that finds no memory is left out. Then the type is lost: it has no 'whole' mark, and a process that is
-- rebuilding the type cannot set the mark either.
--
-- KEYS[1]  zset {prefix:v1:0}:sync_user:0:due: entry id -> due time, or lease end while claimed, in unix ms.
--          It also holds the member 'whole ' + the key while no enqueued entry has been lost,
--          and members 'rebuild … ' + the key with the score 4e15 + the end of the rebuild's period.
-- ARGV[1]  'whole ' + the key
-- ARGV[2]  'rebuild nobody ' + the key
-- ARGV[3]  longest lease, ms
-- ARGV[4]  maximum number of members of the zset; 0: no limit
-- ARGV[5]  ms; an entry that is due later than this is left out if the zset has reached the maximum
-- ARGV[6]  entry id
-- ARGV[7]  time until due, ms; 0: now. More pairs of id and time follow.
-- Returns the sum of: 1 if the earliest due time moved forward, 2 if entries of the type have been lost, 4 if there
-- was no memory, 8 if the key holds another type of value, which is left unchanged.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local later = time[1] * 1000 + math.ceil(time[2] / 1000) -- round due times up, so that nothing comes due early
local longest, limit, near = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local FAR = 4e15 -- later than any due time; marks have higher scores
local FULL = 5000 -- ms until the next attempt to rebuild a type after a lack of memory

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

-- In most cases all entries are new and there is memory. Then it is enough to add them. A Redis at maxmemory refuses
-- the command even for entries that it has. The loop below handles those.
local added = 0
local function count(reply)
  added = added + (type(reply) == 'number' and reply or 0)
end
if limit == 0 or members + #entries / 2 <= limit then
  local e, i = entries, 1
  while i + 15 <= #e do -- eight in a command: some proxies refuse unpack, and one command for each takes longer
    count(redis.pcall('ZADD', KEYS[1], 'NX', e[i], e[i + 1], e[i + 2], e[i + 3], e[i + 4], e[i + 5], e[i + 6], e[i + 7],
      e[i + 8], e[i + 9], e[i + 10], e[i + 11], e[i + 12], e[i + 13], e[i + 14], e[i + 15]))
    i = i + 16
  end
  for rest = i, #e, 2 do
    count(redis.pcall('ZADD', KEYS[1], 'NX', e[rest], e[rest + 1]))
  end
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
  -- Redis at maxmemory accepts commands that remove, and the commands after them. Remove all marks, so that no
  -- rebuild in progress can mark the type as whole. The new mark prevents other rebuilds for a while.
  redis.call('ZREMRANGEBYSCORE', KEYS[1], FAR, '+inf')
  redis.call('ZADD', KEYS[1], FAR + now + FULL, ARGV[2])
  full = 4
end
local head = math.min(tonumber(redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]) or FAR, FAR)
return (head < before and 1 or 0) + (redis.call('ZSCORE', KEYS[1], ARGV[1]) and 0 or 2) + full
