-- The twin of concurrency.rs: the same steps, names and order. The state stays as it is stored, so that unchanged
-- parts are not unpacked: `state.permits` are the ids, 16 bytes each, `state.ends` are 11 bytes a holder (lapses,
-- cost), both in the order of the ends. `state.sum` is the sum of all costs. Of a rule with a queue, `state.tickets` are 28
-- bytes a request that waits (permit, process, cost), in order, and `state.presences` 15 bytes a process with tickets (process,
-- end); nil if nothing waits.

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

-- The instant from which no permit is held, and no process with tickets is present.
local function over_at(state)
  local last, presences = latest(state), state.presences or ''
  for pos = 9, #presences, 15 do
    local till = struct.unpack('<I7', presences, pos)
    if till > last then last = till end
  end
  return last
end

-- The permits that are wanted before `permit`, by its ticket or, without one, by all tickets; some number above `most`
-- if they are more.
local function ahead(state, permit, most)
  local tickets, sum = state and state.tickets or '', 0
  for pos = 1, #tickets, 28 do
    if sum > most or permit and tickets:sub(pos, pos + 15) == permit then break end
    sum = sum + struct.unpack('<I4', tickets, pos + 24)
  end
  return sum
end

-- Removes tickets: that for `permit`, those for more than `most` permits, those of absent processes; and processes that
-- have none left. Returns whether a ticket was removed.
local function remove_tickets(state, permit, most)
  local tickets, presences = state.tickets or '', state.presences or ''
  local kept, present, known = {}, {}, {}
  for pos = 1, #presences, 15 do known[presences:sub(pos, pos + 7)] = presences:sub(pos, pos + 14) end
  for pos = 1, #tickets, 28 do
    local process = tickets:sub(pos + 16, pos + 23)
    if known[process] and tickets:sub(pos, pos + 15) ~= permit
      and (not most or struct.unpack('<I4', tickets, pos + 24) <= most) then
      kept[#kept + 1], present[process] = tickets:sub(pos, pos + 27), true
    end
  end
  state.tickets, state.presences = table.concat(kept), ''
  for pos = 1, #presences, 15 do
    if present[presences:sub(pos, pos + 7)] then
      state.presences = state.presences .. presences:sub(pos, pos + 14)
    end
  end
  return #state.tickets < #tickets
end

-- Moves presences that are later than any of `now`, and forgets processes that are absent, with their tickets. Returns
-- whether anything changed.
local function look(state, now)
  local presences = state.presences or ''
  local changed, seen = false, {}
  for pos = 1, #presences, 15 do
    local till = struct.unpack('<I7', presences, pos + 8)
    if till > now + TICKET_TTL then
      till, changed = now + TICKET_TTL, true
    end
    if till > now then
      seen[#seen + 1] = presences:sub(pos, pos + 7) .. struct.pack('<I7', till)
    end
  end
  local absent = #seen < #presences / 15
  state.presences = changed and table.concat(seen) or absent and table.concat(seen) or state.presences
  if absent then remove_tickets(state) end
  return changed or absent
end

-- The µs until `excess` permits have lapsed; until all have, and no process waits, if requests that wait come before.
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
  if excess > 0 then
    retry = over_at(state) - now
    if retry < 0 then retry = 0 end
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
    local limit, ttl_us, queue = struct.unpack('<ddd', rule, state)
    if not (limit >= 1 and limit <= 10000 and ttl_us >= 1 and ttl_us <= UNITS_MAX
      and queue >= 0 and queue <= 10000) then
      return nil
    end
    return { limit = limit, ttl_us = ttl_us, queue = queue }
  elseif act == 'limit' then
    return rule.limit
  elseif act == 'unpack' then
    if #state < now + 7 then return nil end
    local sum, count, pos = struct.unpack('<I4I4', state, now)
    local ends, after = pos + count * 16, pos + count * 27
    if count > 10000 or count > sum or #state < after - 1 then return nil end
    local held = { sum = sum, permits = state:sub(pos, ends - 1), ends = state:sub(ends, after - 1) }
    if rule.queue == 0 then return held, after end
    if #state < after + 3 then return nil end
    local waiting, processes, begin = struct.unpack('<I2I2', state, after)
    ends = begin + 15 * processes
    after = ends + 28 * waiting
    if waiting > 10000 or processes > waiting or #state < after - 1 then return nil end
    held.presences, held.tickets = state:sub(begin, ends - 1), state:sub(ends, after - 1)
    return held, after
  elseif act == 'pack' then
    local text = now .. struct.pack('<I4I4', state.sum, #state.ends / 11) .. state.permits .. state.ends
    if rule.queue == 0 then return text end
    local tickets, presences = state.tickets or '', state.presences or ''
    return text .. struct.pack('<I2I2', #tickets / 28, #presences / 15) .. presences .. tickets
  elseif act == 'check' then
    if cost > rule.limit then return nil, NEVER end
    local excess = held_at(state, now) + ahead(state, more, rule.limit) + cost - rule.limit
    if state and excess > 0 then return nil, retry_after(state, excess, now) end
    return 0
  elseif act == 'charge' then
    state = state or { sum = 0, permits = '', ends = '' }
    forget_lapsed(state, now)
    if state.tickets then remove_tickets(state, more) end
    add(state, more, now + rule.ttl_us, cost)
    return state
  elseif act == 'enqueue' then
    -- A copy, as another rule may have no place in its queue.
    local queued = { sum = 0, permits = '', ends = '' }
    for name, part in pairs(state or {}) do queued[name] = part end
    state = queued
    local permit, process = more:sub(1, 16), more:sub(17)
    local tickets, presences, place = state.tickets or '', state.presences or '', nil
    for pos = 1, #tickets, 28 do
      if tickets:sub(pos, pos + 15) == permit then place = pos end
    end
    if not place and #tickets / 28 >= rule.queue then return nil end
    place = place or #tickets + 1
    tickets = tickets:sub(1, place - 1) .. more .. struct.pack('<I4', cost) .. tickets:sub(place + 28)
    local presence, known = process .. struct.pack('<I7', now + TICKET_TTL), false
    for pos = 1, #presences, 15 do
      if presences:sub(pos, pos + 7) == process then
        presences, known = presences:sub(1, pos - 1) .. presence .. presences:sub(pos + 15), true
      end
    end
    state.tickets, state.presences = tickets, known and presences or presences .. presence
    remove_tickets(state)
    return state
  elseif act == 'leave' then
    local tickets = state.tickets or ''
    for pos = 1, #tickets, 28 do
      if tickets:sub(pos, pos + 23) == more then
        remove_tickets(state, more:sub(1, 16))
        return 0, state
      end
    end
    return nil
  elseif act == 'called' then
    local tickets, free, called = state.tickets or '', rule.limit - held_at(state, now), ''
    for pos = 1, #tickets, 28 do
      free = free - struct.unpack('<I4', tickets, pos + 24)
      if free < 0 or #called == 24 * CALLED_MAX then break end
      called = called .. tickets:sub(pos, pos + 23)
    end
    return called
  elseif act == 'available' then
    local left = rule.limit - held_at(state, now) - ahead(state, nil, rule.limit)
    return left > 0 and left or 0
  elseif act == 'status' then
    local left, reset_after = rule.limit - held_at(state, now), state and over_at(state) - now or 0
    return left, reset_after > 0 and reset_after or 0
  elseif act == 'refund' then
    -- A permit is given back with `release`, by its id; there is nothing else to give back.
    return 0
  elseif act == 'rewind' then
    local shortened = shorten(rule, state, now)
    return look(state, now) or shortened
  elseif act == 'latest' then
    local last = latest(state)
    return last > rule.ttl_us and last - rule.ttl_us or 0
  elseif act == 'used' then
    return held_at(state, now)
  elseif act == 'with_used' then
    -- Usage of another algorithm belongs to no permit, so nothing is held.
    return nil
  elseif act == 'convert' then
    -- Permits stay with their holders; a shorter ttl shortens them. Requests go on waiting if there is a queue and they
    -- can pass at all.
    shorten(rule, state, now)
    if rule.queue == 0 then state.tickets, state.presences = nil, nil end
    if state.tickets then
      look(state, now)
      remove_tickets(state, nil, rule.limit)
    end
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
