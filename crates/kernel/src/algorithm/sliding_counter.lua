-- The twin of sliding_counter.rs: the same steps, names and order.

-- Returns the running window: its number, the µs of it that have passed, and the counts of the window before
-- it and of itself.
local function view(rule, state, now)
  local elapsed_us = now % rule.window_us
  local window = (now - elapsed_us) / rule.window_us
  if not state then return window, elapsed_us, 0, 0 end
  if window < state.window then
    -- Time went back: the counts of later windows belong to the running one.
    local most = math.max(rule.limit, state.previous, state.current)
    return window, elapsed_us, 0, math.min(state.previous + state.current, most)
  end
  if window == state.window then return window, elapsed_us, state.previous, state.current end
  return window, elapsed_us, window == state.window + 1 and state.current or 0, 0
end

-- A counter has 32 bits.
local function counter(count)
  return count < 4294967295 and count or 4294967295
end

-- The estimate, rounded up, as is the number of steps of the previous window that still count.
local function estimate(rule, elapsed_us, previous, current)
  local weight = (rule.window_us - elapsed_us) / rule.step_us
  weight = weight + -weight % 1
  if weight > rule.steps then weight = rule.steps end
  local counts, left = previous * weight, nil
  if counts < UNITS_MAX then
    left = counts % rule.steps
    counts = (counts - left) / rule.steps
  else
    -- After a higher limit, a counter can be too large for one product.
    counts, left = mul_div(previous, weight, rule.steps)
  end
  return current + counts + (left > 0 and 1 or 0)
end

-- The first elapsed time of a window at which `previous` weighs little enough for `room`.
local function elapsed_until(rule, previous, room)
  if previous == 0 then return 0 end
  local weight = (room * rule.steps - room * rule.steps % previous) / previous
  return weight < rule.steps and rule.window_us - weight * rule.step_us or 0
end

-- Arguments and results of each act: the table in crates/store/src/redis/epilogue.lua.
return function(act, rule, state, now, cost, more)
  if act == 'new' then
    if now ~= 4 then return nil end
    local limit, window_us, step_us, steps = struct.unpack('<dddd', rule, state)
    if not (limit >= 1 and limit < 4294967296 and window_us >= 1 and window_us <= UNITS_MAX
      and step_us >= 1 and step_us <= window_us and steps >= 1 and steps <= window_us
      and limit * steps <= UNITS_MAX / 4) then
      return nil
    end
    return { limit = limit, window_us = window_us, step_us = step_us, steps = steps }
  elseif act == 'limit' then
    return rule.limit
  elseif act == 'countable' then
    return 4294967295
  elseif act == 'leases' then
    return rule.window_us >= 10000000 and LEASED_FLOWS
  elseif act == 'unpack' then
    if #state < now + 14 then return nil end
    local window, previous, current = struct.unpack('<I7I4I4', state, now)
    if window * rule.window_us > UNITS_MAX then return nil end
    return { window = window, previous = previous, current = current }, now + 15
  elseif act == 'pack' then
    return now .. struct.pack('<I7I4I4', state.window, state.previous, state.current)
  elseif act == 'latest' then
    return state.window * rule.window_us
  elseif act == 'with_used' then
    local window = (now - now % rule.window_us) / rule.window_us
    return { window = window, previous = 0, current = counter(cost) }
  elseif act == 'convert' then
    -- An unchanged window keeps both counters; another takes the estimate over.
    local old = more
    if rule.window_us == old.window_us then return state end
    local _, elapsed_us, previous, current = view(old, state, now)
    local used = estimate(old, elapsed_us, previous, current)
    local window = (now - now % rule.window_us) / rule.window_us
    return { window = window, previous = 0, current = counter(used) }
  elseif act == 'rescale' then
    -- An unchanged window keeps both counters. Their sum is rounded up once, and the older counter gets the
    -- rest of it after the newer one: the least rounding that never lowers the estimate.
    local scaled, old = cost, more
    if rule.window_us ~= old.window_us then return nil end
    local current = scaled(state.current)
    local previous = scaled(state.previous + state.current) - current
    return { window = state.window, previous = counter(previous), current = counter(current) }
  end

  local window, elapsed_us, previous, current = view(rule, state, now)

  if act == 'check' then
    if cost > rule.limit then return nil, NEVER end
    if estimate(rule, elapsed_us, previous, current) + cost <= rule.limit then return 0 end
    local room, at_us = rule.limit - current - cost, nil
    if room >= 0 then
      at_us = elapsed_until(rule, previous, room)
    else
      -- The request passes only when this window has become the previous one.
      at_us = rule.window_us + elapsed_until(rule, current, rule.limit - cost)
    end
    return nil, at_us > elapsed_us and at_us - elapsed_us or 0
  elseif act == 'charge' then
    return { window = window, previous = counter(previous), current = counter(current + cost) }
  elseif act == 'available' then
    local left = rule.limit - estimate(rule, elapsed_us, previous, current)
    return left > 0 and left or 0
  elseif act == 'status' then
    local full_after = current > 0 and 2 * rule.window_us or previous > 0 and rule.window_us or 0
    return rule.limit - estimate(rule, elapsed_us, previous, current),
      full_after > elapsed_us and full_after - elapsed_us or 0
  elseif act == 'refund' then
    -- The running window gives back first: it would have counted the longest.
    local from_current = current < cost and current or cost
    local from_previous = cost - from_current
    if previous < from_previous then from_previous = previous end
    state.window, state.previous = window, counter(previous - from_previous)
    state.current = counter(current - from_current)
    return from_current + from_previous
  elseif act == 'rewind' then
    if window >= state.window then return false end
    state.window, state.previous, state.current = window, counter(previous), counter(current)
    return true
  elseif act == 'forget' then
    state.window, state.previous, state.current = window, counter(previous), counter(current)
  elseif act == 'used' then
    return estimate(rule, elapsed_us, previous, current)
  end
end
