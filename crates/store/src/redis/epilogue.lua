end

local keys, args, try = KEYS, ARGV, redis.pcall
local now_us, decide_any, replies
local last_text, last_ask, rule, twin, head, same, cost, starts_full
-- The same request of the same key again and again: its state is read before the first of them, at `first`, and
-- written after the last. Whether there are others after this one, and whether they changed anything.
local first, goes_on, value, state, touched

for place = 1, #args / 2 do
  local key, text, ask = keys[place], args[2 * place - 1], args[2 * place]
  local reply
  if not goes_on then first, value, state, touched = place, try('GET', key), nil, nil end
  -- What to remember, and for how long; nil: what is remembered stays.
  local packed, full_after, full_is_fresh, clock, ahead
  -- What was just charged of a debt.
  local charged_now

  -- The ordinary case: a check by one rule, on the server's time. Its steps are those of
  -- `decide_any`, without the lists.
  if text ~= last_text or ask ~= last_ask then
    last_text, last_ask, rule = text, ask, nil
    if #ask == 6 and #text > 17 then
      local own, low, high, version, _, count, code, numbers, flags = text:byte(1, 9)
      local verb, clock, c1, c2, c3, c4 = ask:byte(1, 6)
      cost = c1 + c2 * 256 + c3 * 65536 + c4 * 16777216
      local tail = 18 + 8 * numbers
      if version == 2 and count == 1 and verb == CHECK and clock == SERVER
        and cost >= 1 and cost <= COST_MAX and #text == tail - 1 + low + 256 * high
        and #text >= tail and flags < PERMITS then
        head, same, twin = text:sub(tail), own > 0 and own or #text, twin_of(code)
        rule = twin and twin('new', text, 18, numbers)
        starts_full = flags == FULL_IS_FRESH
      end
    end
  end

  -- What the state begins with: as the rules say, and of one that there is, as it was written.
  local begin = head
  -- An error of the server is the reply of the key that it is about, and of no other.
  if value and value.err then
    reply = value
  elseif rule and value then
    begin = value:sub(1, #head)
  end
  if reply then
    -- It is said already.
  elseif rule and (begin == head or begin:sub(1, same) == head:sub(1, same)) then
    if not now_us then
      local time = redis.call('TIME')
      now_us = time[1] * 1000000 + time[2]
    end
    local pos
    if value and not goes_on then
      state, pos = twin('unpack', rule, value, #head + 1, nil, true)
      touched = pos == #value + 1 and twin('rewind', rule, state, now_us)
    end
    if value and not goes_on and pos ~= #value + 1 then
      reply = '\4state'
    else
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
        packed = twin('pack', rule, state, begin, nil, true)
        full_is_fresh, ahead = starts_full, 0
      end
      reply = struct.pack('<BBI4I7I7I7', wait and 1 or 0, 0, wait and cost or 0, wait or retry,
        remaining, full_after)
    end
  else
    -- Any verb, any rules; the twin of ruleset.rs.
    decide_any = decide_any or (function()
      -- The rules of a set, their twins and flags, what becomes of usage, what states under them
      -- begin with, and how much of that tells them from others; nil if `text` is none.
      local function parse(text)
        if #text < 6 then return nil end
        local same, length, version, carry, count = struct.unpack('<BI2BBB', text)
        if version ~= 2 or carry > FORGET or count < 1 or count > 8 then return nil end
        local pos, rules, twins, flags, known = 7, {}, {}, {}, {}
        for place = 1, count do
          if #text < pos + 10 then return nil end
          local code, numbers, flag = text:byte(pos, pos + 2)
          local last = pos + 10 + 8 * numbers
          if #text < last or flag > 7 then return nil end
          local twin = known[code] or twin_of(code)
          local rule = twin and twin('new', text, pos + 11, numbers)
          if not rule then return nil end
          rules[place], twins[place], flags[place] = rule, twin, flag
          known[code], pos = twin, last + 1
        end
        if #text ~= pos - 1 + length or #text < pos or same > length then return nil end
        return rules, twins, flags, carry, text:sub(pos), same > 0 and same or length
      end

      -- What is remembered under these rules, from `pos` on; nil if `value` is not of them.
      local function recall(rules, twins, value, pos)
        local states = {}
        if #rules == 1 then
          states[1], pos = twins[1]('unpack', rules[1], value, pos, nil, true)
          return pos == #value + 1 and states or nil
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
        return present == 0 and pos == #value + 1 and states or nil
      end

      return function(value, text, ask)
        local rules, twins, flags, carry, head, same = parse(text)
        if not rules then return '\4rules' end
        if #ask < 6 then return '\4ask' end
        local verb, clock, cost = struct.unpack('<BBI4', ask)
        if verb < CHECK or verb > RENEW and verb ~= DEBIT and verb ~= RAISE or clock > CLIENT or cost < 1
          or cost > COST_MAX then
          return '\4ask'
        end

        local pos, max_wait, permit, now, debts = 7, nil, nil, now_us, nil
        if verb > RENEW then
          if #ask < pos + 4 * #rules - 1 then return '\4ask' end
          debts = { struct.unpack('<' .. ('I4'):rep(#rules), ask, pos) }
          pos = pos + 4 * #rules
        elseif verb == RESERVE then
          if #ask < pos + 6 then return '\4ask' end
          max_wait, pos = struct.unpack('<I7', ask, pos)
        elseif verb >= ACQUIRE then
          if #ask < pos + 15 then return '\4ask' end
          permit, pos = struct.unpack('<c16', ask, pos)
        end
        if clock ~= SERVER then
          if #ask < pos + 6 then return '\4ask' end
          now, pos = struct.unpack('<I7', ask, pos)
          if now > INSTANT_MAX_US then return '\4ask' end
        elseif not now then
          local time = redis.call('TIME')
          now = time[1] * 1000000 + time[2]
          now_us = now
        end
        local holds_permits = false
        for place = 1, #rules do
          local flag = flags[place]
          if flag % CALENDAR >= PERMITS then holds_permits = true end
          if flag >= CALENDAR then
            if #ask < pos + 13 then return '\4ask' end
            local from, till
            from, till, pos = struct.unpack('<I7I7', ask, pos)
            if from >= till or till > UNITS_MAX then return '\4ask' end
            -- The server's clock may be in the window before or after the caller's.
            if now < from then
              till = from
            elseif now >= till then
              till = now + (till - from) - (now - till) % (till - from)
            end
            rules[place].till = till
          end
        end
        local how = ask:byte(pos)
        if how and (how > LOST or how < RULES or how == LOST and #ask > pos) then return '\4ask' end

        -- supports
        if verb >= ACQUIRE and verb < DEBIT and not holds_permits
          or verb < PEEK and holds_permits then
          return '\2'
        end

        local states, touched = {}, false
        if value and value:sub(1, same) == head:sub(1, same) then
          -- The rules that wrote it; of which version, stays as it is.
          head = value:sub(1, #head)
          states = recall(rules, twins, value, #head + 1)
          if not states then return '\4state' end
        elseif value and how == RULES then
          -- take_over: `states` of `old`, the set that this one replaces, in the units of this one.
          local old_text = ask:sub(pos + 1)
          local old, old_twins, _, _, old_head, old_same = parse(old_text)
          if not old then return '\4ask' end
          if value:sub(1, old_same) ~= old_head:sub(1, old_same) then
            return '\3' .. value:sub(1, HEAD_MAX)
          end
          local before = recall(old, old_twins, value, #old_head + 1)
          if not before then return '\4state' end
          touched = true
          local start = 7
          for place = 1, carry == FORGET and 0 or #rules do
            local rule, twin, old_start = rules[place], twins[place], 7
            local stop = start + 11 + 8 * text:byte(start + 1)
            for other = 1, #old do
              local old_rule, old_twin, state = old[other], old_twins[other], before[other]
              local old_stop = old_start + 11 + 8 * old_text:byte(old_start + 1)
              if state and old_text:sub(old_start + 3, old_start + 10)
                == text:sub(start + 3, start + 10) then
                -- carried
                local alike = text:byte(start) == old_text:byte(old_start)
                if alike and text:sub(start + 11, stop - 1)
                  == old_text:sub(old_start + 11, old_stop - 1) then
                  states[place] = state
                elseif carry == PROPORTIONAL and flags[place] % CALENDAR < PERMITS then
                  local limit, old_limit = twin('limit', rule), old_twin('limit', old_rule)
                  local function scaled(used)
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
                  -- A twin without `rescale` says nothing, as do those whose windows differ.
                  states[place] = alike and twin('rescale', rule, state, now, scaled, old_rule)
                  if not states[place] then
                    local used = scaled(old_twin('used', old_rule, state, now))
                    states[place] = twin('with_used', rule, nil, now, used)
                  end
                elseif alike then
                  states[place] = twin('convert', rule, state, now, nil, old_rule)
                else
                  local used = old_twin('used', old_rule, state, now)
                  states[place] = twin('with_used', rule, nil, now, used)
                end
              end
              old_start = old_stop
            end
            start = stop
          end
        elseif value and how == LOST then
          -- Nobody knows the rules that wrote the state: every budget is used up.
          touched = true
          for place = 1, #rules do
            local rule, twin = rules[place], twins[place]
            local limit, act = twin('limit', rule), 'with_used'
            if flags[place] % CALENDAR >= PERMITS then act = 'charge' end
            states[place] = twin(act, rule, nil, now, limit, ('\0'):rep(16)) or nil
          end
        elseif value then
          return '\3' .. value:sub(1, HEAD_MAX)
        end

        local asked_at = now
        if clock == CLIENT then
          for place = 1, #rules do
            local state = states[place]
            local latest = state and twins[place]('latest', rules[place], state, now) or 0
            if latest > now then now = latest end
          end
        end
        -- rewind
        for place = 1, #rules do
          local state = states[place]
          if state and twins[place]('rewind', rules[place], state, now) then touched = true end
        end

        local refused_by, retry, granted, wait, slowest, held = nil, 0, cost, 0, nil, false
        if verb == ACQUIRE then
          for place = #rules, 1, -1 do
            local state = states[place]
            if state and flags[place] % CALENDAR >= PERMITS
              and twins[place]('holds', rules[place], state, now, nil, permit) then
              refused_by, retry, held = place, NEVER, true
            end
          end
        elseif verb == AT_MOST then
          for place = 1, #rules do
            local left = twins[place]('available', rules[place], states[place], now)
            if left < granted then granted = left end
          end
          -- With nothing to grant, one permit says when there will be.
          if granted < 1 then granted = 1 end
        end

        if (verb <= PEEK or verb == ACQUIRE) and not held then
          -- ask_all
          for place = 1, #rules do
            local pause, after =
              twins[place]('check', rules[place], states[place], now, granted, max_wait)
            if not pause then
              if not refused_by or (retry ~= NEVER and (after == NEVER or after > retry)) then
                refused_by, retry = place, after
              end
            elseif pause > wait then
              wait, slowest = pause, place
            end
          end
        elseif verb == REFUND then
          -- Gives back to every rule; the least that one of them took back is what counts.
          granted = nil
          for place = 1, #rules do
            if flags[place] % CALENDAR < PERMITS then
              local state, back = states[place], 0
              if state then
                back, touched = twins[place]('refund', rules[place], state, now, cost), true
              end
              if not granted or back < granted then granted = back end
            end
          end
          granted = granted or 0
        elseif verb > RENEW then
          for place = 1, #rules do
            local there, state = 0, states[place]
            if verb == RAISE and state then
              debts[place] = debts[place] - twins[place]('used', rules[place], state, now)
            end
            if flags[place] % CALENDAR < PERMITS then
              there = twins[place]('available', rules[place], state, now)
              if debts[place] < there then there = debts[place] end
            end
            if there >= 1 then
              states[place] = twins[place]('charge', rules[place], state, now, there)
              touched = true
            end
            debts[place] = struct.pack('<I4', there > 0 and there or 0)
          end
        elseif verb == RESET then
          states, touched, granted = {}, true, 0
        elseif verb ~= ACQUIRE then
          local act = verb == RELEASE and 'release' or 'renew'
          granted = nil
          for place = 1, #rules do
            if flags[place] % CALENDAR >= PERMITS then
              local state, back = states[place], nil
              if state then back, state = twins[place](act, rules[place], state, now, nil, permit) end
              if back then
                states[place], granted, touched, refused_by = state, back, true, nil
              elseif not granted and not refused_by then
                refused_by, retry = place, NEVER
              end
            end
          end
        end

        -- Nothing is charged until every rule has agreed: a refused request must not spend one
        -- budget on its way to being refused by another. Then the verdict: what is left under the
        -- rule that decided; and how long until every budget is full.
        local takes = (verb < PEEK or verb == ACQUIRE) and not held
        local deciding, remaining, reset_after = refused_by or slowest, nil, nil
        local full_is_fresh, full_after = true, 0
        for place = 1, #rules do
          local rule, twin, state, left, after = rules[place], twins[place], states[place], nil, nil
          if takes and not refused_by then
            state, left, after = twin('charge', rule, state, now, granted, permit)
            states[place], touched = state, true
          elseif takes and not state then
            -- A budget that starts below full fills from the first request on, or it would be
            -- refused for ever.
            state = twin('first_seen', rule, nil, now)
            states[place], touched = state, touched or state
          end
          if not left then left, after = twin('status', rule, state, now) end
          if place == (refused_by or slowest)
            or not refused_by and not slowest and (not remaining or left < remaining) then
            deciding, remaining, reset_after = place, left, after
          end
          if after > full_after then full_after = after end
          full_is_fresh = full_is_fresh and flags[place] % 2 == FULL_IS_FRESH
        end

        local packed
        if touched and verb ~= PEEK then
          local present, bit = 0, 1
          packed = #rules == 1 and head or ''
          for place = 1, #rules do
            local state = states[place]
            if state then
              packed = twins[place]('pack', rules[place], state, packed, nil, #rules == 1)
              present = present + bit
            end
            bit = bit * 2
          end
          if #rules > 1 then packed = head .. string.char(present) .. packed end
          if present == 0 then full_is_fresh, full_after = true, 0 end
        end
        if verb > RENEW then
          return '\5' .. table.concat(debts, '', 1, #rules), packed, full_after, full_is_fresh, clock,
            now - asked_at
        end
        if refused_by then wait, granted = retry, 0 end
        local reply = struct.pack('<BBI4I7I7I7', refused_by and 0 or 1, deciding - 1, granted, wait,
          remaining, reset_after)
        return reply, packed, full_after, full_is_fresh, clock, now - asked_at
      end
    end)()
    if #args ~= #keys then
      reply, packed, full_after, full_is_fresh, clock, ahead = decide_any(value, text, ask)
    elseif #ask < 3 or ask:byte(1) ~= IN_DEBT then
      reply = '\4ask'
    else
      -- A debt is charged first, and only once: the second key says what was charged.
      local request = 4 + struct.unpack('<I2', ask, 2)
      local charged, before = try('GET', keys[2]), value
      if charged and charged.err then
        reply = charged
      elseif not charged then
        reply, packed, full_after, full_is_fresh, clock, ahead =
          decide_any(value, text, ask:sub(4, request - 1))
        if reply:byte(1) == 5 then charged, charged_now = reply:sub(2), packed and reply:sub(2) end
        -- A full budget is no key at all.
        if packed then before = not (full_is_fresh and full_after <= 0) and packed end
      end
      if charged and not charged.err then
        local after = { decide_any(before, text, ask:sub(request)) }
        reply = after[1]
        if reply:byte(1) > 1 then
          -- Without a decision nothing is changed.
          packed, charged_now = nil, nil
        else
          reply = reply .. charged
          if after[2] then packed, full_after, full_is_fresh, clock, ahead = unpack(after, 2, 6) end
        end
      end
    end
  end

  if packed and packed ~= value then
    local written
    if full_is_fresh and full_after <= 0 then
      -- A full budget is no key at all.
      written = value and try('DEL', key)
    else
      -- Until every budget is full. A state that is ahead of the caller's clock is ahead of the
      -- server's.
      local span = full_after + ahead
      local ttl = (span - span % 1000) / 1000 + 1
      if not full_is_fresh then ttl = ttl + IDLE_MS end
      if clock == GIVEN then ttl = ttl + GIVEN_MS end
      if clock == CLIENT then ttl = ttl + CLIENT_MS end
      written = try('SET', key, packed, 'PX', ttl)
    end
    -- What was not written was not charged.
    if type(written) == 'table' and written.err then
      reply, charged_now = written, nil
      for before = first, place - 1 do replies[before] = written end
    end
  end
  if charged_now then try('SET', keys[2], charged_now, 'PX', CHARGED_MS) end
  if #args == 2 then return reply end
  replies = replies or {}
  replies[place] = reply
end
return replies
