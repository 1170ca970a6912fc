-- The twin of flow.rs: the flow of each tick, and the weight of one permit. A level is `used` units as
-- of the instant `at`. One function has all acts, as every function costs every call; and a rule is the
-- list of its numbers, as they came.

-- Places of the numbers that every rule with a flow has.
local TICK_US = 1
local PER_TICK = 2
local PER_PERMIT = 3
local DEPTH = 4
local LIMIT = 5
local STEPPED = 7

local flow
function flow(act, rule, used, at, now, units, part)
  if act == 'drain' then
    -- Returns the units in use at `now`, and their instant. Time that went backwards carries nothing.
    local ticks, tick_us = now - at, rule[TICK_US]
    if ticks < 0 then ticks = 0 end
    if tick_us ~= 1 then ticks = (ticks - ticks % tick_us) / tick_us end
    local carried = ticks * rule[PER_TICK]
    if carried >= used then return 0, now end
    return used - carried, at + ticks * tick_us
  elseif act == 'fill' then
    -- Returns a drained level with `units` more in use.
    local tick_us, per_tick = rule[TICK_US], rule[PER_TICK]
    if tick_us == 1 or rule[STEPPED] == 1 or used >= per_tick then return used + units, at end
    -- The running tick will carry more than is in use: only the part of its time that emptied the bucket
    -- counts. The rest found nothing to carry.
    local emptied = mul_div(used, tick_us, per_tick)
    if now - emptied > at then at = now - emptied end
    return used + units, at
  elseif act == 'time_to_drain' then
    -- Returns the µs from `now` until `used` units of a drained level have flowed out, rounded up, capped.
    if used <= 0 then return 0 end
    local ticks, tick_us = used / rule[PER_TICK], rule[TICK_US]
    ticks = ticks + -ticks % 1
    -- The last tick is added apart: up to the cap both parts and their sum are exact.
    local span = (ticks - 1) * tick_us + (tick_us - (now > at and now - at or 0))
    if span < 0 then return 0 end
    return span < SPAN_MAX_US and span or SPAN_MAX_US
  elseif act == 'take_over' then
    -- Returns a level of the old rule, `units`, under this rule from `now` on: the units in use then, times the
    -- `part` (PER_PERMIT or DEPTH) of this rule over that of the old one, rounded up (against the caller).
    local old = units
    used, at = flow('drain', old, used, at, now)
    local converted, left = mul_div(used, rule[part], old[part])
    if left > 0 then converted = converted + 1 end
    -- Permits that arrive together arrive when they were due, whatever their number is by then. Otherwise the part of
    -- a tick that was not counted yet is lost when the flow changes.
    local counts_on = rule[TICK_US] == old[TICK_US] and rule[STEPPED] == old[STEPPED]
      and (rule[STEPPED] == 1 or rule[PER_TICK] == old[PER_TICK] and rule[PER_PERMIT] == old[PER_PERMIT])
    return { used = converted < UNITS_MAX and converted or UNITS_MAX, at = counts_on and at or now }
  elseif act == 'pack' then
    -- Returns the text `rule`, and behind it the only level of a key, in a short form if possible: six bytes of µs
    -- since the year 2026 began and three to seven of units. Otherwise seven of each, as among other rules.
    local since = at - YEAR_2026_US
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
    -- Returns the only level of a key, from `used` to the end of the text `rule`, and the place after it; nil if
    -- there is none.
    local text, pos, length = rule, used, #rule - used + 1
    if length == 14 then
      at, used = struct.unpack('<I7I7', text, pos)
      if used > UNITS_MAX or at > UNITS_MAX then return nil end
      return { used = used, at = at }, pos + 14
    elseif length < 9 or length > 14 then
      return nil
    end
    local format = length == 9 and '<I6I3' or length == 10 and '<I6I4' or length == 11 and '<I6I5'
      or length == 12 and '<I6I6' or '<I6I7'
    at, used = struct.unpack(format, text, pos)
    if used > UNITS_MAX then return nil end
    return { used = used, at = at + YEAR_2026_US }, pos + length
  end
end
