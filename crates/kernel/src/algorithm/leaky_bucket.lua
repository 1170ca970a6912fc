-- The twin of leaky_bucket.rs: the same steps, names and order.
return function(act, rule, state, now, cost, more)
  if act == 'rewind' then
    if state.at <= now then return false end
    state.at = now
    return true
  elseif act == 'new' then
    if now ~= 9 then return nil end
    local tick_us, per_tick, per_permit, depth, limit, delayed, delay =
      struct.unpack('<ddddddd', rule, state)
    if not (tick_us >= 1 and per_tick >= 1 and per_permit >= 1 and depth >= per_permit and limit >= 1
      and delayed >= 0 and delayed <= 1 and delay >= 0 and depth >= delay
      and tick_us + per_tick + depth + limit <= UNITS_MAX) then
      return nil
    end
    return {
      tick_us = tick_us, per_tick = per_tick, per_permit = per_permit, depth = depth,
      limit = limit, delayed = delayed == 1, delay = delay, full_is_fresh = true,
    }
  elseif act == 'unpack' then
    if more then return flow('unpack', state, now) end
    if #state < now + 13 then return nil end
    local at, used = struct.unpack('<I7I7', state, now)
    return { used = used, at = at }, now + 14
  elseif act == 'pack' then
    if more then return flow('pack', now, state.used, state.at) end
    return now .. struct.pack('<I7I7', state.at, state.used)
  end

  -- level
  local used, at = 0, now
  if state then
    used, at = state.used, state.at
    if at ~= now then used, at = flow('drain', rule, used, at, now) end
  end

  if act == 'check' then
    if cost > rule.limit then return nil, NEVER end
    local spilled = used - rule.depth + cost * rule.per_permit
    local retry = flow('time_to_drain', rule, spilled, at, now)
    local wait = rule.delayed and flow('time_to_drain', rule, used - rule.delay, at, now) or 0
    if more and wait - more > retry then retry = wait - more end
    if retry <= 0 then return wait end
    return nil, retry
  elseif act == 'charge' then
    local units = cost * rule.per_permit
    if rule.tick_us == 1 then
      used = used + units
    else
      used, at = flow('fill', rule, used, at, now, units)
    end
    if state then
      state.used, state.at = used, at
    else
      state = { used = used, at = at }
    end
    -- Who charges wants to know what is left.
    local left = rule.depth - used
    return state, left > 0 and (left - left % rule.per_permit) / rule.per_permit or 0,
      flow('time_to_drain', rule, used, at, now)
  elseif act == 'available' then
    local left = rule.depth - used
    return left > 0 and (left - left % rule.per_permit) / rule.per_permit or 0
  elseif act == 'status' then
    local left = rule.depth - used
    return left > 0 and (left - left % rule.per_permit) / rule.per_permit or 0,
      flow('time_to_drain', rule, used, at, now)
  elseif act == 'refund' then
    local back = cost * rule.per_permit
    if back > used then back = used end
    state.used, state.at = used - back, at
    back = back / rule.per_permit
    return back + -back % 1
  elseif act == 'latest' then
    return state.at
  elseif act == 'used' then
    used = used / rule.per_permit
    return used + -used % 1
  elseif act == 'with_used' then
    local units = cost * rule.per_permit
    return { used = units < UNITS_MAX and units or UNITS_MAX, at = now }
  elseif act == 'convert' then
    local old = more
    used, at = flow('drain', old, state.used, state.at, now)
    used, at = flow('convert', rule, used, at, old, now)
    return { used = used, at = at }
  end
end
