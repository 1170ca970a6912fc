-- The steps that few decisions take: the rest of the body of `make`, after the twins. Each is a function that
-- is made only when a decision takes it.

if what == 'take_over' then
  -- Converts `old_states`, which were written under `old_rules`, to states under `rules`, and returns these:
  -- the twin of `take_over` in ruleset.rs. `text` and `old_text` are the rule sets as they came.
  return function(text, rules, twins, flags, carry, old_text, old_rules, old_twins, old_states, now)
    local states = { nil }
    if carry == FORGET then return states end

    -- Returns a function that converts permits to the same part of another limit, rounded up: the twin of
    -- `Scale`.
    local function scale(limit, old_limit)
      return function(used)
        if used > UNITS_MAX then used = UNITS_MAX end
        local product, left = used * limit, nil
        if product < UNITS_MAX then
          left = product % old_limit
          product = (product - left) / old_limit
        else
          product, left = mul_div(used, limit, old_limit)
        end
        if left > 0 then product = product + 1 end
        return product < UNITS_MAX and product or UNITS_MAX
      end
    end

    -- Returns the state of a rule that replaces `old_rule`, whose state is `state`; `alike`: the algorithm is the
    -- same.
    local function carried(rule, twin, proportional, old_rule, old_twin, state, alike)
      if proportional then
        local scaled = scale(twin('limit', rule), old_twin('limit', old_rule))
        -- A twin without `rescale` returns nothing, as does one whose window has changed.
        local kept = alike and twin('rescale', rule, state, now, scaled, old_rule)
        if kept then return kept end
        return twin('with_used', rule, nil, now, scaled(old_twin('used', old_rule, state, now)))
      end
      if alike then return twin('convert', rule, state, now, nil, old_rule) end
      return twin('with_used', rule, nil, now, old_twin('used', old_rule, state, now))
    end

    -- A rule takes over from the rule of the same name; a rule with a new name starts anew. `start` and
    -- `stop` are where a rule stands in its text: its code, its name from the fourth byte on, its numbers
    -- from the twelfth.
    local start = 7
    for place = 1, #rules do
      local stop = start + 11 + 8 * text:byte(start + 1)
      local code, name = text:byte(start), text:sub(start + 3, start + 10)
      local proportional = carry == PROPORTIONAL and flags[place] % CALENDAR < PERMITS
      local old_start = 7
      for other = 1, #old_rules do
        local old_stop, state = old_start + 11 + 8 * old_text:byte(old_start + 1), old_states[other]
        if state and old_text:sub(old_start + 3, old_start + 10) == name then
          local alike = code == old_text:byte(old_start)
          if alike and text:sub(start + 11, stop - 1) == old_text:sub(old_start + 11, old_stop - 1) then
            -- The rule has not changed.
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
  -- Returns states under which every budget is used up: these count when the rules that wrote the state are
  -- lost. A rule that hands out permits has one over its whole limit, with an id that no caller has.
  return function(rules, twins, flags, now)
    local states = {}
    for place = 1, #rules do
      local rule, twin, act = rules[place], twins[place], 'with_used'
      if flags[place] % CALENDAR >= PERMITS then act = 'charge' end
      states[place] = twin(act, rule, nil, now, twin('limit', rule), ('\0'):rep(16)) or nil
    end
    return states
  end
