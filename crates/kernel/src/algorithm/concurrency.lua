-- The twin of concurrency.rs: the same steps, names and order. A state is the list of its holders.

local function held_at(state, now)
  local held = 0
  for _, holder in ipairs(state or {}) do
    if holder.lapses > now then held = held + holder.cost end
  end
  return held
end

-- Until `excess` permits have lapsed.
local function retry_after(state, excess, now)
  local held, retry = {}, 0
  for _, holder in ipairs(state) do
    if holder.lapses > now then held[#held + 1] = holder end
  end
  table.sort(held, function(a, b) return a.lapses < b.lapses end)
  for _, holder in ipairs(held) do
    if excess <= 0 then break end
    excess, retry = excess - holder.cost, holder.lapses - now
  end
  return retry
end

-- The holders that have not lapsed, in their order.
local function retain_held(state, now)
  local kept = {}
  for _, holder in ipairs(state) do
    if holder.lapses > now then kept[#kept + 1] = holder end
  end
  return kept
end

-- The place of the holder of `permit`.
local function place_of(state, permit, now)
  for place, holder in ipairs(state) do
    if holder.permit == permit and holder.lapses > now then return place end
  end
end

-- No permit lasts longer than `ttl` from now.
local function shorten(rule, state, now)
  local latest, shortened = now + rule.ttl_us, false
  for _, holder in ipairs(state) do
    if holder.lapses > latest then holder.lapses, shortened = latest, true end
  end
  return shortened
end

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
    if #state < now + 3 then return nil end
    local count, pos = struct.unpack('<I4', state, now)
    if #state < pos + count * 27 - 1 then return nil end
    local holders = {}
    for place = 1, count do
      local permit, granted, lapses = struct.unpack('<c16I4I7', state, pos)
      holders[place], pos = { permit = permit, cost = granted, lapses = lapses }, pos + 27
    end
    return holders, pos
  elseif act == 'pack' then
    local packed = { now, struct.pack('<I4', #state) }
    for place, holder in ipairs(state) do
      packed[place + 2] = struct.pack('<c16I4I7', holder.permit, holder.cost, holder.lapses)
    end
    return table.concat(packed)
  elseif act == 'check' then
    if cost > rule.limit then return nil, NEVER end
    local excess = held_at(state, now) + cost - rule.limit
    if state and excess > 0 then return nil, retry_after(state, excess, now) end
    return 0
  elseif act == 'charge' then
    state = retain_held(state or {}, now)
    state[#state + 1] = { permit = more, cost = cost, lapses = now + rule.ttl_us }
    return state
  elseif act == 'available' then
    local left = rule.limit - held_at(state, now)
    return left > 0 and left or 0
  elseif act == 'status' then
    local left, reset_after = rule.limit - held_at(state, now), 0
    for _, holder in ipairs(state or {}) do
      if holder.lapses - now > reset_after then reset_after = holder.lapses - now end
    end
    return left > 0 and left or 0, reset_after
  elseif act == 'refund' then
    -- A permit is given back with `release`, by its id; there is nothing else to give back.
    return 0
  elseif act == 'rewind' then
    return shorten(rule, state, now)
  elseif act == 'latest' then
    local latest = 0
    for _, holder in ipairs(state) do
      if holder.lapses - rule.ttl_us > latest then latest = holder.lapses - rule.ttl_us end
    end
    return latest
  elseif act == 'used' then
    return held_at(state, now)
  elseif act == 'with_used' then
    -- Usage of another algorithm is nobody's permit, so nothing is held.
    return nil
  elseif act == 'convert' then
    -- Permits stay with their holders; a shorter ttl shortens them.
    shorten(rule, state, now)
    return state
  elseif act == 'release' then
    local place = place_of(state, more, now)
    if not place then return nil end
    local released = state[place].cost
    state[place] = state[#state]
    state[#state] = nil
    return released, retain_held(state, now)
  elseif act == 'renew' then
    local place = place_of(state, more, now)
    if not place then return nil end
    state[place].lapses = now + rule.ttl_us
    return state[place].cost, state
  elseif act == 'holds' then
    return place_of(state, more, now) ~= nil
  end
end
