-- The twin of flow.rs: what flows per tick, and what one permit weighs. A level is `used` units as
-- of the instant `at`; `rule` has tick_us, per_tick, per_permit and stepped.

-- `used` at `now`. Time that went backwards carries nothing.
local function drain(rule, used, at, now)
  local ticks, tick_us = now - at, rule.tick_us
  if ticks < 0 then ticks = 0 end
  if tick_us ~= 1 then ticks = (ticks - ticks % tick_us) / tick_us end
  local carried = ticks * rule.per_tick
  if carried >= used then return 0, now end
  return used - carried, at + ticks * tick_us
end

-- A drained level with `units` more in use.
local function fill(rule, used, at, units, now)
  if rule.tick_us == 1 or rule.stepped == 1 or used >= rule.per_tick then return used + units, at end
  -- The running tick will carry more than is in use: of the time that it has run for, only as much
  -- counts as emptied the bucket. The rest found nothing to carry.
  local emptied = mul_div(used, rule.tick_us, rule.per_tick)
  if now - emptied > at then at = now - emptied end
  return used + units, at
end

-- From `now` until `units` of a drained level have flowed out, rounded up, capped.
local function time_to_drain(rule, units, at, now)
  if units <= 0 then return 0 end
  local ticks, tick_us = units / rule.per_tick, rule.tick_us
  ticks = ticks + -ticks % 1
  -- The last tick apart: up to the cap both parts and their sum are exact.
  local span = (ticks - 1) * tick_us + (tick_us - (now > at and now - at or 0))
  if span < 0 then return 0 end
  return span < SPAN_MAX_US and span or SPAN_MAX_US
end

-- `used` units of `old` in units of `rule`, rounded up (against the caller), at most UNITS_MAX.
local function convert(rule, used, old)
  local units, left = mul_div(used, rule.per_permit, old.per_permit)
  if left > 0 then units = units + 1 end
  return units < UNITS_MAX and units or UNITS_MAX
end

-- Whether two rules count alike.
local function same_flow(rule, old)
  return rule.tick_us == old.tick_us and rule.per_tick == old.per_tick
    and rule.per_permit == old.per_permit and rule.stepped == old.stepped
end

-- A level on disk: 14 bytes. The only level of a key is shorter while it can be: six bytes of µs
-- since the year 2026 began and three to seven of units.
local function pack_level(state, alone)
  local used, since = state.used, state.at - YEAR_2026_US
  if not alone or since < 0 or since >= 281474976710656 then
    return struct.pack('<I7I7', state.at, used)
  elseif used < 16777216 then
    return struct.pack('<I6I3', since, used)
  end
  local width = used < 4294967296 and 4 or used < 1099511627776 and 5
    or used < 281474976710656 and 6 or 7
  return struct.pack('<I6I' .. width, since, used)
end

-- The level at `pos`, and where it ends; nil if there is none.
local function unpack_level(text, pos, alone)
  local at, used
  local length = #text - pos + 1
  if alone and length == 9 then
    at, used = struct.unpack('<I6I3', text, pos)
    return { used = used, at = at + YEAR_2026_US }, pos + 9
  elseif alone and length > 9 and length < 14 then
    at, used = struct.unpack('<I6I' .. length - 6, text, pos)
    return { used = used, at = at + YEAR_2026_US }, pos + length
  elseif length < 14 then
    return nil
  end
  at, used = struct.unpack('<I7I7', text, pos)
  return { used = used, at = at }, pos + 14
end
