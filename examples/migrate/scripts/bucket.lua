-- A token bucket in a hash. KEYS: the key. ARGV: burst, tokens of a second, cost, now in ms.
local burst, now = tonumber(ARGV[1]), tonumber(ARGV[4])
local state = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(state[1]) or burst, tonumber(state[2]) or now
tokens = math.min(burst, tokens + (now - at) * ARGV[2] / 1000)
local passes = tokens >= tonumber(ARGV[3])
if passes then
    tokens = tokens - ARGV[3]
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', now)
redis.call('PEXPIRE', KEYS[1], math.ceil(burst * 1000 / ARGV[2]))
return passes and 1 or 0
