-- Decides any verb by any rules on any clock: the twin of ruleset.rs. The build puts this file into the loop
-- of epilogue.lua, where a comment names it, so that only a call that needs these functions makes them. They
-- share `make` with the loop, and `now_us`, as a call reads the server's time at most once.
--
-- `decide_any` is one long function, as each function more would cost every decision: its steps have a comment
-- each, and the rare ones are in steps.lua. `{ nil }` is a list with room for one entry, which spares the only
-- rule of most sets an allocation.

-- Reads a rule set. Returns the rules, their twins and flags, how usage is carried over, the head of states under
-- these rules, and the number of its bytes that identify the rules; nil if `text` is malformed.
local function parse(text)
  if #text < 6 then return nil end
  local same, length, version, carry, count = struct.unpack('<BI2BBB', text)
  if version ~= 2 or carry > FORGET or count < 1 or count > 8 then return nil end
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

-- The function of lease.lua, once a key with leases or a message needed it.
local leases

-- Reads the states that `value` has from `pos` on, one for each rule that has a state, and the leases, if there are
-- any. Returns nil if they are malformed.
local function recall(rules, twins, value, pos)
  local states, begin = { nil }, pos
  if #rules == 1 then
    states[1], pos = twins[1]('unpack', rules[1], value, begin, nil, true)
    -- In front of leases, the only state of a key has the form of a state among others.
    if not pos then states[1], pos = twins[1]('unpack', rules[1], value, begin) end
    if pos == #value + 1 then return states end
    if not pos then return nil end
    leases = leases or make('leases')
    local out = leases('read', value, pos)
    if out and out.alone then states[1] = nil end
    return out and states, out
  end
  -- The bits of a byte tell which rules have a state. If it is missing, 256 leaves a bit after all rules.
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

