-- The twin of concurrency.rs: the same steps, names and order. The state stays as it is stored, so that unchanged
-- parts are not unpacked: `state.permits` are the ids, 16 bytes each, `state.ends` are 11 bytes a holder (lapses,
-- cost), both in the order of the ends. `state.sum` is the sum of all costs.

-- The sum of eight costs from `pos` on: one call is cheaper than eight.
local function eight(ends, pos)
  local _, a, _, b, _, c, _, d, _, e, _, f, _, g, _, h =
    struct.unpack('<I7I4I7I4I7I4I7I4I7I4I7I4I7I4I7I4', ends, pos)
  return a + b + c + d + e + f + g + h
end

-- Returns the place in `ends` of the first holder that has not lapsed, and the sum of the costs before it.
local function first_held(state, now)
  if state.now ~= now then
    local ends, pos, lapsed = state.ends, 1, 0
    while #ends - pos >= 87 and struct.unpack('<I7', ends, pos + 77) <= now do
      pos, lapsed = pos + 88, lapsed + eight(ends, pos)
    end
    while pos < #ends do
      local lapses, cost = struct.unpack('<I7I4', ends, pos)
      if lapses > now then break end
      pos, lapsed = pos + 11, lapsed + cost
    end
    state.now, state.first, state.lapsed = now, pos, lapsed
  end
  return state.first, state.lapsed
end

local function held_at(state, now)
  if not state then return 0 end
  local _, lapsed = first_held(state, now)
  return state.sum - lapsed
end

-- The instant at which the last permit lapses; 0 without permits.
local function latest(state)
  return #state.ends > 0 and (struct.unpack('<I7', state.ends, #state.ends - 10)) or 0
end

-- The µs until `excess` permits have lapsed.
local function retry_after(state, excess, now)
  local ends, pos, retry = state.ends, first_held(state, now), 0
  while #ends - pos >= 87 do
    local costs = eight(ends, pos)
    if costs >= excess then break end
    pos, excess = pos + 88, excess - costs
  end
  while pos < #ends and excess > 0 do
    local lapses, cost = struct.unpack('<I7I4', ends, pos)
    pos, excess, retry = pos + 11, excess - cost, lapses - now
  end
  return retry
end

local function forget_lapsed(state, now)
  local pos, lapsed = first_held(state, now)
  if pos > 1 then
    state.permits, state.ends = state.permits:sub((pos - 1) / 11 * 16 + 1), state.ends:sub(pos)
    state.sum, state.first, state.lapsed = state.sum - lapsed, 1, 0
  end
end

local function add(state, permit, lapses, cost)
  state.permits = state.permits .. permit
  state.ends = state.ends .. struct.pack('<I7I4', lapses, cost)
  state.sum = state.sum + cost
end

-- Returns the number of holders before that of `permit`, and its cost; nil if it is not held.
local function place_of(state, permit, now)
  local permits, pos = state.permits, 0
  while true do
    pos = permits:find(permit, pos + 1, true)
    if not pos then return nil end
    if pos % 16 == 1 then
      local place = (pos - 1) / 16
      local lapses, cost = struct.unpack('<I7I4', state.ends, place * 11 + 1)
      if lapses > now then return place, cost end
    end
  end
end

-- Removes the holder that has `place` others before it, and its `cost` from the sum.
local function remove(state, place, cost)
  local permits, ends = state.permits, state.ends
  state.permits = permits:sub(1, place * 16) .. permits:sub(place * 16 + 17)
  state.ends = ends:sub(1, place * 11) .. ends:sub(place * 11 + 12)
  state.sum, state.now = state.sum - cost, nil
end

-- Shortens permits to at most `ttl` from now. Returns whether any was longer.
local function shorten(rule, state, now)
  local last, ends = now + rule.ttl_us, state.ends
  local from = #ends + 1
  while from > 11 and struct.unpack('<I7', ends, from - 11) > last do from = from - 11 end
  if from > #ends then return false end
  local shortened, lapses = { ends:sub(1, from - 1) }, struct.pack('<I7', last)
  for pos = from, #ends, 11 do
    shortened[#shortened + 1] = lapses .. ends:sub(pos + 7, pos + 10)
  end
  state.ends, state.now = table.concat(shortened), nil
  return true
end

-- Arguments and results of each act: the table in crates/store/src/redis/epilogue.lua.
return function(act, rule, state, now, cost, more)
  if act == 'new' then
    if now ~= 3 then return nil end
    local limit, ttl_us = struct.unpack('<dd', rule, state)
    if not (limit >= 1 and limit <= 10000 and ttl_us >= 1 and ttl_us <= UNITS_MAX) then
      return nil
    end
    return { limit = limit, ttl_us = ttl_us }
  elseif act == 'limit' then
    return rule.limit
  elseif act == 'unpack' then
    if #state < now + 7 then return nil end
    local sum, count, pos = struct.unpack('<I4I4', state, now)
    local ends, after = pos + count * 16, pos + count * 27
    if count > 10000 or count > sum or #state < after - 1 then return nil end
    return { sum = sum, permits = state:sub(pos, ends - 1), ends = state:sub(ends, after - 1) }, after
  elseif act == 'pack' then
    return now .. struct.pack('<I4I4', state.sum, #state.ends / 11) .. state.permits .. state.ends
  elseif act == 'check' then
    if cost > rule.limit then return nil, NEVER end
    local excess = held_at(state, now) + cost - rule.limit
    if state and excess > 0 then return nil, retry_after(state, excess, now) end
    return 0
  elseif act == 'charge' then
    state = state or { sum = 0, permits = '', ends = '' }
    forget_lapsed(state, now)
    add(state, more, now + rule.ttl_us, cost)
    return state
  elseif act == 'available' then
    local left = rule.limit - held_at(state, now)
    return left > 0 and left or 0
  elseif act == 'status' then
    local left, reset_after = rule.limit - held_at(state, now), state and latest(state) - now or 0
    return left, reset_after > 0 and reset_after or 0
  elseif act == 'refund' then
    -- A permit is given back with `release`, by its id; there is nothing else to give back.
    return 0
  elseif act == 'rewind' then
    return shorten(rule, state, now)
  elseif act == 'latest' then
    local last = latest(state)
    return last > rule.ttl_us and last - rule.ttl_us or 0
  elseif act == 'used' then
    return held_at(state, now)
  elseif act == 'with_used' then
    -- Usage of another algorithm belongs to no permit, so nothing is held.
    return nil
  elseif act == 'convert' then
    -- Permits stay with their holders; a shorter ttl shortens them.
    shorten(rule, state, now)
    return state
  elseif act == 'release' then
    local place, released = place_of(state, more, now)
    if not place then return nil end
    remove(state, place, released)
    forget_lapsed(state, now)
    return released, state
  elseif act == 'renew' then
    local place, granted = place_of(state, more, now)
    if not place then return nil end
    remove(state, place, granted)
    add(state, more, now + rule.ttl_us, granted)
    return granted, state
  elseif act == 'holds' then
    return place_of(state, more, now) ~= nil
  end
end
