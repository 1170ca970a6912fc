-- A key for each window, whose number is in its name. KEYS: the key. ARGV: limit, window in ms, now in ms.
local key = KEYS[1] .. ':' .. math.floor(ARGV[3] / ARGV[2])
local count = redis.call('INCR', key)
redis.call('PEXPIRE', key, ARGV[2])
return count <= tonumber(ARGV[1]) and 1 or 0
