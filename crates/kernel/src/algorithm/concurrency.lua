-- The twin of concurrency.rs: the same steps, names and order. `state.holders` is the list as it is
-- stored, 27 bytes a holder (permit, cost, lapses), so that nobody unpacks what has not changed; what
-- one pass over it says of `state.now` is kept beside it.

-- What is held, and of its holders: the latest end, the first, and what comes free then.
local function held_at(state, now)
  if not state then return 0 end
  if state.now ~= now then
    local holders, read = state.holders, struct.unpack
    local held, lapsed, latest, first, freed = 0, false, 0, nil, 0
    for pos = 17, #holders, 27 do
      local cost, lapses = read('<I4I7', holders, pos)
      if lapses > now then
        held = held + cost
        if not first or lapses < first then
          first, freed = lapses, cost
        elseif lapses == first then
          freed = freed + cost
        end
      else
        lapsed = true
      end
      if lapses > latest then latest = lapses end
    end
    state.now, state.held, state.lapsed, state.latest = now, held, lapsed, latest
    state.first, state.freed = first, freed
  end
  return state.held
end

-- Until `excess` permits have lapsed.
local function retry_after(state, excess, now)
  if held_at(state, now) > 0 and excess <= state.freed then return state.first - now end
  local held, retry = {}, 0
  for pos = 17, #state.holders, 27 do
    local cost, lapses = struct.unpack('<I4I7', state.holders, pos)
    if lapses > now then held[#held + 1] = { cost = cost, lapses = lapses } end
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
  held_at(state, now)
  if not state.lapsed then return state end
  local holders, kept = state.holders, {}
  for pos = 1, #holders, 27 do
    if struct.unpack('<I7', holders, pos + 20) > now then
      kept[#kept + 1] = holders:sub(pos, pos + 26)
    end
  end
  return { holders = table.concat(kept) }
end

-- The place of the holder of `permit`, and what it holds.
local function place_of(state, permit, now)
  local holders, pos = state.holders, 0
  while true do
    pos = holders:find(permit, pos + 1, true)
    if not pos then return nil end
    if pos % 27 == 1 then
      local cost, lapses = struct.unpack('<I4I7', holders, pos + 16)
      if lapses > now then return pos, cost end
    end
  end
end

-- No permit lasts longer than `ttl` from now.
local function shorten(rule, state, now)
  local latest, shortened = now + rule.ttl_us, {}
  held_at(state, now)
  if state.latest <= latest then return false end
  for pos = 1, #state.holders, 27 do
    local permit, cost, lapses = struct.unpack('<c16I4I7', state.holders, pos)
    if lapses > latest then lapses = latest end
    shortened[#shortened + 1] = struct.pack('<c16I4I7', permit, cost, lapses)
  end
  state.holders, state.now = table.concat(shortened), nil
  return true
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
    return { holders = state:sub(pos, pos + count * 27 - 1) }, pos + count * 27
  elseif act == 'pack' then
    return now .. struct.pack('<I4', #state.holders / 27) .. state.holders
  elseif act == 'check' then
    if cost > rule.limit then return nil, NEVER end
    local excess = held_at(state, now) + cost - rule.limit
    if state and excess > 0 then return nil, retry_after(state, excess, now) end
    return 0
  elseif act == 'charge' then
    state = retain_held(state or { holders = '' }, now)
    local held, lapses = held_at(state, now), now + rule.ttl_us
    state.holders = state.holders .. struct.pack('<c16I4I7', more, cost, lapses)
    -- No other lapses later, so what is known of `now` follows without another pass.
    if held == 0 then state.first, state.freed = lapses, 0 end
    if state.first == lapses then state.freed = state.freed + cost end
    state.held, state.latest = held + cost, lapses
    return state
  elseif act == 'available' then
    local left = rule.limit - held_at(state, now)
    return left > 0 and left or 0
  elseif act == 'status' then
    local left, reset_after = rule.limit - held_at(state, now), 0
    if state and state.latest > now then reset_after = state.latest - now end
    return left > 0 and left or 0, reset_after
  elseif act == 'refund' then
    -- A permit is given back with `release`, by its id; there is nothing else to give back.
    return 0
  elseif act == 'rewind' then
    return shorten(rule, state, now)
  elseif act == 'latest' then
    held_at(state, now)
    return state.latest > rule.ttl_us and state.latest - rule.ttl_us or 0
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
    local pos, released = place_of(state, more, now)
    if not pos then return nil end
    local holders, last = state.holders, #state.holders - 26
    local left = holders:sub(1, last - 1)
    if pos < last then
      left = holders:sub(1, pos - 1) .. holders:sub(last) .. holders:sub(pos + 27, last - 1)
    end
    return released, retain_held({ holders = left }, now)
  elseif act == 'renew' then
    local pos, granted = place_of(state, more, now)
    if not pos then return nil end
    local holders = state.holders
    state.holders = holders:sub(1, pos + 19) .. struct.pack('<I7', now + rule.ttl_us)
      .. holders:sub(pos + 27)
    state.now = nil
    return granted, state
  elseif act == 'holds' then
    return place_of(state, more, now) ~= nil
  end
end
