-- Publishes policies for programs: spec/redis-protocol.md. Replies 1 if it did so, and 0 if it changed nothing,
-- because another writer came first.
--
-- stage   KEYS: next             ARGV: attempt, the attempt that wrote before, ms to live, policies
-- change  KEYS: policies         ARGV: format and revision found, channel, revision, policies
-- swap    KEYS: policies, next   ARGV: format and revision found, channel, revision, attempt, fields
--
-- Policies are names and texts in turn; an empty text deletes the policy.
local call = redis.call

-- Deletes what is not a hash at `key`: another program wrote it.
local function own(key)
  local length = redis.pcall('HLEN', key)
  if type(length) == 'table' and string.find(length.err, 'WRONGTYPE', 1, true) then call('UNLINK', key) end
end

local function as_found()
  local there = call('HMGET', KEYS[1], '#format', '#revision')
  return (there[1] or '') == ARGV[2] and (there[2] or '') == ARGV[3]
end

if ARGV[1] == 'stage' then
  own(KEYS[1])
  if (call('HGET', KEYS[1], '#attempt') or '') ~= ARGV[3] then return 0 end
  call('HSET', KEYS[1], '#attempt', ARGV[2])
  for place = 5, #ARGV, 2 do
    call('HSET', KEYS[1], ARGV[place], ARGV[place + 1])
  end
  call('PEXPIRE', KEYS[1], ARGV[4])
  return 1
end

if ARGV[1] == 'change' then
  if not as_found() then return 0 end
  call('PUBLISH', ARGV[4], ARGV[5])
  -- A server without memory refuses the first HSET, and has changed nothing then: commands that take no
  -- memory come later.
  for place = 6, #ARGV, 2 do
    if ARGV[place + 1] ~= '' then call('HSET', KEYS[1], ARGV[place], ARGV[place + 1]) end
  end
  for place = 6, #ARGV, 2 do
    if ARGV[place + 1] == '' then call('HDEL', KEYS[1], ARGV[place]) end
  end
  call('HSET', KEYS[1], '#revision', ARGV[5])
  return 1
end

own(KEYS[1])
own(KEYS[2])
if (call('HGET', KEYS[2], '#attempt') or '') ~= ARGV[6] then return 0 end
if not as_found() or call('HLEN', KEYS[2]) ~= tonumber(ARGV[7]) then
  call('UNLINK', KEYS[2])
  return 0
end
call('PUBLISH', ARGV[4], ARGV[5])
call('HDEL', KEYS[2], '#attempt')
call('PERSIST', KEYS[2])
call('UNLINK', KEYS[1])
call('RENAME', KEYS[2], KEYS[1])
return 1
