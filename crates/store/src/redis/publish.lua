-- Writes policies where every program that uses this Redis finds them, and tells those who listen.
-- KEYS[1]  the hash; ARGV: channel, format, revision, the revision that is changed (0: all is written
-- anew), then names and texts in turn, an empty text for a policy that is gone.
-- Returns 1 if it was done, 0 if what is there is as new or newer, -1 if what is there is another
-- revision than the one that is changed.
local there = redis.call('HMGET', KEYS[1], '#format', '#revision')
local revision, since = tonumber(ARGV[3]), tonumber(ARGV[4])
if there[1] == ARGV[2] and there[2] then
  if tonumber(there[2]) >= revision then return 0 end
  if since ~= 0 and tonumber(there[2]) ~= since then return -1 end
elseif since ~= 0 then
  return -1
end
if since == 0 then redis.call('DEL', KEYS[1]) end
for place = 5, #ARGV, 2 do
  if ARGV[place + 1] == '' then
    redis.call('HDEL', KEYS[1], ARGV[place])
  else
    redis.call('HSET', KEYS[1], ARGV[place], ARGV[place + 1])
  end
end
redis.call('HSET', KEYS[1], '#format', ARGV[2], '#revision', ARGV[3])
redis.call('PUBLISH', ARGV[1], ARGV[3])
return 1
