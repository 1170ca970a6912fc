-- The twin of smooth_bursty.rs: the same steps, names and order, in the same doubles.

-- The twin of round_f64 in num.rs.
local function round_f64(x)
  if not (x > -2^52 and x < 2^52) then return x end
  local up = x + 0.5
  return up - up % 1
end

-- The balance `wait` µs after `now`.
local function balance_at(rule, state, now, wait)
  if not state then return 0 end
  local elapsed = (now > state.at and now - state.at or 0) + wait
  local units = round_f64(state.balance * rule.period_us) + elapsed * rule.permits
  local balance = units / rule.period_us
  return balance < rule.max_stored and balance or rule.max_stored
end

local function time_for(rule, permits)
  local span = ceil_f64(permits * rule.period_us / rule.permits)
  return span < SPAN_MAX_US and span or SPAN_MAX_US
end

-- The permits in use at a balance: a debt is in use besides all that can be stored.
local function used_at(rule, balance)
  local used = ceil_f64(rule.max_stored - balance)
  return used < UNITS_MAX and used or UNITS_MAX
end

-- The µs from `now` until the balance is not negative.
local function wait_for(rule, state, now)
  local balance = balance_at(rule, state, now, 0)
  if balance >= 0 then return 0 end
  -- Doubles round one way from a debt to a time and another from a time to permits. The balance at that
  -- time decides, so that a caller that waits for as long as the reply says is not refused.
  local wait = time_for(rule, -balance)
  while wait < SPAN_MAX_US and balance_at(rule, state, now, wait) < 0 do wait = wait + 1 end
  while balance_at(rule, state, now, wait - 1) >= 0 do wait = wait - 1 end
  return wait
end

-- Arguments and results of each act: the table in crates/store/src/redis/epilogue.lua.
return function(act, rule, state, now, cost, more)
  if act == 'new' then
    if now ~= 3 then return nil end
    local permits, period_us, max_stored = struct.unpack('<ddd', rule, state)
    if not (permits >= 1 and period_us >= 1 and max_stored > 0
      and permits + period_us + max_stored <= UNITS_MAX) then
      return nil
    end
    local limit = max_stored - max_stored % 1
    return {
      permits = permits, period_us = period_us, max_stored = max_stored,
      limit = limit > 1 and limit or 1,
    }
  elseif act == 'limit' then
    return rule.limit
  elseif act == 'unpack' then
    if #state < now + 14 then return nil end
    local balance, at = struct.unpack('<dI7', state, now)
    if not (balance <= UNITS_MAX and balance >= -LARGEST) or at > UNITS_MAX then return nil end
    return { balance = balance, at = at }, now + 15
  elseif act == 'pack' then
    return now .. struct.pack('<dI7', state.balance, state.at)
  elseif act == 'check' then
    local wait = wait_for(rule, state, now)
    if wait > (more or 0) then return nil, wait - (more or 0) end
    return wait
  elseif act == 'charge' then
    return { balance = balance_at(rule, state, now, 0) - cost, at = now }
  elseif act == 'available' then
    return balance_at(rule, state, now, 0) < 0 and 0 or UNITS_MAX
  elseif act == 'status' then
    local balance = balance_at(rule, state, now, 0)
    local left = balance > 0 and balance - balance % 1 or rule.limit - used_at(rule, balance)
    return left, time_for(rule, rule.max_stored - balance)
  elseif act == 'refund' then
    local balance = balance_at(rule, state, now, 0)
    local refunded = balance + cost
    if refunded > rule.max_stored then refunded = rule.max_stored end
    state.balance, state.at = refunded, now
    -- The difference of two doubles may be a little more than the cost that was added.
    local back = ceil_f64(refunded - balance)
    return back < cost and back or cost
  elseif act == 'rewind' then
    if state.at <= now then return false end
    state.at = now
    return true
  elseif act == 'latest' then
    return state.at
  elseif act == 'used' then
    return used_at(rule, balance_at(rule, state, now, 0))
  elseif act == 'with_used' then
    return { balance = rule.max_stored - cost, at = now }
  elseif act == 'convert' or act == 'rescale' then
    -- Guava's setRate: stored permits are rescaled, to the last bit, and a debt keeps its time.
    local old = more
    local balance = balance_at(old, state, now, 0)
    if balance >= 0 then
      balance = balance * rule.max_stored / old.max_stored
    else
      balance = (balance * old.period_us / old.permits) * rule.permits / rule.period_us
    end
    return { balance = balance, at = now }
  end
end
