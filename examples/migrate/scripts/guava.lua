-- Guava's bursty limiter in a hash: returns the wait in us. KEYS: the key. ARGV: stored at most, permits of a second, permits, now in us.
local most, interval, permits, now = tonumber(ARGV[1]), 1000000 / ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local state = redis.call('HMGET', KEYS[1], 'stored', 'free_at')
local stored, free_at = tonumber(state[1]) or 0, tonumber(state[2]) or now
if now > free_at then
    stored, free_at = math.min(most, stored + (now - free_at) / interval), now
end
local spent = math.min(permits, stored)
redis.call('HSET', KEYS[1], 'stored', stored - spent, 'free_at', string.format('%.0f', free_at + (permits - spent) * interval))
redis.call('EXPIRE', KEYS[1], 10)
return free_at - now
