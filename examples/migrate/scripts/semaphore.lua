-- A sorted set with the end of each permit. KEYS: the key. ARGV: limit, ttl in ms, now in ms, id. A release is ZREM of the id.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[3])
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then
    return 0
end
redis.call('ZADD', KEYS[1], ARGV[3] + ARGV[2], ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
