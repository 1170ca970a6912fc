-- The twin of smooth_warmup.rs: the same steps, names and order, in the same doubles.

local function as_of(rule, state, now)
  if not state then return { stored = rule.max_stored, debt_us = 0, at = now } end
  local elapsed = now > state.at and now - state.at or 0
  if elapsed < state.debt_us then
    return { stored = state.stored, debt_us = state.debt_us - elapsed, at = now }
  end
  local idle = elapsed - state.debt_us
  local stored = state.stored + idle / rule.cooldown
  return { stored = stored < rule.max_stored and stored or rule.max_stored, debt_us = 0, at = now }
end

local function interval(rule, above)
  return rule.stable + above * rule.slope
end

-- The µs that it takes to hand out `cost` permits when `stored` are stored.
local function time_to_hand_out(rule, stored, cost)
  local from_stored = cost < stored and cost or stored
  local above = stored - rule.threshold
  if not (above > 0) then above = 0 end
  local slow = from_stored < above and from_stored or above
  local trapezoid = slow * (interval(rule, above) + interval(rule, above - slow)) / 2
  return trapezoid + (from_stored - slow) * rule.stable + (cost - from_stored) * rule.stable
end

-- The permits in use: those that are not stored, and the debt at the stable interval.
local function used_of(rule, state)
  local used = ceil_f64(rule.max_stored - state.stored + state.debt_us / rule.stable)
  return used < UNITS_MAX and used or UNITS_MAX
end

local function full_after(rule, state)
  local span = ceil_f64(state.debt_us + (rule.max_stored - state.stored) * rule.cooldown)
  return span < SPAN_MAX_US and span or SPAN_MAX_US
end

-- Arguments and results of each act: the table in crates/store/src/redis/epilogue.lua.
return function(act, rule, state, now, cost, more)
  if act == 'new' then
    if now ~= 5 then return nil end
    local stable, threshold, max_stored, slope, cooldown = struct.unpack('<ddddd', rule, state)
    if not (stable > 0 and threshold > 0 and max_stored > threshold and slope > 0 and cooldown > 0
      and stable + max_stored + slope + cooldown <= LARGEST) then
      return nil
    end
    local limit = max_stored < DEPTH_MAX and max_stored - max_stored % 1 or DEPTH_MAX
    return {
      stable = stable, threshold = threshold, max_stored = max_stored, slope = slope,
      cooldown = cooldown, limit = limit > 1 and limit or 1,
    }
  elseif act == 'limit' then
    return rule.limit
  elseif act == 'unpack' then
    if #state < now + 22 then return nil end
    local stored, debt_us, at = struct.unpack('<ddI7', state, now)
    if not (stored >= 0 and debt_us >= 0 and stored + debt_us <= LARGEST) or at > UNITS_MAX then return nil end
    return { stored = stored, debt_us = debt_us, at = at }, now + 23
  elseif act == 'pack' then
    return now .. struct.pack('<ddI7', state.stored, state.debt_us, state.at)
  elseif act == 'check' then
    local wait = ceil_f64(as_of(rule, state, now).debt_us)
    if wait > SPAN_MAX_US then wait = SPAN_MAX_US end
    if wait > (more or 0) then return nil, wait - (more or 0) end
    return wait
  elseif act == 'charge' then
    local next_state = as_of(rule, state, now)
    local stored = next_state.stored
    next_state.debt_us = next_state.debt_us + time_to_hand_out(rule, stored, cost)
    next_state.stored = stored - (cost < stored and cost or stored)
    return next_state
  elseif act == 'available' then
    return as_of(rule, state, now).debt_us > 0 and 0 or UNITS_MAX
  elseif act == 'status' then
    state = as_of(rule, state, now)
    local stored, left = state.stored, nil
    if state.debt_us > 0 then
      left = rule.limit - used_of(rule, state)
      if left > 0 then left = 0 end
    else
      left = stored < DEPTH_MAX and stored - stored % 1 or DEPTH_MAX
    end
    return left, full_after(rule, state)
  elseif act == 'refund' then
    -- A debt is paid first, at the stable interval; the rest is stored.
    local next_state = as_of(rule, state, now)
    local paid_us = cost * rule.stable
    if next_state.debt_us < paid_us then paid_us = next_state.debt_us end
    next_state.debt_us = next_state.debt_us - paid_us
    local left, room = cost - paid_us / rule.stable, rule.max_stored - next_state.stored
    if room < left then left = room end
    if not (left > 0) then left = 0 end
    state.stored, state.debt_us, state.at = next_state.stored + left, next_state.debt_us, now
    local back = ceil_f64(paid_us / rule.stable + left)
    return back < cost and back or cost
  elseif act == 'rewind' then
    if state.at <= now then return false end
    state.at = now
    return true
  elseif act == 'latest' then
    return state.at
  elseif act == 'used' then
    return used_of(rule, as_of(rule, state, now))
  elseif act == 'with_used' then
    local spent = cost < rule.max_stored and cost or rule.max_stored
    return { stored = rule.max_stored - spent, debt_us = (cost - spent) * rule.stable, at = now }
  elseif act == 'convert' or act == 'rescale' then
    -- Guava's setRate: stored permits are rescaled, to the last bit, and a debt keeps its time.
    local old = more
    state = as_of(old, state, now)
    state.stored = state.stored * rule.max_stored / old.max_stored
    return state
  end
end
