-- A hash with a counter for each part of the window. KEYS: the key. ARGV: limit, window in ms, part in ms, now in ms.
local part = math.floor(ARGV[4] / ARGV[3])
local oldest = part - math.ceil(ARGV[2] / ARGV[3])
local used, counters = 0, redis.call('HGETALL', KEYS[1])
for i = 1, #counters, 2 do
    if tonumber(counters[i]) < oldest then
        redis.call('HDEL', KEYS[1], counters[i])
    else
        used = used + counters[i + 1]
    end
end
if used >= tonumber(ARGV[1]) then
    return 0
end
redis.call('HINCRBY', KEYS[1], part, 1)
redis.call('PEXPIRE', KEYS[1], ARGV[2] + ARGV[3])
return 1
