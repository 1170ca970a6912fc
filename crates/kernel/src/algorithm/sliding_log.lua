-- The twin of sliding_log.rs: the same steps, names and order. `state.entries` is the log as it is
-- stored, 11 bytes an entry (at, cost), oldest first, so that unchanged entries are not unpacked.

-- The most permits in use that a log counts: a sum has 32 bits.
local COUNTED_MAX = 4294967295

local function gone(rule, at, now)
  return at + rule.window_us <= now
end

-- The sum of eight costs from `pos` on: one call is cheaper than eight.
local function eight(entries, pos)
  local _, a, _, b, _, c, _, d, _, e, _, f, _, g, _, h =
    struct.unpack('<I7I4I7I4I7I4I7I4I7I4I7I4I7I4I7I4', entries, pos)
  return a + b + c + d + e + f + g + h
end

-- The place of the first entry that counts, and the costs of those before it.
local function first_live(rule, state, now)
  local entries, pos, sum = state.entries, 1, 0
  if state.now == now then return state.first, state.gone end
  while #entries - pos >= 87 and gone(rule, struct.unpack('<I7', entries, pos + 77), now) do
    pos, sum = pos + 88, sum + eight(entries, pos)
  end
  while pos < #entries do
    local at, cost = struct.unpack('<I7I4', entries, pos)
    if not gone(rule, at, now) then break end
    pos, sum = pos + 11, sum + cost
  end
  state.now, state.first, state.gone = now, pos, sum
  return pos, sum
end

local function sum_at(rule, state, now)
  if not state then return 0 end
  local _, sum = first_live(rule, state, now)
  return state.sum - sum
end

local function forget_gone(rule, state, now)
  local pos, sum = first_live(rule, state, now)
  if pos > 1 then
    state.entries, state.sum, state.first, state.gone = state.entries:sub(pos), state.sum - sum, 1, 0
  end
end

-- Arguments and results of each act: the table in crates/store/src/redis/epilogue.lua.
return function(act, rule, state, now, cost, more)
  if act == 'new' then
    if now ~= 2 then return nil end
    local limit, window_us = struct.unpack('<dd', rule, state)
    if not (limit >= 1 and limit <= 10000 and window_us >= 1 and window_us <= UNITS_MAX) then
      return nil
    end
    return { limit = limit, window_us = window_us }
  elseif act == 'limit' then
    return rule.limit
  elseif act == 'countable' then
    return COUNTED_MAX
  elseif act == 'leases' then
    return rule.window_us >= 10000000 and LEASED_IN_STEPS
  elseif act == 'unpack' then
    if #state < now + 7 then return nil end
    local pos, entries = now + 8, 0
    local sum, count = struct.unpack('<I4I4', state, now)
    if count > 10000 or count > sum or #state < pos + count * 11 - 1 then return nil end
    return { sum = sum, entries = state:sub(pos, pos + count * 11 - 1) }, pos + count * 11
  elseif act == 'pack' then
    return now .. struct.pack('<I4I4', state.sum, #state.entries / 11) .. state.entries
  elseif act == 'check' then
    if cost > rule.limit then return nil, NEVER end
    local wanted = sum_at(rule, state, now) + cost
    if wanted <= rule.limit or not state then return 0 end
    local entries, pos, retry = state.entries, first_live(rule, state, now), 0
    while #entries - pos >= 87 do
      local costs = eight(entries, pos)
      if wanted - costs <= rule.limit then break end
      wanted, pos = wanted - costs, pos + 88
    end
    while pos < #entries and wanted > rule.limit do
      local at, granted = struct.unpack('<I7I4', entries, pos)
      wanted, retry, pos = wanted - granted, at + rule.window_us - now, pos + 11
    end
    return nil, retry
  elseif act == 'charge' then
    state = state or { sum = 0, entries = '' }
    forget_gone(rule, state, now)
    -- Permits that were leased may be more than the limit. They count, and a full log counts them with its newest entry.
    if cost > COUNTED_MAX - state.sum then cost = COUNTED_MAX - state.sum end
    if cost > 0 then
      local entries, newest = state.entries, 0
      if #entries >= 110000 then
        newest, entries = struct.unpack('<I4', entries, #entries - 3), entries:sub(1, -12)
      end
      state.entries = entries .. struct.pack('<I7I4', now, newest + cost)
      state.sum = state.sum + cost
    end
    return state
  elseif act == 'available' then
    local left = rule.limit - sum_at(rule, state, now)
    return left > 0 and left or 0
  elseif act == 'status' then
    local left, reset_after = rule.limit - sum_at(rule, state, now), 0
    if state and #state.entries > 0 then
      reset_after = struct.unpack('<I7', state.entries, #state.entries - 10) + rule.window_us - now
    end
    return left, reset_after > 0 and reset_after or 0
  elseif act == 'refund' then
    -- The newest entries give back first: they would have counted the longest.
    forget_gone(rule, state, now)
    local entries, left = state.entries, cost
    while left > 0 and #entries > 0 do
      local at, granted = struct.unpack('<I7I4', entries, #entries - 10)
      local back = granted < left and granted or left
      entries, left = entries:sub(1, -12), left - back
      if granted > back then entries = entries .. struct.pack('<I7I4', at, granted - back) end
    end
    state.entries, state.sum = entries, state.sum - (cost - left)
    return cost - left
  elseif act == 'rewind' then
    -- Entries later than now move to now.
    local entries = state.entries
    local pos, moved = #entries - 10, {}
    while pos > 0 do
      local at, granted = struct.unpack('<I7I4', entries, pos)
      if at <= now then break end
      table.insert(moved, struct.pack('<I7I4', now, granted))
      pos = pos - 11
    end
    if #moved == 0 then return false end
    for place = 1, #moved / 2 do
      local other = #moved + 1 - place
      moved[place], moved[other] = moved[other], moved[place]
    end
    state.entries = entries:sub(1, pos + 10) .. table.concat(moved)
    return true
  elseif act == 'latest' then
    return #state.entries > 0 and (struct.unpack('<I7', state.entries, #state.entries - 10)) or 0
  elseif act == 'forget' then
    forget_gone(rule, state, now)
  elseif act == 'used' then
    return sum_at(rule, state, now)
  elseif act == 'with_used' then
    local used = cost < COUNTED_MAX and cost or COUNTED_MAX
    return { sum = used, entries = used > 0 and struct.pack('<I7I4', now, used) or '' }
  elseif act == 'convert' then
    -- Entries are facts: they hold under any limit and window.
    forget_gone(more, state, now)
    state.now = nil
    return state
  elseif act == 'rescale' then
    -- An unchanged window keeps its entries, without those that add nothing to the scaled sum. Sums are
    -- scaled, from the newest entry on, so that at every later instant the sum of the entries that still
    -- count is rounded once.
    local scaled, old, entries = cost, more, state.entries
    if rule.window_us ~= old.window_us then return nil end
    local kept, sum, before = {}, 0, 0
    for pos = #entries - 10, 1, -11 do
      local at, granted = struct.unpack('<I7I4', entries, pos)
      sum = sum + granted
      local after = scaled(sum)
      if after > COUNTED_MAX then after = COUNTED_MAX end
      if after > before then kept[#kept + 1] = struct.pack('<I7I4', at, after - before) end
      before = after
    end
    for place = 1, #kept / 2 do
      local other = #kept + 1 - place
      kept[place], kept[other] = kept[other], kept[place]
    end
    return { sum = before, entries = table.concat(kept) }
  end
end
