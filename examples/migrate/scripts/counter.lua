-- INCR and EXPIRE: a window begins with the first request. KEYS: the key. ARGV: limit, window in seconds.
local count = redis.call('INCR', KEYS[1])
if count == 1 then
    redis.call('EXPIRE', KEYS[1], ARGV[2])
end
return count <= tonumber(ARGV[1]) and 1 or 0
