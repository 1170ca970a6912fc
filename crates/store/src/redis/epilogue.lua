end

-- Verbs.
local CHECK, RESERVE, AT_MOST, PEEK, REFUND, RESET, ACQUIRE, RELEASE, RENEW = 1, 2, 3, 4, 5, 6, 7, 8, 9
-- Whose time it is: the server's, the caller's in place of it, or the caller's beside others'.
local SERVER, GIVEN, CLIENT = 0, 1, 2
-- Replies.
local REFUSED, ALLOWED, UNSUPPORTED, UNKNOWN, MALFORMED = 0, 1, 2, 3, 4
-- What becomes of usage when rules change.
local PROPORTIONAL, FORGET = 1, 2
-- How long a budget that does not start full is remembered after it is full: 30 days.
local IDLE_MS = 2592000000
-- How long a key outlives its budget where time is passed in and need not be the server's: a day.
local GIVEN_MS = 86400000

local now_us

local function server_time()
  if not now_us then
    local time = redis.call('TIME')
    now_us = time[1] * 1000000 + time[2]
  end
  return now_us
end

local function malformed(what)
  return string.char(MALFORMED) .. what
end

-- Remembers `value` until every budget is full again; a full budget is no key at all.
local function remember(key, before, value, reset_after, full_is_fresh, clock, ahead)
  if full_is_fresh and reset_after <= 0 then
    if before then redis.call('DEL', key) end
    return
  end
  -- A clock that is ahead of the caller's is ahead of the server's.
  local span = reset_after + ahead
  local ttl = (span - span % 1000) / 1000 + 1
  if not full_is_fresh then ttl = ttl + IDLE_MS end
  if clock == GIVEN then ttl = ttl + GIVEN_MS end
  redis.call('SET', key, value, 'PX', ttl)
end