-- Reads a request for these rules. Returns the verb, the clock, the cost, the time, RULES or LOST and its place in
-- `ask`, whether a rule hands out permits, and the arguments of some verbs: the longest wait, a permit's id, the process
-- that waits for it, debts, a holder's message; nil if `ask` is malformed. Sets the window of each calendar.
local function read_ask(ask, rules, flags)
  if #ask < 6 then return nil end
  local verb, clock, cost = struct.unpack('<BBI4', ask)
  if verb < CHECK or verb > DEBIT and verb ~= RAISE and verb ~= WAIT and verb ~= LEAVE or clock > CLIENT
    or verb ~= LEASE and (cost < 1 or cost > COST_MAX) or verb == LEASE and clock == CLIENT then
    return nil
  end

  -- Arguments of some verbs: one amount a rule for debits, a wait for `reserve`, an id for the verbs of permits and the
  -- process that waits for one.
  local pos, max_wait, permit, waiting, now, debts, message = 7, nil, nil, nil, now_us, nil, nil
  if verb >= WAIT then
    if #ask < pos + 23 then return nil end
    permit, waiting, pos = struct.unpack('<c16c8', ask, pos)
  elseif verb == LEASE then
    message, pos = make('message')(ask, #rules)
    if not message then return nil end
  elseif verb > RENEW then
    if #ask < pos + 4 * #rules - 1 then return nil end
    debts = { struct.unpack('<' .. ('I4'):rep(#rules), ask, pos) }
    pos = pos + 4 * #rules
  elseif verb == RESERVE then
    if #ask < pos + 6 then return nil end
    max_wait, pos = struct.unpack('<I7', ask, pos)
  elseif verb >= ACQUIRE then
    if #ask < pos + 15 then return nil end
    permit, pos = struct.unpack('<c16', ask, pos)
  end

  -- The time: the caller's, or the server's.
  if clock ~= SERVER then
    if #ask < pos + 6 then return nil end
    now, pos = struct.unpack('<I7', ask, pos)
    if now > INSTANT_MAX_US then return nil end
  elseif not now then
    local time = redis.call('TIME')
    now = time[1] * 1000000 + time[2]
    now_us = now
  end

  -- The window of each calendar.
  local holds_permits = false
  for place = 1, #rules do
    local flag = flags[place]
    if flag % CALENDAR >= PERMITS then holds_permits = true end
    if flag >= CALENDAR then
      if #ask < pos + 13 then return nil end
      local from, till
      from, till, pos = struct.unpack('<I7I7', ask, pos)
      if from >= till or till > UNITS_MAX then return nil end
      -- The server's clock may be in the window before or after the caller's.
      if now < from then
        from, till = now, from
      elseif now >= till then
        from, till = till, now + (till - from) - (now - till) % (till - from)
      end
      rules[place].from, rules[place].till = from, till
    end
  end

  -- RULES or LOST, if the script has asked for the rules that wrote the state.
  local how = ask:byte(pos)
  if how and (how > LOST or how < RULES or how == LOST and #ask > pos) then return nil end
  return verb, clock, cost, now, how, pos, holds_permits, max_wait, permit, waiting, debts, message
end

-- Decides the request `ask` by the rules of `text` on a key at which `value` is stored (false: nothing).
-- Returns the reply; the text to store (nil: none); the µs until every budget is full, and whether a full budget is
-- a new key; the clock, the µs by which the states are ahead of it, and the waiting requests that would pass now (nil:
-- none). A request that cannot be decided has only a reply.
function decide_any(value, text, ask)
  -- Read the rules and the request, and check all of both before anything is decided.
  local rules, twins, flags, carry, head, same = parse(text)
  if not rules then return '\4rules' end
  local verb, clock, cost, now, how, pos, holds_permits, max_wait, permit, waiting, debts, message =
    read_ask(ask, rules, flags)
  if not verb then return '\4ask' end

  -- Check that the rules support the verb (`supports`). The verbs of permits need a rule that hands them out; with
  -- such a rule, no other verb takes permits.
  if (verb >= ACQUIRE and verb <= RENEW or waiting) and not holds_permits
    or verb < PEEK and holds_permits then
    return '\2'
  end

  -- Read the state of each rule. If other rules wrote it, the caller has to send them too, or to report them as
  -- lost; until then the reply is the beginning of the state.
  local states, out, touched = nil, nil, false
  -- A state that cannot be read can be reset.
  if value == '' then
    if verb ~= RESET then return '\4state' end
    value = nil
  end
  local begin = value and value:sub(1, #head)
  if value and (begin == head or begin:sub(1, same) == head:sub(1, same)) then
    -- These rules wrote it. The rest of the head, which is their version, stays.
    head = begin
    states, out = recall(rules, twins, value, #head + 1)
    if not states and verb ~= RESET then return '\4state' end
  elseif value and how == RULES then
    local old_text = ask:sub(pos + 1)
    local old_rules, old_twins, _, _, old_head, old_same = parse(old_text)
    if not old_rules then return '\4ask' end
    if value:sub(1, old_same) ~= old_head:sub(1, old_same) then
      return '\3' .. value:sub(1, HEAD_MAX)
    end
    local before
    before, out = recall(old_rules, old_twins, value, #old_head + 1)
    if before then
      states = make('take_over')(text, rules, twins, flags, carry, old_text, old_rules, old_twins, before, now)
    elseif verb ~= RESET then
      return '\4state'
    end
    touched = true
  elseif value and how == LOST then
    states, touched = make('use_up')(rules, twins, flags, now), true
  elseif value then
    return '\3' .. value:sub(1, HEAD_MAX)
  else
    states = { nil }
  end

  -- Set the time. On the callers' clocks it is never earlier than the latest instant of a state. A state that is
  -- still later than now means that time went back: it becomes one of now.
  local asked_at = now
  states = states or { nil }
  if clock == CLIENT then
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

  -- Leased permits count as taken under each rule, until they are charged or come back. While any are leased, no
  -- future permits are booked.
  local held, word
  if message then
    out, leases = out or { version = 0, held = 0, first = 0, holders = 0, records = '' }, leases or make('leases')
  end
  if out then out.keeps = carry == KEEP end
  if message then
    word, touched = leases('answer', out, rules, twins, flags, states, now, message)
    if not touched then return word end
  elseif out then
    if leases('settle', out, rules, twins, flags, states, now) then touched = true end
    if #out.records == 0 and out.version + LEASE_HINT_MAX + 1 <= now then
      out, touched = nil, true
    elseif out.held > 0 then
      held = leases('under', out, rules, twins, flags, states, now)
      if max_wait then max_wait = 0 end
    end
  end

  -- Start the verb. Some verbs ask every rule for `granted` permits below; the others are done here. `refused_by` is
  -- the place of the rule that refuses, and `retry` the µs until it may not.
  local refused_by, retry, granted = nil, 0, cost
  local asks = verb <= PEEK or verb == ACQUIRE or verb == WAIT
  if verb == ACQUIRE or verb == WAIT then
    -- A permit that is held is not acquired again; the first rule under which it is held refuses.
    for place = #rules, 1, -1 do
      local state = states[place]
      if state and flags[place] % CALENDAR >= PERMITS
        and twins[place]('holds', rules[place], state, now, nil, permit) then
        refused_by, retry, asks = place, NEVER, false
      end
    end
  elseif verb == AT_MOST then
    for place = 1, #rules do
      local left = twins[place]('available', rules[place], states[place], now)
      if held then left = left - held[place] end
      if left < granted then granted = left end
    end
    -- Without permits to grant, a check of one permit finds the wait.
    if granted < 1 then granted = 1 end
  elseif verb == REFUND then
    local given_back
    granted, given_back = make('refund')(rules, twins, flags, states, now, cost)
    touched = touched or given_back
  elseif verb == RESET then
    states, touched, granted = {}, true, 0
    if out then out.version = out.version + 1 > now and out.version + 1 or now end
  elseif verb == RELEASE or verb == RENEW or verb == LEAVE then
    local act = verb == RELEASE and 'release' or verb == RENEW and 'renew' or 'leave'
    granted, refused_by = make('on_permit')(act, rules, twins, flags, states, now, permit .. (waiting or ''))
    if granted then touched = true else retry = NEVER end
  elseif debts then
    local charged = make('debit')(rules, twins, flags, states, now, debts, verb == RAISE, held)
    touched = touched or charged
  end

  -- Ask every rule (`ask_all`). The rule that refuses for the longest time decides, or, if none refuses, the one
  -- with the longest wait.
  local wait, slowest = 0, nil
  if asks then
    for place = 1, #rules do
      local rule, twin, pause, after = rules[place], twins[place], nil, nil
      local wanted = granted + (held and held[place] or 0)
      if held and granted <= twin('limit', rule) and twin('limit', rule) < wanted then
        -- The request passes when enough leased permits have come back.
        after = leases('wait', out, now)
      else
        pause, after = twin('check', rule, states[place], now, wanted, permit and flags[place] % CALENDAR >= PERMITS and permit
          or max_wait)
      end
      if not pause then
        if not refused_by or (retry ~= NEVER and (after == NEVER or after > retry)) then
          refused_by, retry = place, after
        end
      elseif pause > wait then
        wait, slowest = pause, place
      end
    end
  end

  -- A request that waits has a ticket, unless it can never pass or a queue is full.
  local queued = verb == WAIT and refused_by and retry ~= NEVER and not held
    and make('enqueue')(rules, twins, flags, states, now, granted, permit .. waiting)
  touched = touched or queued

  -- Charge every rule if all agreed. Nothing is charged before: a refused request must not spend one budget
  -- on its way to being refused by another. Then report the permits left under the rule that decided (if none
  -- refused or has a wait, the first with the least left) and, if there are several rules, under each of them.
  local takes = asks and verb ~= PEEK
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
      -- A budget that starts below full fills from the first request on, or it would be refused for ever.
      state = twin('first_seen', rule, nil, now)
      states[place], touched = state, touched or state
    end
    if not left then left, after = twin('status', rule, state, now) end
    -- Below 0 are the permits in use above the limit. No such rule has less left than another.
    if held and (asks or verb == REFUND or verb == RESET) then
      left = left - held[place]
      if left < -UNITS_MAX then left = -UNITS_MAX end
    end
    left_of[place] = left
    if place == decider or not decider and (not remaining or left < remaining and remaining > 0) then
      deciding, remaining, reset_after = place, left, after
    end
    if after > full_after then full_after = after end
    full_is_fresh = full_is_fresh and flags[place] % PERMITS == FULL_IS_FRESH
  end

  -- Pack the changes: the head, for several rules a byte that tells which of them have a state, and the states. If no
  -- rule has a state, the key is a new one.
  local packed
  if touched and verb ~= PEEK then
    -- An instant in a head that is later than now is that of a clock that is ahead: no edit of another process
    -- would be the later version until then.
    local most = (now - now % 1000) / 1000 - HEADS_SINCE_MS
    if clock == SERVER and #head > same and most >= 0 and struct.unpack('<I5', head, same + 1) > most then
      head = head:sub(1, same) .. struct.pack('<I5', most)
    end
    local present, bit = 0, 1
    packed = #rules == 1 and head or ''
    if out and #rules == 1 then
      -- The section of leases stands behind a state; if there is none, behind an empty one.
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

  -- Reply with the charge of each rule to a debit, and with the decision to other verbs.
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
