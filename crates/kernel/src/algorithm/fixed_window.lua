-- The twin of fixed_window.rs: the same steps, names and order. `rule.kind` is 0 for epoch, 1 for
-- first and 2 for a calendar, whose window comes with the request and ends at `rule.till`.

-- The end of the window around `now` for a key whose state is `state`.
local function window_end(rule, state, now)
  if rule.kind == 0 then return now - now % rule.span_us + rule.span_us end
  if rule.kind == 2 then return rule.till end
  if state and now < state.till and state.count > 0 then return state.till end
  return now + rule.span_us
end

local function count_at(state, now)
  return state and now < state.till and state.count or 0
end

-- Arguments and results of each act: the table in crates/store/src/redis/epilogue.lua.
return function(act, rule, state, now, cost, more)
  if act == 'new' then
    if now ~= 5 then return nil end
    local limit, kind, span_us = struct.unpack('<ddd', rule, state)
    if not (limit >= 1 and limit <= UNITS_MAX and kind >= 0 and kind <= 2
      and span_us >= (kind == 2 and 0 or 1) and span_us <= UNITS_MAX) then
      return nil
    end
    return {
      limit = limit, kind = kind, span_us = span_us,
      window = rule:sub(state + 8, state + 39),
    }
  elseif act == 'limit' then
    return rule.limit
  elseif act == 'leases' then
    return (rule.kind == 2 or rule.span_us >= 1000000) and LEASED_IN_STEPS
  elseif act == 'unpack' then
    if #state < now + 13 then return nil end
    local count, till = struct.unpack('<I7I7', state, now)
    if count > UNITS_MAX or till > UNITS_MAX then return nil end
    return { count = count, till = till }, now + 14
  elseif act == 'pack' then
    return now .. struct.pack('<I7I7', state.count, state.till)
  elseif act == 'check' then
    if cost > rule.limit then return nil, NEVER end
    if count_at(state, now) + cost <= rule.limit then return 0 end
    return nil, window_end(rule, state, now) - now
  elseif act == 'charge' then
    return { count = count_at(state, now) + cost, till = window_end(rule, state, now) }
  elseif act == 'available' then
    local left = rule.limit - count_at(state, now)
    return left > 0 and left or 0
  elseif act == 'status' then
    local count = count_at(state, now)
    local left = rule.limit - count
    return left, count > 0 and window_end(rule, state, now) - now or 0
  elseif act == 'refund' then
    local back = count_at(state, now)
    if cost < back then back = cost end
    state.count = state.count - back
    return back
  elseif act == 'rewind' then
    -- The window that is running now takes the count over.
    local till = window_end(rule, nil, now)
    if state.till <= till then return false end
    state.till = till
    return true
  elseif act == 'latest' then
    if rule.kind < 2 then return state.till - rule.span_us end
    -- A later window than that of the request is known by its end only.
    if state.till <= rule.till then return 0 end
    local latest = rule.till
    rule.till = state.till
    return latest
  elseif act == 'forget' then
    if state.till <= now then state.count, state.till = 0, window_end(rule, nil, now) end
  elseif act == 'used' then
    return count_at(state, now)
  elseif act == 'with_used' then
    return { count = cost, till = window_end(rule, nil, now) }
  elseif act == 'convert' then
    -- An unchanged window keeps its end; another takes the count over.
    local old = more
    if rule.window == old.window then return state end
    return { count = count_at(state, now), till = window_end(rule, nil, now) }
  elseif act == 'rescale' then
    -- An unchanged window keeps its end.
    local scaled, old = cost, more
    if rule.window == old.window then
      return { count = scaled(state.count), till = state.till }
    end
  end
end
