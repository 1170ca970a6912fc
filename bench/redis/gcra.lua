-- The smallest limiter that a server can decide: one string that holds the instant at which the
-- budget is full. KEYS: the key. ARGV: µs a permit, µs of burst. Replies: allowed, remaining, µs.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local interval, depth = tonumber(ARGV[1]), tonumber(ARGV[2])
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local full = tat + interval
if full - now > depth then return { 0, 0, full - now - depth } end
redis.call('SET', KEYS[1], string.format('%.0f', full), 'PX', math.ceil((full - now) / 1000))
return { 1, math.floor((depth - (full - now)) / interval), full - now }
