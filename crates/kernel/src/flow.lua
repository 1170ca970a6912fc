-- The twin of flow.rs: what flows per tick, and what one permit weighs. A level is `used` units as
-- of the instant `at`; `rule` has tick_us, per_tick, per_permit and stepped. One function for all,
-- as every function costs every call.
local function flow(act, rule, used, at, now, units)
  if act == 'drain' then
    -- What is in use at `now`. Time that went backwards carries nothing.
    local ticks, tick_us = now - at, rule.tick_us
    if ticks < 0 then ticks = 0 end
    if tick_us ~= 1 then ticks = (ticks - ticks % tick_us) / tick_us end
    local carried = ticks * rule.per_tick
    if carried >= used then return 0, now end
    return used - carried, at + ticks * tick_us
  elseif act == 'fill' then
    -- A drained level with `units` more in use.
    local tick_us, per_tick = rule.tick_us, rule.per_tick
    if tick_us == 1 or rule.stepped == 1 or used >= per_tick then return used + units, at end
    -- The running tick will carry more than is in use: of the time that it has run for, only as
    -- much counts as emptied the bucket. The rest found nothing to carry.
    local emptied = mul_div(used, tick_us, per_tick)
    if now - emptied > at then at = now - emptied end
    return used + units, at
  elseif act == 'time_to_drain' then
    -- From `now` until `used` units of a drained level have flowed out, rounded up, capped.
    if used <= 0 then return 0 end
    local ticks, tick_us = used / rule.per_tick, rule.tick_us
    ticks = ticks + -ticks % 1
    -- The last tick apart: up to the cap both parts and their sum are exact.
    local span = (ticks - 1) * tick_us + (tick_us - (now > at and now - at or 0))
    if span < 0 then return 0 end
    return span < SPAN_MAX_US and span or SPAN_MAX_US
  elseif act == 'convert' then
    -- A level of `now`, the old rule, in units of `rule`, rounded up (against the caller).
    local old = now
    local converted, left = mul_div(used, rule.per_permit, old.per_permit)
    if left > 0 then converted = converted + 1 end
    local same = rule.tick_us == old.tick_us and rule.per_tick == old.per_tick
      and rule.per_permit == old.per_permit and rule.stepped == old.stepped
    -- A part of a tick that was not counted yet counts for nothing when the tick changes.
    return converted < UNITS_MAX and converted or UNITS_MAX, same and at or units
  elseif act == 'pack' then
    -- `rule` and the only level of a key, short while it can be: six bytes of µs since the year
    -- 2026 began and three to seven of units. Otherwise seven of each, as among other rules.
    local since = at - YEAR_2026_US
    if since < 0 or since >= 281474976710656 then
      return rule .. struct.pack('<I7I7', at, used)
    elseif used < 16777216 then
      return struct.pack('<c3I6I3', rule, since, used)
    end
    local width = used < 4294967296 and 4 or used < 1099511627776 and 5
      or used < 281474976710656 and 6 or 7
    return struct.pack('<c3I6I' .. width, rule, since, used)
  elseif act == 'unpack' then
    -- The only level of a key, from `used` to the end of the text `rule`; nil if there is none.
    local text, pos, length = rule, used, #rule - used + 1
    if length == 9 then
      at, used = struct.unpack('<I6I3', text, pos)
      return { used = used, at = at + YEAR_2026_US }, pos + 9
    elseif length > 9 and length < 14 then
      at, used = struct.unpack('<I6I' .. length - 6, text, pos)
      return { used = used, at = at + YEAR_2026_US }, pos + length
    elseif length == 14 then
      at, used = struct.unpack('<I7I7', text, pos)
      return { used = used, at = at }, pos + 14
    end
  end
end
