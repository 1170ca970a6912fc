-- Notes that a node is alive, and reports the others: spec/redis.md, "Who shares this Redis".
--
-- KEYS: fleet   ARGV: node (8 bytes), number of this note (LEFT: the node stops), now in ms (empty: the server's time)
--
-- Replies the number of the previous note (-1: none), the number of nodes that are alive, and the number of those that
-- stopped within the time in which a silent node counts as alive.
local NODES_MAX, LIVES_MS, KEPT_MS, LEFT = 1024, 15000, 3600000, 4294967295

local now = tonumber(ARGV[3])
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
end
local notes, before, lives, left, kept = redis.call('GET', KEYS[1]) or '', -1, 1, 0, {}
for at = 1, #notes - 18, 19 do
  local node, number, seen = struct.unpack('<c8I4I7', notes, at)
  if node == ARGV[1] then
    before = number
  elseif math.abs(now - seen) < (number == LEFT and LIVES_MS or KEPT_MS) and #kept < NODES_MAX then
    if math.abs(now - seen) < LIVES_MS then
      if number == LEFT then left = left + 1 else lives = lives + 1 end
    end
    kept[#kept + 1] = notes:sub(at, at + 18)
  end
end
kept[#kept + 1] = struct.pack('<c8I4I7', ARGV[1], tonumber(ARGV[2]), now)
redis.call('SET', KEYS[1], table.concat(kept), 'PX', KEPT_MS)
return { before, lives, left }
