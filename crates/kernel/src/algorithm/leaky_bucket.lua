-- The twin of leaky_bucket.rs: the same steps, names and order.
-- Places of the numbers besides those of a flow.
local DELAYED = 6
local DELAY = 8

-- Arguments and results of each act: the table in crates/store/src/redis/epilogue.lua.
return function(act, rule, state, now, cost, more)
  if act == 'rewind' then
    if state.at <= now then return false end
    state.at = now
    return true
  elseif act == 'new' then
    if now ~= 10 then return nil end
    rule = { struct.unpack('<dddddddd', rule, state) }
    local depth = rule[DEPTH]
    if rule[TICK_US] >= 1 and rule[PER_TICK] >= 1 and rule[PER_PERMIT] >= 1 and rule[LIMIT] >= 1
      and rule[DELAYED] >= 0 and rule[DELAYED] <= 1 and rule[DELAY] >= 0
      and depth >= rule[DELAY] and depth >= rule[PER_PERMIT] and rule[STEPPED] == 0
      and rule[TICK_US] + rule[PER_TICK] + depth + rule[LIMIT] <= UNITS_MAX then
      return rule
    end
    return nil
  elseif act == 'limit' then
    return rule[LIMIT]
  elseif act == 'countable' then
    return (UNITS_MAX - UNITS_MAX % rule[PER_PERMIT]) / rule[PER_PERMIT]
  elseif act == 'leases' then
    return rule[DELAYED] == 0 and LEASED_FLOWS
  elseif act == 'unpack' then
    if more then return flow('unpack', state, now) end
    if #state < now + 13 then return nil end
    local at, used = struct.unpack('<I7I7', state, now)
    if used > UNITS_MAX or at > UNITS_MAX then return nil end
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
    if cost > rule[LIMIT] then return nil, NEVER end
    local spilled = used - rule[DEPTH] + cost * rule[PER_PERMIT]
    local retry = flow('time_to_drain', rule, spilled, at, now)
    local wait = rule[DELAYED] == 1 and flow('time_to_drain', rule, used - rule[DELAY], at, now) or 0
    if more and wait - more > retry then retry = wait - more end
    if retry <= 0 then return wait end
    return nil, retry
  elseif act == 'charge' then
    local units = cost * rule[PER_PERMIT]
    if rule[TICK_US] == 1 then
      used = used + units
    else
      used, at = flow('fill', rule, used, at, now, units)
    end
    if state then
      state.used, state.at = used, at
    else
      state = { used = used, at = at }
    end
    -- The results of `status` as well: a reply contains them.
    local left = rule[DEPTH] - used
    return state, (left - left % rule[PER_PERMIT]) / rule[PER_PERMIT],
      flow('time_to_drain', rule, used, at, now)
  elseif act == 'available' then
    local left = rule[DEPTH] - used
    return left > 0 and (left - left % rule[PER_PERMIT]) / rule[PER_PERMIT] or 0
  elseif act == 'status' then
    local left = rule[DEPTH] - used
    return (left - left % rule[PER_PERMIT]) / rule[PER_PERMIT],
      flow('time_to_drain', rule, used, at, now)
  elseif act == 'refund' then
    local back = cost * rule[PER_PERMIT]
    if back > used then back = used end
    state.used, state.at = used - back, at
    back = back / rule[PER_PERMIT]
    return back + -back % 1
  elseif act == 'latest' then
    return state.at
  elseif act == 'forget' then
    state.used, state.at = used, at
  elseif act == 'used' then
    used = used / rule[PER_PERMIT]
    return used + -used % 1
  elseif act == 'with_used' then
    local units = cost * rule[PER_PERMIT]
    return { used = units < UNITS_MAX and units or UNITS_MAX, at = now }
  elseif act == 'convert' then
    return flow('take_over', rule, state.used, state.at, now, more, PER_PERMIT)
  elseif act == 'rescale' then
    -- Keeps the part of a full bucket that is in use, to the unit: a permit that has come back in part stays so.
    return flow('take_over', rule, state.used, state.at, now, more, DEPTH)
  end
end