-- Any verb, any rules; the twin of ruleset.rs.
local function decide_any(key, value, text, ask)
  -- A set of rules; nil if `text` is none.
  local function parse(text)
    if #text < 6 then return nil end
    local generation, version, carry, count = struct.unpack('<c3BBB', text)
    if version ~= 1 or carry > 2 or count < 1 or count > 8 then return nil end
    local rules, pos = { generation = generation, carry = carry }, 7
    for place = 1, count do
      if #text < pos + 9 then return nil end
      local code, numbers, name = struct.unpack('<BBc8', text, pos)
      local twin = twin_of(code)
      if not twin or #text < pos + 9 + 8 * numbers then return nil end
      local rule = twin('new', text, pos + 10, numbers)
      if not rule then return nil end
      rule.twin, rule.code, rule.name = twin, code, name
      rule.numbers = text:sub(pos + 10, pos + 9 + 8 * numbers)
      rules[place], pos = rule, pos + 10 + 8 * numbers
    end
    return pos == #text + 1 and rules or nil
  end

  -- What is remembered under `rules`; nil if `value` is not of them.
  local function recall(rules, value)
    local states, pos = {}, 4
    if #rules == 1 then
      states[1], pos = rules[1].twin('unpack', rules[1], value, 4, nil, true)
      return pos == #value + 1 and states or nil
    end
    local present = value:byte(4) or 0
    pos = 5
    for place = 1, #rules do
      if present % 2 == 1 then
        states[place], pos = rules[place].twin('unpack', rules[place], value, pos)
        if not pos then return nil end
      end
      present = (present - present % 2) / 2
    end
    return present == 0 and pos == #value + 1 and states or nil
  end

  local rules = parse(text)
  if not rules then return malformed('rules') end
  local verb, clock, cost = struct.unpack('<BBI4', ask)
  if verb < CHECK or verb > RENEW or clock > CLIENT or cost < 1 or cost > 2147483648 then
    return malformed('ask')
  end

  local pos, max_wait, permit, now = 7, nil, nil, nil
  if verb == RESERVE then
    if #ask < pos + 6 then return malformed('ask') end
    max_wait, pos = struct.unpack('<I7', ask, pos)
  elseif verb >= ACQUIRE then
    if #ask < pos + 15 then return malformed('ask') end
    permit, pos = struct.unpack('<c16', ask, pos)
  end
  if clock == SERVER then
    now = server_time()
  else
    if #ask < pos + 6 then return malformed('ask') end
    now, pos = struct.unpack('<I7', ask, pos)
    if now > DEPTH_MAX then return malformed('ask') end
  end
  for _, rule in ipairs(rules) do
    if rule.kind == 2 then
      if #ask < pos + 13 then return malformed('ask') end
      local from, till
      from, till, pos = struct.unpack('<I7I7', ask, pos)
      if from >= till or till > UNITS_MAX then return malformed('ask') end
      -- The server's clock may be in the window before or after the caller's.
      if now < from then
        till = from
      elseif now >= till then
        till = now + (till - from) - (now - till) % (till - from)
      end
      rule.till = till
    end
  end

  -- supports
  local holds_permits = false
  for _, rule in ipairs(rules) do
    if rule.holds_permits then holds_permits = true end
  end
  if verb >= ACQUIRE and not holds_permits or verb < PEEK and holds_permits then
    return string.char(UNSUPPORTED)
  end

  -- `states` of `old`, the set that this one replaces, in the units of this one.
  local function take_over(old, before)
    local function carried(new, old, state)
      if new.code == old.code and new.numbers == old.numbers then return state end
      if rules.carry == PROPORTIONAL and not new.holds_permits then
        local scaled, left = mul_div(old.twin('used', old, state, now), new.limit, old.limit)
        if left > 0 then scaled = scaled + 1 end
        return new.twin('with_used', new, nil, now, scaled < UNITS_MAX and scaled or UNITS_MAX)
      end
      if new.code == old.code then return new.twin('convert', new, state, now, nil, old) end
      return new.twin('with_used', new, nil, now, old.twin('used', old, state, now))
    end

    local states = {}
    if rules.carry == FORGET then return states end
    for place, new in ipairs(rules) do
      for before_place, rule in ipairs(old) do
        if rule.name == new.name and before[before_place] then
          states[place] = carried(new, rule, before[before_place])
        end
      end
    end
    return states
  end

  -- Every budget is used up: what is left when nobody knows the rules that wrote the state.
  local function used_up()
    local states = {}
    for place, rule in ipairs(rules) do
      if rule.holds_permits then
        states[place] = rule.twin('charge', rule, nil, now, rule.limit, ('\0'):rep(16))
      else
        states[place] = rule.twin('with_used', rule, nil, now, rule.limit)
      end
    end
    return states
  end

  local states, touched = {}, false
  if value then
    if value:sub(1, 3) == rules.generation then
      states = recall(rules, value)
    else
      touched = true
      local how = ask:byte(pos)
      if how == 1 then
        local old = parse(ask:sub(pos + 1))
        if not old then return malformed('ask') end
        if old.generation ~= value:sub(1, 3) then how = nil end
        local before = how and recall(old, value)
        if how and not before then return malformed('state') end
        states = how and take_over(old, before)
      elseif how == 2 then
        states = used_up()
      end
      if not how or how > 2 then return string.char(UNKNOWN) .. value:sub(1, 3) end
    end
    if not states then return malformed('state') end
  end

  local asked_at = now
  if clock == CLIENT then
    for place, rule in ipairs(rules) do
      local latest = states[place] and rule.twin('latest', rule, states[place]) or 0
      if latest > now then now = latest end
    end
  end
  -- rewind
  for place, rule in ipairs(rules) do
    if states[place] and rule.twin('rewind', rule, states[place], now) then touched = true end
  end

  local refused_by, retry, granted, wait, slowest = nil, 0, cost, 0, nil

  local function ask_all(cost)
    granted = cost
    for place, rule in ipairs(rules) do
      local pause, after = rule.twin('check', rule, states[place], now, cost, max_wait)
      if not pause then
        if not refused_by or (retry ~= NEVER and (after == NEVER or after > retry)) then
          refused_by, retry = place, after
        end
      elseif not refused_by and pause > wait then
        wait, slowest = pause, place
      end
    end
  end

  -- Charges all rules if all allow.
  local function take(cost)
    ask_all(cost)
    for place, rule in ipairs(rules) do
      if not refused_by then
        -- Nothing is charged until every rule has agreed: a refused request must not spend one
        -- budget on its way to being refused by another.
        states[place], touched = rule.twin('charge', rule, states[place], now, cost, permit), true
      elseif not states[place] then
        -- A budget that starts below full fills from the first request on, or it would be refused
        -- for ever.
        states[place] = rule.twin('first_seen', rule, nil, now)
        touched = touched or states[place] ~= nil
      end
    end
  end

  if verb == CHECK or verb == RESERVE then
    take(cost)
  elseif verb == ACQUIRE then
    for place, rule in ipairs(rules) do
      if rule.holds_permits and states[place] and not refused_by
        and rule.twin('holds', rule, states[place], now, nil, permit) then
        refused_by, retry = place, NEVER
      end
    end
    if not refused_by then take(cost) end
  elseif verb == AT_MOST then
    local available = cost
    for place, rule in ipairs(rules) do
      local left = rule.twin('available', rule, states[place], now)
      if left < available then available = left end
    end
    -- With nothing to grant, one permit says when there will be.
    take(available > 0 and available or 1)
  elseif verb == PEEK then
    ask_all(cost)
  elseif verb == REFUND then
    -- Gives back to every rule; the least that one of them took back is what counts.
    local least
    for place, rule in ipairs(rules) do
      if not rule.holds_permits then
        local back = 0
        if states[place] then
          back, touched = rule.twin('refund', rule, states[place], now, cost), true
        end
        if not least or back < least then least = back end
      end
    end
    granted = least or 0
  elseif verb == RESET then
    states, touched, granted = {}, true, 0
  else
    local act, least = verb == RELEASE and 'release' or 'renew', nil
    for place, rule in ipairs(rules) do
      if rule.holds_permits then
        local back, state
        if states[place] then
          back, state = rule.twin(act, rule, states[place], now, nil, permit)
        end
        if back then
          states[place], least, touched, refused_by = state, back, true, nil
        elseif not least and not refused_by then
          refused_by, retry = place, NEVER
        end
      end
    end
    granted = least
  end

  -- What is left under the rule that decided, and how long until every budget is full.
  local deciding, remaining, reset_after = refused_by or slowest, nil, nil
  local full_is_fresh, full_after = true, 0
  for place, rule in ipairs(rules) do
    local left, after = rule.twin('status', rule, states[place], now)
    if place == (refused_by or slowest) or not (refused_by or slowest)
      and (not remaining or left < remaining) then
      deciding, remaining, reset_after = place, left, after
    end
    if after > full_after then full_after = after end
    full_is_fresh = full_is_fresh and rule.full_is_fresh
  end

  if touched and verb ~= PEEK then
    local packed, present = {}, 0
    for place = #rules, 1, -1 do
      present = present * 2
      if states[place] then
        present = present + 1
        local body = rules[place].twin('pack', rules[place], states[place], nil, nil, #rules == 1)
        table.insert(packed, 1, body)
      end
    end
    if #rules > 1 then table.insert(packed, 1, string.char(present)) end
    local after = rules.generation .. table.concat(packed)
    if present == 0 then
      if value then redis.call('DEL', key) end
    elseif after ~= value then
      remember(key, value, after, full_after, full_is_fresh, clock, now - asked_at)
    end
  end
  if refused_by then
    return struct.pack('<BBI4I7I7I7', REFUSED, deciding - 1, 0, retry, remaining, reset_after)
  end
  return struct.pack('<BBI4I7I7I7', ALLOWED, deciding - 1, granted, wait, remaining, reset_after)
end

local function decide(key, text, ask)
  if #ask < 6 or #text < 16 then return malformed('length') end
  local value = redis.call('GET', key)
  if #ask > 6 then return decide_any(key, value, text, ask) end
  local generation, version, _, count, code, numbers = struct.unpack('<c3BBBBB', text)
  local verb, clock, cost = struct.unpack('<BBI4', ask)
  local twin = count == 1 and version == 1 and verb == CHECK and clock == SERVER
    and #text == 16 + 8 * numbers and twin_of(code)
  local rule = twin and twin('new', text, 17, numbers)
  if not rule or rule.holds_permits or rule.kind == 2 or cost < 1 or cost > 2147483648
    or value and value:sub(1, 3) ~= generation then
    return decide_any(key, value, text, ask)
  end

  -- The ordinary case: a check by one rule. The same steps as above, without the lists.
  local now, state, touched = server_time(), nil, false
  if value then
    local stop
    state, stop = twin('unpack', rule, value, 4, nil, true)
    if stop ~= #value + 1 then return malformed('state') end
    touched = twin('rewind', rule, state, now)
  end
  local wait, retry = twin('check', rule, state, now, cost)
  if wait then
    state, touched = twin('charge', rule, state, now, cost), true
  elseif not state then
    state = twin('first_seen', rule, nil, now)
    touched = state ~= nil
  end
  local remaining, reset_after = twin('status', rule, state, now)
  if touched then
    local after = generation .. twin('pack', rule, state, nil, nil, true)
    remember(key, value, after, reset_after, rule.full_is_fresh, clock, 0)
  end
  if wait then
    return struct.pack('<BBI4I7I7I7', ALLOWED, 0, cost, wait, remaining, reset_after)
  end
  return struct.pack('<BBI4I7I7I7', REFUSED, 0, 0, retry, remaining, reset_after)
end

if #KEYS == 1 then return decide(KEYS[1], ARGV[1], ARGV[2]) end
local replies = {}
for place, key in ipairs(KEYS) do
  replies[place] = decide(key, ARGV[2 * place - 1], ARGV[2 * place])
end
return replies