elseif what == 'refund' then
  -- Gives `cost` back to every rule that does not hand out permits. Returns the least that one of them took
  -- back, and whether a state was changed.
  return function(rules, twins, flags, states, now, cost)
    local granted, touched = nil, false
    for place = 1, #rules do
      if flags[place] % CALENDAR < PERMITS then
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
  -- Charges every rule its own amount of `debts`, as far as it is available; with `raise`, the amount that raises
  -- the permits in use to it. Rules that hand out permits are left alone. Replaces each debt by the four bytes of its
  -- charge. Permits that are `held` under a rule are not available. Returns whether a state was changed.
  return function(rules, twins, flags, states, now, debts, raise, held)
    local touched = false
    for place = 1, #rules do
      local rule, twin, state, charged = rules[place], twins[place], states[place], 0
      if raise and state then debts[place] = debts[place] - twin('used', rule, state, now) end
      if flags[place] % CALENDAR < PERMITS then
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
  -- Releases or renews (`act`) a permit under every rule that hands out permits, or gives a ticket back. Returns its cost,
  -- 0 for a ticket; if there is none under any of them, nil and the place of the first.
  return function(act, rules, twins, flags, states, now, permit)
    local granted, refused_by
    for place = 1, #rules do
      if flags[place] % CALENDAR >= PERMITS then
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
  -- Gives a request for `cost` permits a ticket under every rule that hands out permits, or under none. Returns whether it
  -- has them.
  return function(rules, twins, flags, states, now, cost, wanted)
    local queued = {}
    for place = 1, #rules do
      queued[place] = states[place]
      if flags[place] % CALENDAR >= PERMITS then
        queued[place] = twins[place]('enqueue', rules[place], states[place], now, cost, wanted)
        if not queued[place] then return false end
      end
    end
    for place = 1, #rules do states[place] = queued[place] end
    return true
  end
elseif what == 'called' then
  -- Returns permit and process of each waiting request that would pass now, the first ones of each rule; nil for none, also while a rule
  -- that hands out no permits has nothing left.
  return function(rules, twins, flags, states, now)
    local called = ''
    for place = 1, #rules do
      local rule, twin, state = rules[place], twins[place], states[place]
      if flags[place] % CALENDAR < PERMITS then
        if twin('available', rule, state, now) < 1 then return nil end
      elseif state and rule.queue > 0 then
        called = called .. twin('called', rule, state, now)
      end
    end
    return called ~= '' and called or nil
  end
elseif what == 'after_debt' then
  -- Charges a debt, and then decides the request that came with it. Returns what `decide_any` returns, and
  -- last the charge to note (nil: none).
  return function(decide_any, noted_key, value, text, ask)
    if #ask < 3 or ask:byte(1) ~= IN_DEBT then return '\4ask' end
    local request = 4 + struct.unpack('<I2', ask, 2)

    -- A debt is charged only once: if it was, `noted_key` holds the charge.
    local charged = redis.pcall('GET', noted_key)
    if charged and charged.err then return charged end
    local charged_now, reply, packed, full_after, full_is_fresh, clock, ahead, called
    if not charged then
      reply, packed, full_after, full_is_fresh, clock, ahead =
        decide_any(value, text, ask:sub(4, request - 1))
      if reply:byte(1) ~= 5 then return reply, packed, full_after, full_is_fresh, clock, ahead end
      charged = reply:sub(2)
      -- A charge of nothing is not noted: the next attempt may charge something.
      if charged:find('[^%z]') then charged_now = charged end
      -- The request finds the state that the debit would have stored: none if the budget is full.
      if packed then value = not (full_is_fresh and full_after <= 0) and packed end
    end

    local decided = { decide_any(value, text, ask:sub(request)) }
    reply = decided[1]
    -- Without a decision nothing is changed, and the debt is not charged either.
    if reply:byte(1) > 1 then return reply end
    if decided[2] then
      packed, full_after, full_is_fresh = decided[2], decided[3], decided[4]
      clock, ahead, called = decided[5], decided[6], decided[7]
    end
    -- Other rules may decide now than those that were charged. If they are not as many, the least charge stands for each.
    local count = #reply > 27 and (#reply - 27) / 7 or 1
    if #charged ~= 4 * count then
      local least = COST_MAX
      for pos = 1, #charged, 4 do
        local one = struct.unpack('<I4', charged, pos)
        if one < least then least = one end
      end
      charged = struct.pack('<I4', least):rep(count)
    end
    return reply .. charged, packed, full_after, full_is_fresh, clock, ahead, called, charged_now
  end
