local function mul_div(a, b, c)
local left = a % c
local quotient, rest, low, bit = (a - left) / c * b, 0, 0, 4503599627370496
while bit >= 1 do
rest, low = rest * 2, low * 2
if rest >= c then rest, low = rest - c, low + 1 end
if b >= bit then
b, rest = b - bit, rest + left
if rest >= c then rest, low = rest - c, low + 1 end
end
bit = bit / 2
end
return quotient + low, rest
end
local function make(what)
if what == 1 then
local flow
function flow(act, rule, used, at, now, units, part)
if act == 'drain' then
local ticks, tick_us = now - at, rule[1]
if ticks < 0 then ticks = 0 end
if tick_us ~= 1 then ticks = (ticks - ticks % tick_us) / tick_us end
local carried = ticks * rule[2]
if carried >= used then return 0, now end
return used - carried, at + ticks * tick_us
elseif act == 'fill' then
local tick_us, per_tick = rule[1], rule[2]
if tick_us == 1 or rule[7] == 1 or used >= per_tick then return used + units, at end
local emptied = mul_div(used, tick_us, per_tick)
if now - emptied > at then at = now - emptied end
return used + units, at
elseif act == 'time_to_drain' then
if used <= 0 then return 0 end
local ticks, tick_us = used / rule[2], rule[1]
ticks = ticks + -ticks % 1
local span = (ticks - 1) * tick_us + (tick_us - (now > at and now - at or 0))
if span < 0 then return 0 end
return span < 9007199254740991 and span or 9007199254740991
elseif act == 'take_over' then
local old = units
used, at = flow('drain', old, used, at, now)
local converted, left = mul_div(used, rule[part], old[part])
if left > 0 then converted = converted + 1 end
local counts_on = rule[1] == old[1] and rule[7] == old[7]
and (rule[7] == 1 or rule[2] == old[2] and rule[3] == old[3])
return { used = converted < 9007199254740992 and converted or 9007199254740992, at = counts_on and at or now }
elseif act == 'pack' then
local since = at - 1767225600000000
if since < 0 or since >= 281474976710656 then
return rule .. struct.pack('<I7I7', at, used)
elseif used < 16777216 then
return struct.pack('<c0I6I3', rule, since, used)
elseif used < 4294967296 then
return struct.pack('<c0I6I4', rule, since, used)
elseif used < 1099511627776 then
return struct.pack('<c0I6I5', rule, since, used)
elseif used < 281474976710656 then
return struct.pack('<c0I6I6', rule, since, used)
end
return struct.pack('<c0I6I7', rule, since, used)
elseif act == 'unpack' then
local text, pos, length = rule, used, #rule - used + 1
if length == 14 then
at, used = struct.unpack('<I7I7', text, pos)
if used > 9007199254740992 or at > 9007199254740992 then return nil end
return { used = used, at = at }, pos + 14
elseif length < 9 or length > 14 then
return nil
end
local format = length == 9 and '<I6I3' or length == 10 and '<I6I4' or length == 11 and '<I6I5'
or length == 12 and '<I6I6' or '<I6I7'
at, used = struct.unpack(format, text, pos)
if used > 9007199254740992 then return nil end
return { used = used, at = at + 1767225600000000 }, pos + length
end
end
return function(act, rule, state, now, cost, more)
if act == 'rewind' then
if state.at <= now then return false end
state.at = now
return true
elseif act == 'new' then
if now ~= 9 then return nil end
rule = { struct.unpack('<ddddddd', rule, state) }
local depth = rule[4]
if rule[1] >= 1 and rule[2] >= 1 and rule[3] >= 1 and rule[5] >= 1
and rule[6] >= 0 and depth >= rule[6] and depth >= rule[3]
and rule[7] >= 0 and rule[7] <= 1
and rule[1] + rule[2] + depth + rule[5] <= 9007199254740992 then
return rule
end
return nil
elseif act == 'limit' then
return rule[5]
elseif act == 'countable' then
return (9007199254740992 - 9007199254740992 % rule[3]) / rule[3]
elseif act == 'leases' then
return rule[7] == 1 and 2 or 1
elseif act == 'unpack' then
if more then return flow('unpack', state, now) end
if #state < now + 13 then return nil end
local at, used = struct.unpack('<I7I7', state, now)
if used > 9007199254740992 or at > 9007199254740992 then return nil end
return { used = used, at = at }, now + 14
elseif act == 'pack' then
if more then return flow('pack', now, state.used, state.at) end
return now .. struct.pack('<I7I7', state.at, state.used)
end
local used, at = rule[6], now
if state then
used, at = state.used, state.at
if at ~= now then used, at = flow('drain', rule, used, at, now) end
end
if act == 'check' then
if cost > rule[5] then return nil, -1 end
local units = cost * rule[3]
local excess = used - rule[4] + units
if excess <= 0 then return 0 end
local wait = flow('time_to_drain', rule, excess, at, now)
local retry = wait - (more or 0)
local too_deep = flow('time_to_drain', rule, used - 9007199254740992 + units, at, now)
if too_deep > retry then retry = too_deep end
if retry <= 0 then return wait end
return nil, retry
elseif act == 'charge' then
local units = cost * rule[3]
if rule[1] == 1 then
used = used + units
else
used, at = flow('fill', rule, used, at, now, units)
end
if state then
state.used, state.at = used, at
else
state = { used = used, at = at }
end
local left = rule[4] - used
return state, (left - left % rule[3]) / rule[3],
flow('time_to_drain', rule, used, at, now)
elseif act == 'first_seen' then
if rule[6] > 0 then return { used = used, at = at } end
elseif act == 'available' then
local left = rule[4] - used
return left > 0 and (left - left % rule[3]) / rule[3] or 0
elseif act == 'status' then
local left = rule[4] - used
return (left - left % rule[3]) / rule[3],
flow('time_to_drain', rule, used, at, now)
elseif act == 'refund' then
local back = cost * rule[3]
if back > used then back = used end
state.used, state.at = used - back, at
back = back / rule[3]
return back + -back % 1
elseif act == 'latest' then
return state.at
elseif act == 'forget' then
state.used, state.at = used, at
elseif act == 'used' then
used = used / rule[3]
return used + -used % 1
elseif act == 'with_used' then
local units = cost * rule[3]
return { used = units < 9007199254740992 and units or 9007199254740992, at = now }
elseif act == 'convert' then
return flow('take_over', rule, state.used, state.at, now, more, 3)
elseif act == 'rescale' then
return flow('take_over', rule, state.used, state.at, now, more, 4)
end
end
elseif what == 2 then
local function ceil_f64(x)
if not (x > 0) then return 0 end
return x < 9007199254740992 and x + -x % 1 or x
end
local function round_f64(x)
if not (x > -2^52 and x < 2^52) then return x end
local up = x + 0.5
return up - up % 1
end
local function balance_at(rule, state, now, wait)
if not state then return 0 end
local elapsed = (now > state.at and now - state.at or 0) + wait
local units = round_f64(state.balance * rule.period_us) + elapsed * rule.permits
local balance = units / rule.period_us
return balance < rule.max_stored and balance or rule.max_stored
end
local function time_for(rule, permits)
local span = ceil_f64(permits * rule.period_us / rule.permits)
return span < 9007199254740991 and span or 9007199254740991
end
local function used_at(rule, balance)
local used = ceil_f64(rule.max_stored - balance)
return used < 9007199254740992 and used or 9007199254740992
end
local function wait_for(rule, state, now)
local balance = balance_at(rule, state, now, 0)
if balance >= 0 then return 0 end
local wait = time_for(rule, -balance)
while wait < 9007199254740991 and balance_at(rule, state, now, wait) < 0 do wait = wait + 1 end
while balance_at(rule, state, now, wait - 1) >= 0 do wait = wait - 1 end
return wait
end
return function(act, rule, state, now, cost, more)
if act == 'new' then
if now ~= 3 then return nil end
local permits, period_us, max_stored = struct.unpack('<ddd', rule, state)
if not (permits >= 1 and period_us >= 1 and max_stored > 0
and permits + period_us + max_stored <= 9007199254740992) then
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
if not (balance <= 9007199254740992 and balance >= -340282366920938463463374607431768211456) or at > 9007199254740992 then return nil end
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
return balance_at(rule, state, now, 0) < 0 and 0 or 9007199254740992
elseif act == 'status' then
local balance = balance_at(rule, state, now, 0)
local left = balance > 0 and balance - balance % 1 or rule.limit - used_at(rule, balance)
return left, time_for(rule, rule.max_stored - balance)
elseif act == 'refund' then
local balance = balance_at(rule, state, now, 0)
local refunded = balance + cost
if refunded > rule.max_stored then refunded = rule.max_stored end
state.balance, state.at = refunded, now
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
elseif what == 3 then
local function ceil_f64(x)
if not (x > 0) then return 0 end
return x < 9007199254740992 and x + -x % 1 or x
end
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
local function time_to_hand_out(rule, stored, cost)
local from_stored = cost < stored and cost or stored
local above = stored - rule.threshold
if not (above > 0) then above = 0 end
local slow = from_stored < above and from_stored or above
local trapezoid = slow * (interval(rule, above) + interval(rule, above - slow)) / 2
return trapezoid + (from_stored - slow) * rule.stable + (cost - from_stored) * rule.stable
end
local function used_of(rule, state)
local used = ceil_f64(rule.max_stored - state.stored + state.debt_us / rule.stable)
return used < 9007199254740992 and used or 9007199254740992
end
local function full_after(rule, state)
local span = ceil_f64(state.debt_us + (rule.max_stored - state.stored) * rule.cooldown)
return span < 9007199254740991 and span or 9007199254740991
end
return function(act, rule, state, now, cost, more)
if act == 'new' then
if now ~= 5 then return nil end
local stable, threshold, max_stored, slope, cooldown = struct.unpack('<ddddd', rule, state)
if not (stable > 0 and threshold > 0 and max_stored > threshold and slope > 0 and cooldown > 0
and stable + max_stored + slope + cooldown <= 340282366920938463463374607431768211456) then
return nil
end
local limit = max_stored < 4503599627370496 and max_stored - max_stored % 1 or 4503599627370496
return {
stable = stable, threshold = threshold, max_stored = max_stored, slope = slope,
cooldown = cooldown, limit = limit > 1 and limit or 1,
}
elseif act == 'limit' then
return rule.limit
elseif act == 'unpack' then
if #state < now + 22 then return nil end
local stored, debt_us, at = struct.unpack('<ddI7', state, now)
if not (stored >= 0 and debt_us >= 0 and stored + debt_us <= 340282366920938463463374607431768211456) or at > 9007199254740992 then return nil end
return { stored = stored, debt_us = debt_us, at = at }, now + 23
elseif act == 'pack' then
return now .. struct.pack('<ddI7', state.stored, state.debt_us, state.at)
elseif act == 'check' then
local wait = ceil_f64(as_of(rule, state, now).debt_us)
if wait > 9007199254740991 then wait = 9007199254740991 end
if wait > (more or 0) then return nil, wait - (more or 0) end
return wait
elseif act == 'charge' then
local next_state = as_of(rule, state, now)
local stored = next_state.stored
next_state.debt_us = next_state.debt_us + time_to_hand_out(rule, stored, cost)
next_state.stored = stored - (cost < stored and cost or stored)
return next_state
elseif act == 'available' then
return as_of(rule, state, now).debt_us > 0 and 0 or 9007199254740992
elseif act == 'status' then
state = as_of(rule, state, now)
local stored, left = state.stored, nil
if state.debt_us > 0 then
left = rule.limit - used_of(rule, state)
if left > 0 then left = 0 end
else
left = stored < 4503599627370496 and stored - stored % 1 or 4503599627370496
end
return left, full_after(rule, state)
elseif act == 'refund' then
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
local old = more
state = as_of(old, state, now)
state.stored = state.stored * rule.max_stored / old.max_stored
return state
end
end
elseif what == 4 then
local flow
function flow(act, rule, used, at, now, units, part)
if act == 'drain' then
local ticks, tick_us = now - at, rule[1]
if ticks < 0 then ticks = 0 end
if tick_us ~= 1 then ticks = (ticks - ticks % tick_us) / tick_us end
local carried = ticks * rule[2]
if carried >= used then return 0, now end
return used - carried, at + ticks * tick_us
elseif act == 'fill' then
local tick_us, per_tick = rule[1], rule[2]
if tick_us == 1 or rule[7] == 1 or used >= per_tick then return used + units, at end
local emptied = mul_div(used, tick_us, per_tick)
if now - emptied > at then at = now - emptied end
return used + units, at
elseif act == 'time_to_drain' then
if used <= 0 then return 0 end
local ticks, tick_us = used / rule[2], rule[1]
ticks = ticks + -ticks % 1
local span = (ticks - 1) * tick_us + (tick_us - (now > at and now - at or 0))
if span < 0 then return 0 end
return span < 9007199254740991 and span or 9007199254740991
elseif act == 'take_over' then
local old = units
used, at = flow('drain', old, used, at, now)
local converted, left = mul_div(used, rule[part], old[part])
if left > 0 then converted = converted + 1 end
local counts_on = rule[1] == old[1] and rule[7] == old[7]
and (rule[7] == 1 or rule[2] == old[2] and rule[3] == old[3])
return { used = converted < 9007199254740992 and converted or 9007199254740992, at = counts_on and at or now }
elseif act == 'pack' then
local since = at - 1767225600000000
if since < 0 or since >= 281474976710656 then
return rule .. struct.pack('<I7I7', at, used)
elseif used < 16777216 then
return struct.pack('<c0I6I3', rule, since, used)
elseif used < 4294967296 then
return struct.pack('<c0I6I4', rule, since, used)
elseif used < 1099511627776 then
return struct.pack('<c0I6I5', rule, since, used)
elseif used < 281474976710656 then
return struct.pack('<c0I6I6', rule, since, used)
end
return struct.pack('<c0I6I7', rule, since, used)
elseif act == 'unpack' then
local text, pos, length = rule, used, #rule - used + 1
if length == 14 then
at, used = struct.unpack('<I7I7', text, pos)
if used > 9007199254740992 or at > 9007199254740992 then return nil end
return { used = used, at = at }, pos + 14
elseif length < 9 or length > 14 then
return nil
end
local format = length == 9 and '<I6I3' or length == 10 and '<I6I4' or length == 11 and '<I6I5'
or length == 12 and '<I6I6' or '<I6I7'
at, used = struct.unpack(format, text, pos)
if used > 9007199254740992 then return nil end
return { used = used, at = at + 1767225600000000 }, pos + length
end
end
return function(act, rule, state, now, cost, more)
if act == 'rewind' then
if state.at <= now then return false end
state.at = now
return true
elseif act == 'new' then
if now ~= 10 then return nil end
rule = { struct.unpack('<dddddddd', rule, state) }
local depth = rule[4]
if rule[1] >= 1 and rule[2] >= 1 and rule[3] >= 1 and rule[5] >= 1
and rule[6] >= 0 and rule[6] <= 1 and rule[8] >= 0
and depth >= rule[8] and depth >= rule[3] and rule[7] == 0
and rule[1] + rule[2] + depth + rule[5] <= 9007199254740992 then
return rule
end
return nil
elseif act == 'limit' then
return rule[5]
elseif act == 'countable' then
return (9007199254740992 - 9007199254740992 % rule[3]) / rule[3]
elseif act == 'leases' then
return rule[6] == 0 and 1
elseif act == 'unpack' then
if more then return flow('unpack', state, now) end
if #state < now + 13 then return nil end
local at, used = struct.unpack('<I7I7', state, now)
if used > 9007199254740992 or at > 9007199254740992 then return nil end
return { used = used, at = at }, now + 14
elseif act == 'pack' then
if more then return flow('pack', now, state.used, state.at) end
return now .. struct.pack('<I7I7', state.at, state.used)
end
local used, at = 0, now
if state then
used, at = state.used, state.at
if at ~= now then used, at = flow('drain', rule, used, at, now) end
end
if act == 'check' then
if cost > rule[5] then return nil, -1 end
local spilled = used - rule[4] + cost * rule[3]
local retry = flow('time_to_drain', rule, spilled, at, now)
local wait = rule[6] == 1 and flow('time_to_drain', rule, used - rule[8], at, now) or 0
if more and wait - more > retry then retry = wait - more end
if retry <= 0 then return wait end
return nil, retry
elseif act == 'charge' then
local units = cost * rule[3]
if rule[1] == 1 then
used = used + units
else
used, at = flow('fill', rule, used, at, now, units)
end
if state then
state.used, state.at = used, at
else
state = { used = used, at = at }
end
local left = rule[4] - used
return state, (left - left % rule[3]) / rule[3],
flow('time_to_drain', rule, used, at, now)
elseif act == 'available' then
local left = rule[4] - used
return left > 0 and (left - left % rule[3]) / rule[3] or 0
elseif act == 'status' then
local left = rule[4] - used
return (left - left % rule[3]) / rule[3],
flow('time_to_drain', rule, used, at, now)
elseif act == 'refund' then
local back = cost * rule[3]
if back > used then back = used end
state.used, state.at = used - back, at
back = back / rule[3]
return back + -back % 1
elseif act == 'latest' then
return state.at
elseif act == 'forget' then
state.used, state.at = used, at
elseif act == 'used' then
used = used / rule[3]
return used + -used % 1
elseif act == 'with_used' then
local units = cost * rule[3]
return { used = units < 9007199254740992 and units or 9007199254740992, at = now }
elseif act == 'convert' then
return flow('take_over', rule, state.used, state.at, now, more, 3)
elseif act == 'rescale' then
return flow('take_over', rule, state.used, state.at, now, more, 4)
end
end
elseif what == 5 then
local function window_end(rule, state, now)
if rule.kind == 0 then return now - now % rule.span_us + rule.span_us end
if rule.kind == 2 then return rule.till end
if state and now < state.till and state.count > 0 then return state.till end
return now + rule.span_us
end
local function count_at(state, now)
return state and now < state.till and state.count or 0
end
return function(act, rule, state, now, cost, more)
if act == 'new' then
if now ~= 5 then return nil end
local limit, kind, span_us = struct.unpack('<ddd', rule, state)
if not (limit >= 1 and limit <= 9007199254740992 and kind >= 0 and kind <= 2
and span_us >= (kind == 2 and 0 or 1) and span_us <= 9007199254740992) then
return nil
end
return {
limit = limit, kind = kind, span_us = span_us,
window = rule:sub(state + 8, state + 39),
}
elseif act == 'limit' then
return rule.limit
elseif act == 'leases' then
return (rule.kind == 2 or rule.span_us >= 1000000) and 2
elseif act == 'unpack' then
if #state < now + 13 then return nil end
local count, till = struct.unpack('<I7I7', state, now)
if count > 9007199254740992 or till > 9007199254740992 then return nil end
return { count = count, till = till }, now + 14
elseif act == 'pack' then
return now .. struct.pack('<I7I7', state.count, state.till)
elseif act == 'check' then
if cost > rule.limit then return nil, -1 end
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
local till = window_end(rule, nil, now)
if state.till <= till then return false end
state.till = till
return true
elseif act == 'latest' then
if rule.kind < 2 then return state.till - rule.span_us end
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
local old = more
if rule.window == old.window then return state end
return { count = count_at(state, now), till = window_end(rule, nil, now) }
elseif act == 'rescale' then
local scaled, old = cost, more
if rule.window == old.window then
return { count = scaled(state.count), till = state.till }
end
end
end
elseif what == 6 then
local function oldest(rule, now)
local since = now + 1 - rule.window_us
if since < 0 then since = 0 end
return (since - since % rule.bucket_us) / rule.bucket_us
end
local function time_to_end(rule, bucket, now)
local span = (bucket + 1) * rule.bucket_us - now + rule.window_us - 1
return span > 0 and span or 0
end
local function oldest_remembered(rule, state)
return state.newest + 1 > rule.len and state.newest + 1 - rule.len or 0
end
local function first_live(rule, state, now)
local remembered, bucket = oldest_remembered(rule, state), oldest(rule, now)
return bucket > remembered and bucket or remembered
end
local function sum_at(rule, state, now)
local sum = 0
if state then
local counts, len = state.counts, rule.len
for bucket = first_live(rule, state, now), state.newest do
sum = sum + counts[bucket % len + 1]
end
end
return sum
end
local function empty(rule, now)
local counts = {}
for slot = 1, rule.len do counts[slot] = 0 end
return { newest = (now - now % rule.bucket_us) / rule.bucket_us, counts = counts }
end
local function advance(rule, state, now)
local bucket = (now - now % rule.bucket_us) / rule.bucket_us
local steps = bucket - state.newest
if steps > rule.len then steps = rule.len end
for pushed = 0, steps - 1 do
state.counts[(bucket - pushed) % rule.len + 1] = 0
end
if bucket > state.newest then state.newest = bucket end
end
return function(act, rule, state, now, cost, more)
if act == 'new' then
if now ~= 4 then return nil end
local limit, window_us, bucket_us, buckets = struct.unpack('<dddd', rule, state)
if not (limit >= 1 and limit <= 9007199254740992 and window_us >= 1 and window_us <= 9007199254740992
and bucket_us >= 1 and bucket_us <= window_us and buckets >= 1 and buckets <= 1000
and buckets % 1 == 0) then
return nil
end
return {
limit = limit, window_us = window_us, bucket_us = bucket_us, len = buckets + 1,
}
elseif act == 'limit' then
return rule.limit
elseif act == 'leases' then
return rule.window_us >= 10000000 and 2
elseif act == 'unpack' then
if #state < now + 7 then return nil end
local newest, width = struct.unpack('<I7B', state, now)
local pos, len = now + 8, rule.len
if (width ~= 4 and width ~= 7) or #state < pos + width * len - 1 or newest * rule.bucket_us > 9007199254740992 then
return nil
end
local counts = { struct.unpack('<' .. ('I' .. width):rep(len), state, pos) }
counts[len + 1] = nil
return { newest = newest, counts = counts }, pos + width * len
elseif act == 'pack' then
local width = 4
for slot = 1, rule.len do
if state.counts[slot] >= 4294967296 then width = 7 end
end
local format = '<I7B' .. ('I' .. width):rep(rule.len)
return now .. struct.pack(format, state.newest, width, unpack(state.counts))
elseif act == 'check' then
if cost > rule.limit then return nil, -1 end
local wanted = sum_at(rule, state, now) + cost
if wanted <= rule.limit or not state then return 0 end
local retry = 0
for bucket = first_live(rule, state, now), state.newest do
if wanted <= rule.limit then break end
wanted = wanted - state.counts[bucket % rule.len + 1]
retry = time_to_end(rule, bucket, now)
end
return nil, retry
elseif act == 'charge' then
state = state or empty(rule, now)
advance(rule, state, now)
local slot = state.newest % rule.len + 1
state.counts[slot] = state.counts[slot] + cost
return state
elseif act == 'available' then
local left = rule.limit - sum_at(rule, state, now)
return left > 0 and left or 0
elseif act == 'status' then
local left, reset_after = rule.limit - sum_at(rule, state, now), 0
if state then
for bucket = state.newest, oldest_remembered(rule, state), -1 do
if state.counts[bucket % rule.len + 1] > 0 then
reset_after = time_to_end(rule, bucket, now)
break
end
end
end
return left, reset_after
elseif act == 'refund' then
local left = cost
for bucket = state.newest, first_live(rule, state, now), -1 do
local slot = bucket % rule.len + 1
local back = state.counts[slot]
if left < back then back = left end
state.counts[slot], left = state.counts[slot] - back, left - back
end
return cost - left
elseif act == 'rewind' then
local earlier = empty(rule, now)
local bucket = earlier.newest
if bucket >= state.newest then return false end
local back = state.newest - bucket - 1
for old = oldest_remembered(rule, state), state.newest do
local moved = old > back and old - back or 0
if moved > bucket then moved = bucket end
local slot = moved % rule.len + 1
earlier.counts[slot] = earlier.counts[slot] + state.counts[old % rule.len + 1]
end
state.newest, state.counts = earlier.newest, earlier.counts
return true
elseif act == 'latest' then
return state.newest * rule.bucket_us
elseif act == 'forget' then
advance(rule, state, now)
elseif act == 'used' then
return sum_at(rule, state, now)
elseif act == 'with_used' then
state = empty(rule, now)
state.counts[state.newest % rule.len + 1] = cost
return state
elseif act == 'convert' then
local old = more
if rule.window_us == old.window_us and rule.len == old.len then return state end
local used = sum_at(old, state, now)
state = empty(rule, now)
state.counts[state.newest % rule.len + 1] = used
return state
elseif act == 'rescale' then
local scaled, old = cost, more
if rule.window_us ~= old.window_us or rule.len ~= old.len then return nil end
local counts, sum, before = {}, 0, 0
for slot = 1, rule.len do counts[slot] = 0 end
for bucket = state.newest, oldest_remembered(rule, state), -1 do
local slot = bucket % rule.len + 1
local count = state.counts[slot]
if count > 0 then
sum = sum + count
local after = scaled(sum)
counts[slot], before = after - before, after
end
end
return { newest = state.newest, counts = counts }
end
end
elseif what == 7 then
local function view(rule, state, now)
local elapsed_us = now % rule.window_us
local window = (now - elapsed_us) / rule.window_us
if not state then return window, elapsed_us, 0, 0 end
if window < state.window then
local most = math.max(rule.limit, state.previous, state.current)
return window, elapsed_us, 0, math.min(state.previous + state.current, most)
end
if window == state.window then return window, elapsed_us, state.previous, state.current end
return window, elapsed_us, window == state.window + 1 and state.current or 0, 0
end
local function counter(count)
return count < 4294967295 and count or 4294967295
end
local function estimate(rule, elapsed_us, previous, current)
local weight = (rule.window_us - elapsed_us) / rule.step_us
weight = weight + -weight % 1
if weight > rule.steps then weight = rule.steps end
local counts, left = previous * weight, nil
if counts < 9007199254740992 then
left = counts % rule.steps
counts = (counts - left) / rule.steps
else
counts, left = mul_div(previous, weight, rule.steps)
end
return current + counts + (left > 0 and 1 or 0)
end
local function elapsed_until(rule, previous, room)
if previous == 0 then return 0 end
local weight = (room * rule.steps - room * rule.steps % previous) / previous
return weight < rule.steps and rule.window_us - weight * rule.step_us or 0
end
return function(act, rule, state, now, cost, more)
if act == 'new' then
if now ~= 4 then return nil end
local limit, window_us, step_us, steps = struct.unpack('<dddd', rule, state)
if not (limit >= 1 and limit < 4294967296 and window_us >= 1 and window_us <= 9007199254740992
and step_us >= 1 and step_us <= window_us and steps >= 1 and steps <= window_us
and limit * steps <= 9007199254740992 / 4) then
return nil
end
return { limit = limit, window_us = window_us, step_us = step_us, steps = steps }
elseif act == 'limit' then
return rule.limit
elseif act == 'countable' then
return 4294967295
elseif act == 'leases' then
return rule.window_us >= 10000000 and 1
elseif act == 'unpack' then
if #state < now + 14 then return nil end
local window, previous, current = struct.unpack('<I7I4I4', state, now)
if window * rule.window_us > 9007199254740992 then return nil end
return { window = window, previous = previous, current = current }, now + 15
elseif act == 'pack' then
return now .. struct.pack('<I7I4I4', state.window, state.previous, state.current)
elseif act == 'latest' then
return state.window * rule.window_us
elseif act == 'with_used' then
local window = (now - now % rule.window_us) / rule.window_us
return { window = window, previous = 0, current = counter(cost) }
elseif act == 'convert' then
local old = more
if rule.window_us == old.window_us then return state end
local _, elapsed_us, previous, current = view(old, state, now)
local used = estimate(old, elapsed_us, previous, current)
local window = (now - now % rule.window_us) / rule.window_us
return { window = window, previous = 0, current = counter(used) }
elseif act == 'rescale' then
local scaled, old = cost, more
if rule.window_us ~= old.window_us then return nil end
local current = scaled(state.current)
local previous = scaled(state.previous + state.current) - current
return { window = state.window, previous = counter(previous), current = counter(current) }
end
local window, elapsed_us, previous, current = view(rule, state, now)
if act == 'check' then
if cost > rule.limit then return nil, -1 end
if estimate(rule, elapsed_us, previous, current) + cost <= rule.limit then return 0 end
local room, at_us = rule.limit - current - cost, nil
if room >= 0 then
at_us = elapsed_until(rule, previous, room)
else
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
elseif what == 8 then
local function gone(rule, at, now)
return at + rule.window_us <= now
end
local function eight(entries, pos)
local _, a, _, b, _, c, _, d, _, e, _, f, _, g, _, h =
struct.unpack('<I7I4I7I4I7I4I7I4I7I4I7I4I7I4I7I4', entries, pos)
return a + b + c + d + e + f + g + h
end
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
return function(act, rule, state, now, cost, more)
if act == 'new' then
if now ~= 2 then return nil end
local limit, window_us = struct.unpack('<dd', rule, state)
if not (limit >= 1 and limit <= 10000 and window_us >= 1 and window_us <= 9007199254740992) then
return nil
end
return { limit = limit, window_us = window_us }
elseif act == 'limit' then
return rule.limit
elseif act == 'countable' then
return 4294967295
elseif act == 'leases' then
return rule.window_us >= 10000000 and 2
elseif act == 'unpack' then
if #state < now + 7 then return nil end
local pos, entries = now + 8, 0
local sum, count = struct.unpack('<I4I4', state, now)
if count > 10000 or count > sum or #state < pos + count * 11 - 1 then return nil end
return { sum = sum, entries = state:sub(pos, pos + count * 11 - 1) }, pos + count * 11
elseif act == 'pack' then
return now .. struct.pack('<I4I4', state.sum, #state.entries / 11) .. state.entries
elseif act == 'check' then
if cost > rule.limit then return nil, -1 end
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
if cost > 4294967295 - state.sum then cost = 4294967295 - state.sum end
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
local used = cost < 4294967295 and cost or 4294967295
return { sum = used, entries = used > 0 and struct.pack('<I7I4', now, used) or '' }
elseif act == 'convert' then
forget_gone(more, state, now)
state.now = nil
return state
elseif act == 'rescale' then
local scaled, old, entries = cost, more, state.entries
if rule.window_us ~= old.window_us then return nil end
local kept, sum, before = {}, 0, 0
for pos = #entries - 10, 1, -11 do
local at, granted = struct.unpack('<I7I4', entries, pos)
sum = sum + granted
local after = scaled(sum)
if after > 4294967295 then after = 4294967295 end
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
elseif what == 9 then
local function eight(ends, pos)
local _, a, _, b, _, c, _, d, _, e, _, f, _, g, _, h =
struct.unpack('<I7I4I7I4I7I4I7I4I7I4I7I4I7I4I7I4', ends, pos)
return a + b + c + d + e + f + g + h
end
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
local function latest(state)
return #state.ends > 0 and (struct.unpack('<I7', state.ends, #state.ends - 10)) or 0
end
local function over_at(state)
local last, presences = latest(state), state.presences or ''
for pos = 9, #presences, 15 do
local till = struct.unpack('<I7', presences, pos)
if till > last then last = till end
end
return last
end
local function ahead(state, permit, most)
local tickets, sum = state and state.tickets or '', 0
for pos = 1, #tickets, 28 do
if sum > most or permit and tickets:sub(pos, pos + 15) == permit then break end
sum = sum + struct.unpack('<I4', tickets, pos + 24)
end
return sum
end
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
local function look(state, now)
local presences = state.presences or ''
local changed, seen = false, {}
for pos = 1, #presences, 15 do
local till = struct.unpack('<I7', presences, pos + 8)
if till > now + 3000000 then
till, changed = now + 3000000, true
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
local function remove(state, place, cost)
local permits, ends = state.permits, state.ends
state.permits = permits:sub(1, place * 16) .. permits:sub(place * 16 + 17)
state.ends = ends:sub(1, place * 11) .. ends:sub(place * 11 + 12)
state.sum, state.now = state.sum - cost, nil
end
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
return function(act, rule, state, now, cost, more)
if act == 'new' then
if now ~= 3 then return nil end
local limit, ttl_us, queue = struct.unpack('<ddd', rule, state)
if not (limit >= 1 and limit <= 10000 and ttl_us >= 1 and ttl_us <= 9007199254740992
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
if cost > rule.limit then return nil, -1 end
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
local presence, known = process .. struct.pack('<I7', now + 3000000), false
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
if free < 0 or #called == 24 * 16 then break end
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
return nil
elseif act == 'convert' then
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
end
if what == 'take_over' then
return function(text, rules, twins, flags, carry, old_text, old_rules, old_twins, old_states, now)
local states = { nil }
if carry == 2 then return states end
local function scale(limit, old_limit)
return function(used)
if used > 9007199254740992 then used = 9007199254740992 end
local product, left = used * limit, nil
if product < 9007199254740992 then
left = product % old_limit
product = (product - left) / old_limit
else
product, left = mul_div(used, limit, old_limit)
end
if left > 0 then product = product + 1 end
return product < 9007199254740992 and product or 9007199254740992
end
end
local function carried(rule, twin, proportional, old_rule, old_twin, state, alike)
if proportional then
local scaled = scale(twin('limit', rule), old_twin('limit', old_rule))
local kept = alike and twin('rescale', rule, state, now, scaled, old_rule)
if kept then return kept end
return twin('with_used', rule, nil, now, scaled(old_twin('used', old_rule, state, now)))
end
if alike then return twin('convert', rule, state, now, nil, old_rule) end
return twin('with_used', rule, nil, now, old_twin('used', old_rule, state, now))
end
local start = 7
for place = 1, #rules do
local stop = start + 11 + 8 * text:byte(start + 1)
local code, name = text:byte(start), text:sub(start + 3, start + 10)
local proportional = carry == 1 and flags[place] % 4 < 2
local old_start = 7
for other = 1, #old_rules do
local old_stop, state = old_start + 11 + 8 * old_text:byte(old_start + 1), old_states[other]
if state and old_text:sub(old_start + 3, old_start + 10) == name then
local alike = code == old_text:byte(old_start)
if alike and text:sub(start + 11, stop - 1) == old_text:sub(old_start + 11, old_stop - 1) then
states[place] = state
else
states[place] = carried(rules[place], twins[place], proportional, old_rules[other],
old_twins[other], state, alike)
end
end
old_start = old_stop
end
start = stop
end
return states
end
elseif what == 'use_up' then
return function(rules, twins, flags, now)
local states = {}
for place = 1, #rules do
local rule, twin, act = rules[place], twins[place], 'with_used'
if flags[place] % 4 >= 2 then act = 'charge' end
states[place] = twin(act, rule, nil, now, twin('limit', rule), ('\0'):rep(16)) or nil
end
return states
end
elseif what == 'refund' then
return function(rules, twins, flags, states, now, cost)
local granted, touched = nil, false
for place = 1, #rules do
if flags[place] % 4 < 2 then
local state, back = states[place], 0
if state then
back, touched = twins[place]('refund', rules[place], state, now, cost), true
end
if not granted or back < granted then granted = back end
end
end
return granted or 0, touched
end
elseif what == 'debit' then
return function(rules, twins, flags, states, now, debts, raise, held)
local touched = false
for place = 1, #rules do
local rule, twin, state, charged = rules[place], twins[place], states[place], 0
if raise and state then debts[place] = debts[place] - twin('used', rule, state, now) end
if flags[place] % 4 < 2 then
charged = twin('available', rule, state, now) - (held and held[place] or 0)
if debts[place] < charged then charged = debts[place] end
end
if charged >= 1 then
states[place], touched = twin('charge', rule, state, now, charged), true
end
debts[place] = struct.pack('<I4', charged > 0 and charged or 0)
end
return touched
end
elseif what == 'on_permit' then
return function(act, rules, twins, flags, states, now, permit)
local granted, refused_by
for place = 1, #rules do
if flags[place] % 4 >= 2 then
local state, back = states[place], nil
if state then back, state = twins[place](act, rules[place], state, now, nil, permit) end
if back then
states[place], granted, refused_by = state, back, nil
elseif not granted and not refused_by then
refused_by = place
end
end
end
return granted, refused_by
end
elseif what == 'enqueue' then
return function(rules, twins, flags, states, now, cost, wanted)
local queued = {}
for place = 1, #rules do
queued[place] = states[place]
if flags[place] % 4 >= 2 then
queued[place] = twins[place]('enqueue', rules[place], states[place], now, cost, wanted)
if not queued[place] then return false end
end
end
for place = 1, #rules do states[place] = queued[place] end
return true
end
elseif what == 'called' then
return function(rules, twins, flags, states, now)
local called = ''
for place = 1, #rules do
local rule, twin, state = rules[place], twins[place], states[place]
if flags[place] % 4 < 2 then
if twin('available', rule, state, now) < 1 then return nil end
elseif state and rule.queue > 0 then
called = called .. twin('called', rule, state, now)
end
end
return called ~= '' and called or nil
end
elseif what == 'after_debt' then
return function(decide_any, noted_key, value, text, ask)
if #ask < 3 or ask:byte(1) ~= 12 then return '\4ask' end
local request = 4 + struct.unpack('<I2', ask, 2)
local charged = redis.pcall('GET', noted_key)
if charged and charged.err then return charged end
local charged_now, reply, packed, full_after, full_is_fresh, clock, ahead, called
if not charged then
reply, packed, full_after, full_is_fresh, clock, ahead =
decide_any(value, text, ask:sub(4, request - 1))
if reply:byte(1) ~= 5 then return reply, packed, full_after, full_is_fresh, clock, ahead end
charged = reply:sub(2)
if charged:find('[^%z]') then charged_now = charged end
if packed then value = not (full_is_fresh and full_after <= 0) and packed end
end
local decided = { decide_any(value, text, ask:sub(request)) }
reply = decided[1]
if reply:byte(1) > 1 then return reply end
if decided[2] then
packed, full_after, full_is_fresh = decided[2], decided[3], decided[4]
clock, ahead, called = decided[5], decided[6], decided[7]
end
local count = #reply > 27 and (#reply - 27) / 7 or 1
if #charged ~= 4 * count then
local least = 2147483648
for pos = 1, #charged, 4 do
local one = struct.unpack('<I4', charged, pos)
if one < least then least = one end
end
charged = struct.pack('<I4', least):rep(count)
end
return reply .. charged, packed, full_after, full_is_fresh, clock, ahead, called, charged_now
end
elseif what == 'leases' then
local function permits_of(record)
return record and record.kept + record.granted or 0
end
local function add(of, record, sign)
local permits = permits_of(record)
of.held = of.held + sign * permits
if permits > 0 and record.holder ~= ('\0'):rep(8) then of.holders = of.holders + sign end
end
local function find(of, holder)
local from = 1
while true do
local pos = of.records:find(holder, from, true)
if not pos then return nil end
if pos % 27 == 1 then
local number, kept, granted, deadline = struct.unpack('<I4I4I4I7', of.records, pos + 8)
return { holder = holder, number = number, kept = kept, granted = granted, deadline = deadline }, pos
end
from = pos + 1
end
end
local function live(of, holder, now)
local record = find(of, holder)
return record and record.deadline > now and record or nil
end
local function remove(of, holder)
local record, pos = find(of, holder)
if record then
of.records = of.records:sub(1, pos - 1) .. of.records:sub(pos + 27)
add(of, record, -1)
end
end
local function put(of, record)
local before, pos = find(of, record.holder)
pos = pos or #of.records + 1
of.records = of.records:sub(1, pos - 1) .. struct.pack('<c8I4I4I4I7', record.holder, record.number, record.kept,
record.granted, record.deadline) .. of.records:sub(pos + 27)
add(of, before, -1)
add(of, record, 1)
if of.first == 0 or record.deadline < of.first then of.first = record.deadline end
end
local function count(of, now)
if of.first > now then return #of.records / 27 end
local alive = 0
for pos = 1, #of.records, 27 do
if struct.unpack('<I7', of.records, pos + 20) > now then alive = alive + 1 end
end
return alive
end
local function back_to(rule, instant, now)
if rule.from and instant < rule.from then instant = rule.from end
return instant < now and instant or now
end
local function counts_leased(flags)
return flags % 4 < 2
end
local function charge_by(of, rules, twins, flags, states, permits, by, now)
for place = 1, #rules do
local rule, twin, state = rules[place], twins[place], states[place]
if counts_leased(flags[place]) then
local seen = state and not rule.from and twin('latest', rule, state, now) or 0
local at = back_to(rule, by > seen and by or seen, now)
local used = state and twin('used', rule, state, at) or 0
local most = of.keeps and (twin('countable', rule, nil, at) or 1099511627775) or 2 * twin('limit', rule)
local room = most - used
local some = permits < room and permits or room
if some > 0 then states[place] = (twin('charge', rule, state, at, some)) end
end
end
end
local function settle(of, rules, twins, flags, states, now, spent)
if #of.records > 0 and of.first <= now then
local kept = {}
of.first = 0
for pos = 1, #of.records, 27 do
local kept_by, granted, deadline = struct.unpack('<I4I4I7', of.records, pos + 12)
if deadline <= now then
spent[#spent + 1] = { deadline, kept_by + granted }
add(of, { holder = of.records:sub(pos, pos + 7), kept = kept_by, granted = granted }, -1)
else
kept[#kept + 1] = of.records:sub(pos, pos + 26)
if of.first == 0 or deadline < of.first then of.first = deadline end
end
end
of.records = table.concat(kept)
end
for place = 2, #spent do
local one, before = spent[place], place - 1
while before > 0 and spent[before][1] > one[1] do
spent[before + 1], before = spent[before], before - 1
end
spent[before + 1] = one
end
for place = 1, #spent do
charge_by(of, rules, twins, flags, states, spent[place][2], spent[place][1], now)
end
end
local function rewind(of, now)
if of.version <= now then return false end
local latest, records = now + 2375000, {}
for pos = 1, #of.records, 27 do
local deadline = struct.unpack('<I7', of.records, pos + 20)
if deadline > latest then deadline = latest end
records[#records + 1] = of.records:sub(pos, pos + 19) .. struct.pack('<I7', deadline)
end
of.records = table.concat(records)
if of.first > latest then of.first = latest end
return true
end
local function least_limit(rules, twins)
local least
for place = 1, #rules do
local limit = twins[place]('limit', rules[place])
if not least or limit < least then least = limit end
end
return least
end
local function free(of, rules, twins, states, now)
local least = 4294967295
for place = 1, #rules do
local left = twins[place]('leases', rules[place])
and twins[place]('available', rules[place], states[place], now) or 0
if left - of.held < least then least = left - of.held end
end
local room = 4294967295 - of.held
if room < least then least = room end
return least > 0 and least or 0
end
local function under(of, flags)
local held = { nil }
for place = 1, #flags do held[place] = counts_leased(flags[place]) and of.held or 0 end
return held
end
local function wait_for(of, now)
local first
for pos = 1, #of.records, 27 do
local kept, granted, deadline = struct.unpack('<I4I4I7', of.records, pos + 12)
if kept + granted > 0 and (not first or deadline < first) then first = deadline end
end
return first > now and first - now or 1
end
local function claim_of(of, m, known, stood_max, hint, now)
if known and m.heard <= known.number then
return known.kept + (m.heard == known.number and known.granted or 0), known.deadline, 0, 0
end
local alive = m.stood > 0 and now < m.ends and not m.ended
local stood = m.stood < stood_max and m.stood or stood_max
if alive and (known or count(of, now) < 64) then
local deadline = m.ends < now + 2375000 and m.ends or now + 2375000
if known and known.deadline > deadline then deadline = known.deadline end
return stood, deadline, 0, 3
end
if alive or hint and of.version < hint.version then return 0, 0, stood, 3 end
return 0, 0, 0, 1
end
local function repair(of, rules, twins, flags, states, hint, now)
for place = 1, #rules do
local rule, twin, used = rules[place], twins[place], hint.used[place]
if twin('leases', rule) and hint.version >= (rule.from or 0) then
local limit = twin('limit', rule)
if used > limit then used = limit end
local state = twin('with_used', rule, nil, back_to(rule, hint.version, now), used)
local lost = state and twin('used', rule, state, now) or 0
state = states[place]
lost = lost - (state and twin('used', rule, state, now) or 0)
local left = twin('available', rule, state, now)
if left < lost then lost = left end
if lost > 0 then states[place] = (twin('charge', rule, state, now, lost)) end
end
end
local limit = least_limit(rules, twins)
local missing = (hint.held < limit and hint.held or limit) - of.held
local deadline = (hint.version < now and hint.version or now) + 2375000
if missing > 0 and deadline > now then
local ghost = live(of, ('\0'):rep(8), now)
if not ghost and #of.records >= 27 * 64 then
settle(of, rules, twins, flags, states, now, { { now, missing } })
else
if ghost and ghost.deadline > deadline then deadline = ghost.deadline end
put(of, {
holder = ('\0'):rep(8), number = 0, kept = permits_of(ghost) + missing, granted = 0,
deadline = deadline,
})
end
end
if hint.version > of.version then of.version = hint.version end
end
local function restore(of, rules, twins, flags, states, m, known, base, deadline, hint, now)
settle(of, rules, twins, flags, states, now, {})
remove(of, m.holder)
if deadline > now then
put(of, { holder = m.holder, number = m.number, kept = base, granted = 0, deadline = deadline })
end
local back, ghost = base - permits_of(known), live(of, ('\0'):rep(8), now)
if ghost then
if back > ghost.kept then back = ghost.kept end
if back > 0 then
ghost.kept = ghost.kept - back
put(of, ghost)
end
end
if hint then repair(of, rules, twins, flags, states, hint, now) end
end
local function wanted(of, rules, twins, m, kept, needed, left)
local sharers, in_steps = of.holders + (kept > 0 and 0 or 1), false
for place = 1, #rules do
if twins[place]('leases', rules[place]) == 2 then in_steps = true end
end
local half = least_limit(rules, twins)
half = (half - half % 2) / 2
local part = in_steps and sharers or 2
local own, most = kept + needed, m.want
for _, bound in ipairs({
(left - left % part) / part, m.share - own, half - of.held - needed,
(half - half % sharers) / sharers - own,
}) do
if bound < most then most = bound end
end
return most > 0 and most or 0
end
local function stands(of, rules, twins, flags, states, m, record, found, now)
local held = under(of, flags)
local refused_by, slowest, retry, pause, deciding, remaining, reset_after = nil, nil, nil, 0, nil, nil, nil
local least = m.least < 1 and 1 or m.least > 2147483648 and 2147483648 or m.least
for place = 1, #rules do
local rule, twin, wait, after = rules[place], twins[place], nil, nil
local limit = twin('limit', rule)
if least <= limit and limit < least + held[place] then
after = wait_for(of, now)
else
wait, after = twin('check', rule, states[place], now, least + held[place])
end
if wait then
if wait > pause then pause, slowest = wait, place end
elseif not refused_by or retry ~= -1 and (after == -1 or after > retry) then
refused_by, retry = place, after
end
end
for place = 1, #rules do
local left, after = twins[place]('status', rules[place], states[place], now)
left = left > held[place] and left - held[place] or 0
local decider = refused_by or slowest
if place == decider or not decider and (not remaining or left < remaining) then
deciding, remaining, reset_after = place, left, after
end
end
local lasts = record.deadline > now and record.deadline - now or 0
local used = {}
for place = 1, #rules do
local rule, twin = rules[place], twins[place]
local state, some = states[place] or twin('first_seen', rule, nil, now), 0
if state then
some = twin('used', rule, state, now)
elseif flags[place] % 2 ~= 1 then
some = twin('limit', rule)
end
used[place] = struct.pack('<I5', some < 1099511627775 and some or 1099511627775)
end
return struct.pack('<BI4I4I4I7I7I7BBBBI7I7I7I7I4', 5, record.number, record.kept, record.granted, lasts,
record.deadline, free(of, rules, twins, states, now), of.holders, found, refused_by and 0 or 1, deciding - 1, refused_by and retry or pause,
remaining, reset_after, of.version, of.held) .. table.concat(used)
end
return function(act, of, rules, twins, flags, states, now, m)
if act == 'read' then
local value, pos = of, rules
local mark = value:byte(pos)
if #value < pos + 19 or mark ~= 76 and mark ~= 108 then return nil end
local version, held, first, holders = struct.unpack('<I7I4I7B', value, pos + 1)
local records = value:sub(pos + 20)
if #records % 27 ~= 0 or #records > 27 * 64 then return nil end
local sum, alive, soonest, latest = 0, 0, 9007199254740992, 0
for place = 1, #records, 27 do
local kept, granted, deadline = struct.unpack('<I4I4I7', records, place + 12)
sum = sum + kept + granted
if deadline < soonest then soonest = deadline end
if deadline > latest then latest = deadline end
if kept + granted > 0 and records:sub(place, place + 7) ~= ('\0'):rep(8) then alive = alive + 1 end
end
if sum ~= held or alive ~= holders or first > soonest or latest > 9007199254740992 or version > 9007199254740992 then
return nil
end
return {
version = version, held = held, first = first, holders = holders, records = records,
alone = mark == 108,
}
elseif act == 'settle' then
local due = #of.records > 0 and of.first <= now
local went_back = rewind(of, now)
settle(of, rules, twins, flags, states, now, {})
return due or went_back
elseif act == 'under' then
return under(of, flags)
elseif act == 'wait' then
return wait_for(of, rules)
elseif act == 'pack' then
local mark = of.alone and 108 or 76
local section = struct.pack('<BI7I4I7B', mark, of.version, of.held, of.first, of.holders)
local last, after = now, of.version + 60000000 + 1 - now
if #of.records > 0 then last = now + 2375000 end
charge_by(of, rules, twins, flags, states, of.held, last, last)
for place = 1, #rules do
local _, full_after = twins[place]('status', rules[place], states[place], last)
if last - now + full_after > after then after = last - now + full_after end
end
return section .. of.records, after
end
if m.holder == ('\0'):rep(8) then
rewind(of, now)
settle(of, rules, twins, flags, states, now, {})
local nothing = { holder = ('\0'):rep(8), number = m.number, kept = 0, granted = 0, deadline = now }
return stands(of, rules, twins, flags, states, m, nothing, 1, now), false
end
local known = live(of, m.holder, now)
if known and m.number < known.number then return '\6', false end
rewind(of, now)
for place = 1, #rules do
if not states[place] then states[place] = twins[place]('first_seen', rules[place], nil, now) end
end
known = live(of, m.holder, now)
if known and m.number == known.number then
settle(of, rules, twins, flags, states, now, {})
return stands(of, rules, twins, flags, states, m, known, 0, now), true
end
local hint = m.hint
if hint and now > hint.version + 60000000 then hint = nil end
local stood_max = 4294967295 - (of.held - permits_of(known))
local limit = least_limit(rules, twins)
if limit < stood_max then stood_max = limit end
if stood_max < 0 then stood_max = 0 end
local base, deadline, unclaimed, found = claim_of(of, m, known, stood_max, hint, now)
if found == 3 then
restore(of, rules, twins, flags, states, m, known, base, deadline, hint, now)
end
local unspent, kept = m.unspent, m.keep < m.unspent and m.keep or m.unspent
if unspent > base then
unspent, kept = 0, 0
if found ~= 3 then found = 2 end
end
local rest, spent = base - unspent, {}
for place = 1, #m.marks, 2 do
local permits, age = m.marks[place], m.marks[place + 1] * 15
if permits > rest then permits = rest end
rest = rest - permits
age = (age - age % 16) / 16
spent[#spent + 1] = { age < now and now - age or 0, permits }
end
spent[#spent + 1] = { now, rest + unclaimed }
local record = { holder = m.holder, number = m.number, kept = kept, granted = 0, deadline = deadline }
if deadline > now then
put(of, record)
elseif known then
remove(of, m.holder)
end
settle(of, rules, twins, flags, states, now, spent)
for place = 1, #rules do
if states[place] then twins[place]('forget', rules[place], states[place], now) end
end
local left = free(of, rules, twins, states, now)
local needed = left >= m.need and m.need or left >= m.least and left or 0
local is_full = #of.records >= 27 * 64 and not live(of, m.holder, now)
of.version = of.version + 1 > now and of.version + 1 or now
if is_full then
charge_by(of, rules, twins, flags, states, needed, now, now)
record.granted, record.deadline = needed, now
return stands(of, rules, twins, flags, states, m, record, 4, now), true
end
record.granted = needed + wanted(of, rules, twins, m, kept, needed, left - needed)
local ends = now + m.term + (m.term - m.term % 16) / 16 + m.patience
if ends > record.deadline then record.deadline = ends end
put(of, record)
return stands(of, rules, twins, flags, states, m, record, found, now), true
end
elseif what == 'message' then
return function(ask, rules)
if #ask < 64 then return nil end
local m, pos, ended, marks = { marks = {} }, nil, nil, nil
m.holder, m.number, m.heard, m.stood, m.unspent, m.keep, m.need, m.least, m.want, m.share, m.term, m.patience,
m.ends, ended, marks, pos = struct.unpack('<c8I4I4I4I4I4I4I4I4I4I4I4I7BB', ask, 3)
if ended > 1 or marks > 4 or #ask < pos + 8 * marks then return nil end
m.ended = ended == 1
if m.term > 2000000 then m.term = 2000000 end
if m.patience > 250000 then m.patience = 250000 end
for place = 1, 2 * marks, 2 do
m.marks[place], m.marks[place + 1], pos = struct.unpack('<I4I4', ask, pos)
end
local hints = ask:byte(pos)
pos = pos + 1
if hints == 1 then
if #ask < pos + 10 + 5 * rules then return nil end
local version, held = struct.unpack('<I7I4', ask, pos)
if version > 9007199254740991 then version = 9007199254740991 end
m.hint, pos = { version = version, held = held, used = {} }, pos + 11
for place = 1, rules do
m.hint.used[place], pos = struct.unpack('<I5', ask, pos)
end
elseif hints ~= 0 then
return nil
end
return m, pos
end
end
end
local keys, args, try = KEYS, ARGV, redis.pcall
local now_us, decide_any, replies
local last_text, last_ask, rule, twin, head, same, cost, starts_full
local first, goes_on, value, state, touched
for place = 1, #args / 2 do
local key, text, ask = keys[place], args[2 * place - 1], args[2 * place]
local reply
local packed, full_after, full_is_fresh, clock, ahead
local called, charged_now
if not goes_on then first, value, state, touched = place, try('GET', key), nil, nil end
if text ~= last_text or ask ~= last_ask then
last_text, last_ask, rule = text, ask, nil
if #ask == 6 and #text > 17 then
local own, low, high, version, _, count, code, numbers, flags = text:byte(1, 9)
local verb, clock, c1, c2, c3, c4 = ask:byte(1, 6)
cost = c1 + c2 * 256 + c3 * 65536 + c4 * 16777216
local tail = 18 + 8 * numbers
if version == 2 and count == 1 and verb == 1 and clock == 0
and cost >= 1 and cost <= 2147483648 and #text == tail - 1 + low + 256 * high
and #text >= tail and flags < 2 then
head, same, twin = text:sub(tail), own > 0 and own or #text, make(code)
rule = twin and twin('new', text, 18, numbers)
starts_full = flags == 1
end
end
end
local failed, begin = value and value.err, head
if rule and value and not failed then begin = value:sub(1, #head) end
local ordinary = rule and not failed and (begin == head or begin:sub(1, same) == head:sub(1, same))
if ordinary and value and not goes_on then
local pos
state, pos = twin('unpack', rule, value, #head + 1, nil, true)
ordinary = pos == #value + 1
end
if failed then
reply = value
elseif ordinary then
if not now_us then
local time = redis.call('TIME')
now_us = time[1] * 1000000 + time[2]
end
if value and not goes_on then touched = twin('rewind', rule, state, now_us) end
local wait, retry = twin('check', rule, state, now_us, cost)
local remaining
if wait then
state, remaining, full_after = twin('charge', rule, state, now_us, cost)
touched = true
elseif not state then
state = twin('first_seen', rule, nil, now_us)
touched = state
end
if not remaining then remaining, full_after = twin('status', rule, state, now_us) end
goes_on = keys[place + 1] == key and args[2 * place + 1] == text and args[2 * place + 2] == ask
if touched and not goes_on then
local most = (now_us - now_us % 1000) / 1000 - 1767225600000
if not value and #head > same and most >= 0 and struct.unpack('<I5', head, same + 1) > most then
begin = head:sub(1, same) .. struct.pack('<I5', most)
end
packed = twin('pack', rule, state, begin, nil, true)
full_is_fresh, ahead = starts_full, 0
end
reply = struct.pack('<BBI4I7i7I7', wait and 1 or 0, 0, wait and cost or 0, wait or retry,
remaining, full_after)
else
if not decide_any then
local function parse(text)
if #text < 6 then return nil end
local same, length, version, carry, count = struct.unpack('<BI2BBB', text)
if version ~= 2 or carry > 2 or count < 1 or count > 8 then return nil end
local pos, rules, twins, flags, known = 7, { nil }, { nil }, { nil }, {}
for place = 1, count do
if #text < pos + 10 then return nil end
local code, numbers, flag = text:byte(pos, pos + 2)
local last = pos + 10 + 8 * numbers
if #text < last or flag > 7 then return nil end
local twin = known[code] or make(code)
local rule = twin and twin('new', text, pos + 11, numbers)
if not rule then return nil end
rules[place], twins[place], flags[place], pos = rule, twin, flag, last + 1
if count > 1 then known[code] = twin end
end
if #text ~= pos - 1 + length or #text < pos or same > length then return nil end
return rules, twins, flags, carry, text:sub(pos), same > 0 and same or length
end
local leases
local function recall(rules, twins, value, pos)
local states, begin = { nil }, pos
if #rules == 1 then
states[1], pos = twins[1]('unpack', rules[1], value, begin, nil, true)
if not pos then states[1], pos = twins[1]('unpack', rules[1], value, begin) end
if pos == #value + 1 then return states end
if not pos then return nil end
leases = leases or make('leases')
local out = leases('read', value, pos)
if out and out.alone then states[1] = nil end
return out and states, out
end
local present = value:byte(pos) or 256
pos = pos + 1
for place = 1, #rules do
if present % 2 == 1 then
states[place], pos = twins[place]('unpack', rules[place], value, pos)
if not pos then return nil end
end
present = (present - present % 2) / 2
end
if present ~= 0 then return nil end
if pos == #value + 1 then return states end
leases = leases or make('leases')
local out = leases('read', value, pos)
return out and states, out
end
local function read_ask(ask, rules, flags)
if #ask < 6 then return nil end
local verb, clock, cost = struct.unpack('<BBI4', ask)
if verb < 1 or verb > 11 and verb ~= 13 and verb ~= 14 and verb ~= 15 or clock > 2
or verb ~= 10 and (cost < 1 or cost > 2147483648) or verb == 10 and clock == 2 then
return nil
end
local pos, max_wait, permit, waiting, now, debts, message = 7, nil, nil, nil, now_us, nil, nil
if verb >= 14 then
if #ask < pos + 23 then return nil end
permit, waiting, pos = struct.unpack('<c16c8', ask, pos)
elseif verb == 10 then
message, pos = make('message')(ask, #rules)
if not message then return nil end
elseif verb > 9 then
if #ask < pos + 4 * #rules - 1 then return nil end
debts = { struct.unpack('<' .. ('I4'):rep(#rules), ask, pos) }
pos = pos + 4 * #rules
elseif verb == 2 then
if #ask < pos + 6 then return nil end
max_wait, pos = struct.unpack('<I7', ask, pos)
elseif verb >= 7 then
if #ask < pos + 15 then return nil end
permit, pos = struct.unpack('<c16', ask, pos)
end
if clock ~= 0 then
if #ask < pos + 6 then return nil end
now, pos = struct.unpack('<I7', ask, pos)
if now > 4503599627370496 then return nil end
elseif not now then
local time = redis.call('TIME')
now = time[1] * 1000000 + time[2]
now_us = now
end
local holds_permits = false
for place = 1, #rules do
local flag = flags[place]
if flag % 4 >= 2 then holds_permits = true end
if flag >= 4 then
if #ask < pos + 13 then return nil end
local from, till
from, till, pos = struct.unpack('<I7I7', ask, pos)
if from >= till or till > 9007199254740992 then return nil end
if now < from then
from, till = now, from
elseif now >= till then
from, till = till, now + (till - from) - (now - till) % (till - from)
end
rules[place].from, rules[place].till = from, till
end
end
local how = ask:byte(pos)
if how and (how > 2 or how < 1 or how == 2 and #ask > pos) then return nil end
return verb, clock, cost, now, how, pos, holds_permits, max_wait, permit, waiting, debts, message
end
function decide_any(value, text, ask)
local rules, twins, flags, carry, head, same = parse(text)
if not rules then return '\4rules' end
local verb, clock, cost, now, how, pos, holds_permits, max_wait, permit, waiting, debts, message =
read_ask(ask, rules, flags)
if not verb then return '\4ask' end
if (verb >= 7 and verb <= 9 or waiting) and not holds_permits
or verb < 4 and holds_permits then
return '\2'
end
local states, out, touched = nil, nil, false
if value == '' then
if verb ~= 6 then return '\4state' end
value = nil
end
local begin = value and value:sub(1, #head)
if value and (begin == head or begin:sub(1, same) == head:sub(1, same)) then
head = begin
states, out = recall(rules, twins, value, #head + 1)
if not states and verb ~= 6 then return '\4state' end
elseif value and how == 1 then
local old_text = ask:sub(pos + 1)
local old_rules, old_twins, _, _, old_head, old_same = parse(old_text)
if not old_rules then return '\4ask' end
if value:sub(1, old_same) ~= old_head:sub(1, old_same) then
return '\3' .. value:sub(1, 1024)
end
local before
before, out = recall(old_rules, old_twins, value, #old_head + 1)
if before then
states = make('take_over')(text, rules, twins, flags, carry, old_text, old_rules, old_twins, before, now)
elseif verb ~= 6 then
return '\4state'
end
touched = true
elseif value and how == 2 then
states, touched = make('use_up')(rules, twins, flags, now), true
elseif value then
return '\3' .. value:sub(1, 1024)
else
states = { nil }
end
local asked_at = now
states = states or { nil }
if clock == 2 then
for place = 1, #rules do
local state = states[place]
local latest = state and twins[place]('latest', rules[place], state, now) or 0
if latest > now then now = latest end
end
end
for place = 1, #rules do
local state = states[place]
if state and twins[place]('rewind', rules[place], state, now) then touched = true end
end
local held, word
if message then
out, leases = out or { version = 0, held = 0, first = 0, holders = 0, records = '' }, leases or make('leases')
end
if out then out.keeps = carry == 0 end
if message then
word, touched = leases('answer', out, rules, twins, flags, states, now, message)
if not touched then return word end
elseif out then
if leases('settle', out, rules, twins, flags, states, now) then touched = true end
if #out.records == 0 and out.version + 60000000 + 1 <= now then
out, touched = nil, true
elseif out.held > 0 then
held = leases('under', out, rules, twins, flags, states, now)
if max_wait then max_wait = 0 end
end
end
local refused_by, retry, granted = nil, 0, cost
local asks = verb <= 4 or verb == 7 or verb == 14
if verb == 7 or verb == 14 then
for place = #rules, 1, -1 do
local state = states[place]
if state and flags[place] % 4 >= 2
and twins[place]('holds', rules[place], state, now, nil, permit) then
refused_by, retry, asks = place, -1, false
end
end
elseif verb == 3 then
for place = 1, #rules do
local left = twins[place]('available', rules[place], states[place], now)
if held then left = left - held[place] end
if left < granted then granted = left end
end
if granted < 1 then granted = 1 end
elseif verb == 5 then
local given_back
granted, given_back = make('refund')(rules, twins, flags, states, now, cost)
touched = touched or given_back
elseif verb == 6 then
states, touched, granted = {}, true, 0
if out then out.version = out.version + 1 > now and out.version + 1 or now end
elseif verb == 8 or verb == 9 or verb == 15 then
local act = verb == 8 and 'release' or verb == 9 and 'renew' or 'leave'
granted, refused_by = make('on_permit')(act, rules, twins, flags, states, now, permit .. (waiting or ''))
if granted then touched = true else retry = -1 end
elseif debts then
local charged = make('debit')(rules, twins, flags, states, now, debts, verb == 13, held)
touched = touched or charged
end
local wait, slowest = 0, nil
if asks then
for place = 1, #rules do
local rule, twin, pause, after = rules[place], twins[place], nil, nil
local wanted = granted + (held and held[place] or 0)
if held and granted <= twin('limit', rule) and twin('limit', rule) < wanted then
after = leases('wait', out, now)
else
pause, after = twin('check', rule, states[place], now, wanted, permit and flags[place] % 4 >= 2 and permit
or max_wait)
end
if not pause then
if not refused_by or (retry ~= -1 and (after == -1 or after > retry)) then
refused_by, retry = place, after
end
elseif pause > wait then
wait, slowest = pause, place
end
end
end
local queued = verb == 14 and refused_by and retry ~= -1 and not held
and make('enqueue')(rules, twins, flags, states, now, granted, permit .. waiting)
touched = touched or queued
local takes = asks and verb ~= 4
local decider = refused_by or slowest
local deciding, remaining, reset_after
local left_of = { nil }
local full_is_fresh, full_after = true, 0
for place = 1, #rules do
local rule, twin, state, left, after = rules[place], twins[place], states[place], nil, nil
if takes and not refused_by then
state, left, after = twin('charge', rule, state, now, granted, permit)
states[place], touched = state, true
elseif takes and not state then
state = twin('first_seen', rule, nil, now)
states[place], touched = state, touched or state
end
if not left then left, after = twin('status', rule, state, now) end
if held and (asks or verb == 5 or verb == 6) then
left = left - held[place]
if left < -9007199254740992 then left = -9007199254740992 end
end
left_of[place] = left
if place == decider or not decider and (not remaining or left < remaining and remaining > 0) then
deciding, remaining, reset_after = place, left, after
end
if after > full_after then full_after = after end
full_is_fresh = full_is_fresh and flags[place] % 2 == 1
end
local packed
if touched and verb ~= 4 then
local most = (now - now % 1000) / 1000 - 1767225600000
if clock == 0 and #head > same and most >= 0 and struct.unpack('<I5', head, same + 1) > most then
head = head:sub(1, same) .. struct.pack('<I5', most)
end
local present, bit = 0, 1
packed = #rules == 1 and head or ''
if out and #rules == 1 then
out.alone = not states[1]
states[1] = states[1] or twins[1]('with_used', rules[1], nil, now, 0) or { sum = 0, permits = '', ends = '' }
end
for place = 1, #rules do
local state = states[place]
if state then
packed = twins[place]('pack', rules[place], state, packed, nil, #rules == 1 and not out)
present = present + bit
end
bit = bit * 2
end
if #rules > 1 then packed = head .. string.char(present) .. packed end
if present == 0 then full_is_fresh, full_after = true, 0 end
if out then
local section, ends_after = leases('pack', out, rules, twins, flags, states, now)
packed = packed .. section
if ends_after > full_after then full_after = ends_after end
end
end
local ahead = now - asked_at
if word then return word, packed, full_after, full_is_fresh, clock, ahead end
if debts then
return '\5' .. table.concat(debts, '', 1, #rules), packed, full_after, full_is_fresh, clock, ahead
end
if refused_by then wait, granted = retry, 0 end
local reply = struct.pack('<BBI4I7i7I7', refused_by and not queued and 0 or 1, deciding - 1, granted, wait, remaining,
reset_after)
if #rules > 1 then reply = reply .. struct.pack('<' .. ('i7'):rep(#rules), unpack(left_of)) end
local called = permit and make('called')(rules, twins, flags, states, now)
return reply, packed, full_after, full_is_fresh, clock, ahead, called
end
end
local decided
if #args ~= #keys then
decided, reply, packed, full_after, full_is_fresh, clock, ahead, called = pcall(decide_any, value, text, ask)
else
decided, reply, packed, full_after, full_is_fresh, clock, ahead, called, charged_now =
pcall(make('after_debt'), decide_any, keys[2], value, text, ask)
end
if not decided then reply, packed, called = '\4state', nil, nil end
if called then reply = reply .. called end
end
if packed and packed ~= value then
local written
if full_is_fresh and full_after <= 0 then
written = value and try('DEL', key)
else
local span = full_after + ahead
local ttl = (span - span % 1000) / 1000 + 1
if not full_is_fresh then ttl = ttl + 2592000000 end
if clock == 1 then ttl = ttl + 86400000 end
if clock == 2 then ttl = ttl + 60000 end
written = try('SET', key, packed, 'PX', ttl)
end
if type(written) == 'table' and written.err then
reply, charged_now = written, nil
for before = first, place - 1 do replies[before] = written end
end
end
if charged_now then try('SET', keys[2], charged_now, 'PX', 3600000) end
if #args == 2 then return reply end
replies = replies or {}
replies[place] = reply
end
return replies
