-- Leases: the twin of crates/kernel/src/lease, one function that is made only for a key with permits out, and
-- for a message of a holder. The end of the body of `make`, after steps.lua.
--
--     leases(act, of, rules, twins, flags, states, now, message)
--
-- `of` are the leases of a key: `version`, `held` (H), `first` (the first deadline, or an earlier instant), the number
-- of `holders` that have permits, `records` as they are stored, 27 bytes a holder: its id (8), number, kept, granted
-- (4 each), deadline (7); and whether the rules keep usage in use when they change (`keeps`).
--
-- | Act      | Arguments besides `of`                     | Results                                          |
-- |----------|--------------------------------------------|--------------------------------------------------|
-- | `read`   | `of`: a value, `rules`: where its section  | the leases; nil if they are malformed            |
-- |          | begins                                     |                                                  |
-- | `settle` | all but `message`                          | whether anything has changed                     |
-- | `under`  | all but `message`                          | permits that count as taken under each rule      |
-- | `wait`   | `now`                                      | the µs until the first of them are charged       |
-- | `answer` | all                                        | the reply, and whether anything may have changed |
-- | `pack`   | all but `message`                          | the section, and the µs until it has no effect   |
-- |          |                                            | any more; changes `states`                       |
elseif what == 'leases' then
  local NOBODY = ('\0'):rep(8)

  local function permits_of(record)
    return record and record.kept + record.granted or 0
  end

  -- Adds the permits of `record` to `of`, or subtracts them (`sign` -1).
  local function add(of, record, sign)
    local permits = permits_of(record)
    of.held = of.held + sign * permits
    if permits > 0 and record.holder ~= NOBODY then of.holders = of.holders + sign end
  end

  -- The record of `holder`, and its place; nil if there is none.
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

  -- The record of `holder`, unless its deadline is past.
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

  -- Adds `record`, or replaces the one of its holder.
  local function put(of, record)
    local before, pos = find(of, record.holder)
    pos = pos or #of.records + 1
    of.records = of.records:sub(1, pos - 1) .. struct.pack('<c8I4I4I4I7', record.holder, record.number, record.kept,
      record.granted, record.deadline) .. of.records:sub(pos + 27)
    add(of, before, -1)
    add(of, record, 1)
    if of.first == 0 or record.deadline < of.first then of.first = record.deadline end
  end

  -- The number of records with a deadline to come.
  local function count(of, now)
    if of.first > now then return #of.records / 27 end
    local alive = 0
    for pos = 1, #of.records, 27 do
      if struct.unpack('<I7', of.records, pos + 20) > now then alive = alive + 1 end
    end
    return alive
  end

  -- `instant`, but not before the calendar window around now, nor after now.
  local function back_to(rule, instant, now)
    if rule.from and instant < rule.from then instant = rule.from end
    return instant < now and instant or now
  end

  -- Returns whether permits that were leased count under a rule of these `flags`: under all that do not hand out
  -- permits with ids. A rule that cannot be leased may have replaced one that could be.
  local function counts_leased(flags)
    return flags % CALENDAR < PERMITS
  end

  -- Charges `permits` that were spent by the instant `by`, but not before the latest instant of a rule. These are
  -- more than a rule has left only after rules were changed, or if the clock went back. It counts them
  -- nevertheless; if usage does not stay in use when rules change (`of.keeps`), up to twice its limit.
  local function charge_by(of, rules, twins, flags, states, permits, by, now)
    for place = 1, #rules do
      local rule, twin, state = rules[place], twins[place], states[place]
      if counts_leased(flags[place]) then
        -- A calendar's window has no instant of its own.
        local seen = state and not rule.from and twin('latest', rule, state, now) or 0
        local at = back_to(rule, by > seen and by or seen, now)
        local used = state and twin('used', rule, state, at) or 0
        local most = of.keeps and (twin('countable', rule, nil, at) or LEASE_USED_MAX) or 2 * twin('limit', rule)
        local room = most - used
        local some = permits < room and permits or room
        if some > 0 then states[place] = (twin('charge', rule, state, at, some)) end
      end
    end
  end

  -- Charges `spent` (pairs of an instant and permits) and the records whose deadline is past, oldest first.
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
    -- Sorts by insertion, which keeps the order of equal instants.
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

  -- Cuts deadlines to that of the longest lease that begins now. A deadline is at most that much later than the
  -- version, so only a clock that went back leaves a later one. Returns whether it went back.
  local function rewind(of, now)
    if of.version <= now then return false end
    local latest, records = now + LEASE_DEADLINE_MAX, {}
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

  -- Permits that every rule would let pass beside all records.
  local function free(of, rules, twins, states, now)
    local least = LEASE_PERMITS_MAX
    for place = 1, #rules do
      local left = twins[place]('leases', rules[place])
        and twins[place]('available', rules[place], states[place], now) or 0
      if left - of.held < least then least = left - of.held end
    end
    local room = LEASE_PERMITS_MAX - of.held
    if room < least then least = room end
    return least > 0 and least or 0
  end

  -- Permits that count as taken under each rule.
  local function under(of, flags)
    local held = { nil }
    for place = 1, #flags do held[place] = counts_leased(flags[place]) and of.held or 0 end
    return held
  end

  -- The µs until the first permits that are out are charged. A refusal always has a wait.
  local function wait_for(of, now)
    local first
    for pos = 1, #of.records, 27 do
      local kept, granted, deadline = struct.unpack('<I4I4I7', of.records, pos + 12)
      if kept + granted > 0 and (not first or deadline < first) then first = deadline end
    end
    return first > now and first - now or 1
  end

  -- Returns the claim of `m`: the permits that the store stood for, their deadline, the permits without a record that
  -- count as spent, and what was known of the holder. `known` is the record of the holder.
  local function claim_of(of, m, known, stood_max, hint, now)
    if known and m.heard <= known.number then
      -- A grant whose answer never arrived goes back unused.
      return known.kept + (m.heard == known.number and known.granted or 0), known.deadline, 0, LEASE_KNOWN
    end
    local alive = m.stood > 0 and now < m.ends and not m.ended
    local stood = m.stood < stood_max and m.stood or stood_max
    if alive and (known or count(of, now) < LEASE_HOLDERS_MAX) then
      local deadline = m.ends < now + LEASE_DEADLINE_MAX and m.ends or now + LEASE_DEADLINE_MAX
      if known and known.deadline > deadline then deadline = known.deadline end
      return stood, deadline, 0, LEASE_LOST
    end
    if alive or hint and of.version < hint.version then return 0, 0, stood, LEASE_LOST end
    return 0, 0, 0, LEASE_NEW
  end

  -- Raises the permits in use and held to those of `hint`, as far as they have not flowed out since. A record of no
  -- holder stands for permits of holders that have not sent a message yet.
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
    local deadline = (hint.version < now and hint.version or now) + LEASE_DEADLINE_MAX
    if missing > 0 and deadline > now then
      local ghost = live(of, NOBODY, now)
      if not ghost and #of.records >= 27 * LEASE_HOLDERS_MAX then
        -- No record can stand for these permits, so they count as spent.
        settle(of, rules, twins, flags, states, now, { { now, missing } })
      else
        if ghost and ghost.deadline > deadline then deadline = ghost.deadline end
        put(of, {
          holder = NOBODY, number = 0, kept = permits_of(ghost) + missing, granted = 0,
          deadline = deadline,
        })
      end
    end
    if hint.version > of.version then of.version = hint.version end
  end

  -- Restores what `m` knows of lost writes.
  local function restore(of, rules, twins, flags, states, m, known, base, deadline, hint, now)
    settle(of, rules, twins, flags, states, now, {})
    remove(of, m.holder)
    if deadline > now then
      put(of, { holder = m.holder, number = m.number, kept = base, granted = 0, deadline = deadline })
    end
    -- A record of no holder stood for these permits until now.
    local back, ghost = base - permits_of(known), live(of, NOBODY, now)
    if ghost then
      if back > ghost.kept then back = ghost.kept end
      if back > 0 then
        ghost.kept = ghost.kept - back
        put(of, ghost)
      end
    end
    if hint then repair(of, rules, twins, flags, states, hint, now) end
  end

  -- The permits that `m` is granted beyond the `needed` ones.
  local function wanted(of, rules, twins, m, kept, needed, left)
    -- The sender is one of them; it is counted already if it keeps any.
    local sharers, in_steps = of.holders + (kept > 0 and 0 or 1), false
    for place = 1, #rules do
      if twins[place]('leases', rules[place]) == LEASED_IN_STEPS then in_steps = true end
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

  -- The answer to `m`: the store stands for `record`.
  local function stands(of, rules, twins, flags, states, m, record, found, now)
    local held = under(of, flags)
    local refused_by, slowest, retry, pause, deciding, remaining, reset_after = nil, nil, nil, 0, nil, nil, nil
    local least = m.least < 1 and 1 or m.least > COST_MAX and COST_MAX or m.least
    for place = 1, #rules do
      local rule, twin, wait, after = rules[place], twins[place], nil, nil
      local limit = twin('limit', rule)
      if least <= limit and limit < least + held[place] then
        -- The request passes when enough leased permits have come back.
        after = wait_for(of, now)
      else
        wait, after = twin('check', rule, states[place], now, least + held[place])
      end
      if wait then
        if wait > pause then pause, slowest = wait, place end
      elseif not refused_by or retry ~= NEVER and (after == NEVER or after > retry) then
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
      elseif flags[place] % PERMITS ~= FULL_IS_FRESH then
        some = twin('limit', rule)
      end
      used[place] = struct.pack('<I5', some < LEASE_USED_MAX and some or LEASE_USED_MAX)
    end
    return struct.pack('<BI4I4I4I7I7I7BBBBI7I7I7I7I4', 5, record.number, record.kept, record.granted, lasts,
      record.deadline, free(of, rules, twins, states, now), of.holders, found, refused_by and 0 or 1, deciding - 1, refused_by and retry or pause,
      remaining, reset_after, of.version, of.held) .. table.concat(used)
  end

  return function(act, of, rules, twins, flags, states, now, m)
    if act == 'read' then
      local value, pos = of, rules
      local mark = value:byte(pos)
      if #value < pos + 19 or mark ~= LEASE_SECTION and mark ~= LEASE_SECTION_ALONE then return nil end
      local version, held, first, holders = struct.unpack('<I7I4I7B', value, pos + 1)
      local records = value:sub(pos + 20)
      if #records % 27 ~= 0 or #records > 27 * LEASE_HOLDERS_MAX then return nil end
      -- The numbers of the section must agree with its records; otherwise another program has written here.
      local sum, alive, soonest, latest = 0, 0, UNITS_MAX, 0
      for place = 1, #records, 27 do
        local kept, granted, deadline = struct.unpack('<I4I4I7', records, place + 12)
        sum = sum + kept + granted
        if deadline < soonest then soonest = deadline end
        if deadline > latest then latest = deadline end
        if kept + granted > 0 and records:sub(place, place + 7) ~= NOBODY then alive = alive + 1 end
      end
      if sum ~= held or alive ~= holders or first > soonest or latest > UNITS_MAX or version > UNITS_MAX then
        return nil
      end
      return {
        version = version, held = held, first = first, holders = holders, records = records,
        alone = mark == LEASE_SECTION_ALONE,
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
      local mark = of.alone and LEASE_SECTION_ALONE or LEASE_SECTION
      local section = struct.pack('<BI7I4I7B', mark, of.version, of.held, of.first, of.holders)
      local last, after = now, of.version + LEASE_HINT_MAX + 1 - now
      if #of.records > 0 then last = now + LEASE_DEADLINE_MAX end
      charge_by(of, rules, twins, flags, states, of.held, last, last)
      for place = 1, #rules do
        local _, full_after = twins[place]('status', rules[place], states[place], last)
        if last - now + full_after > after then after = last - now + full_after end
      end
      return section .. of.records, after
    end

    -- answer
    if m.holder == NOBODY then
      rewind(of, now)
      settle(of, rules, twins, flags, states, now, {})
      local nothing = { holder = NOBODY, number = m.number, kept = 0, granted = 0, deadline = now }
      return stands(of, rules, twins, flags, states, m, nothing, LEASE_NEW, now), false
    end
    local known = live(of, m.holder, now)
    if known and m.number < known.number then return '\6', false end
    rewind(of, now)
    for place = 1, #rules do
      if not states[place] then states[place] = twins[place]('first_seen', rules[place], nil, now) end
    end
    known = live(of, m.holder, now)
    if known and m.number == known.number then
      -- A repeated message gets the same answer again.
      settle(of, rules, twins, flags, states, now, {})
      return stands(of, rules, twins, flags, states, m, known, LEASE_KNOWN, now), true
    end

    -- A hint is believed for a minute.
    local hint = m.hint
    if hint and now > hint.version + LEASE_HINT_MAX then hint = nil end
    local stood_max = LEASE_PERMITS_MAX - (of.held - permits_of(known))
    local limit = least_limit(rules, twins)
    if limit < stood_max then stood_max = limit end
    if stood_max < 0 then stood_max = 0 end
    local base, deadline, unclaimed, found = claim_of(of, m, known, stood_max, hint, now)
    if found == LEASE_LOST then
      restore(of, rules, twins, flags, states, m, known, base, deadline, hint, now)
    end

    -- The rest of the base: `kept` goes on, the other permits are spent or given back.
    local unspent, kept = m.unspent, m.keep < m.unspent and m.keep or m.unspent
    if unspent > base then
      unspent, kept = 0, 0
      if found ~= LEASE_LOST then found = LEASE_VOID end
    end
    local rest, spent = base - unspent, {}
    for place = 1, #m.marks, 2 do
      local permits, age = m.marks[place], m.marks[place + 1] * 15
      if permits > rest then permits = rest end
      rest = rest - permits
      -- The holder's clock may be fast: only 15/16 of an age are believed.
      age = (age - age % 16) / 16
      spent[#spent + 1] = { age < now and now - age or 0, permits }
    end
    spent[#spent + 1] = { now, rest + unclaimed }
    local record = { holder = m.holder, number = m.number, kept = kept, granted = 0, deadline = deadline }
    if deadline > now then
      put(of, record)
    elseif known then
      -- The record is the grant of an old message, whose answer never arrived.
      remove(of, m.holder)
    end
    settle(of, rules, twins, flags, states, now, spent)
    for place = 1, #rules do
      if states[place] then twins[place]('forget', rules[place], states[place], now) end
    end

    -- Grant the permits that requests wait for, as far as they are free, and some of those that are wanted.
    local left = free(of, rules, twins, states, now)
    local needed = left >= m.need and m.need or left >= m.least and left or 0
    local is_full = #of.records >= 27 * LEASE_HOLDERS_MAX and not live(of, m.holder, now)
    of.version = of.version + 1 > now and of.version + 1 or now
    if is_full then
      charge_by(of, rules, twins, flags, states, needed, now, now)
      record.granted, record.deadline = needed, now
      return stands(of, rules, twins, flags, states, m, record, LEASE_FULL, now), true
    end
    record.granted = needed + wanted(of, rules, twins, m, kept, needed, left - needed)
    local ends = now + m.term + (m.term - m.term % 16) / 16 + m.patience
    -- A shorter term does not end the old one sooner: this answer may be lost.
    if ends > record.deadline then record.deadline = ends end
    put(of, record)
    return stands(of, rules, twins, flags, states, m, record, found, now), true
  end
elseif what == 'message' then
  -- Reads the message of a holder about `rules` rules. Returns it, and the place after it; nil if it is malformed.
  return function(ask, rules)
    if #ask < 64 then return nil end
    local m, pos, ended, marks = { marks = {} }, nil, nil, nil
    m.holder, m.number, m.heard, m.stood, m.unspent, m.keep, m.need, m.least, m.want, m.share, m.term, m.patience,
      m.ends, ended, marks, pos = struct.unpack('<c8I4I4I4I4I4I4I4I4I4I4I4I7BB', ask, 3)
    if ended > 1 or marks > LEASE_MARKS_MAX or #ask < pos + 8 * marks then return nil end
    m.ended = ended == 1
    if m.term > LEASE_TERM_MAX then m.term = LEASE_TERM_MAX end
    if m.patience > LEASE_PATIENCE_MAX then m.patience = LEASE_PATIENCE_MAX end
    for place = 1, 2 * marks, 2 do
      m.marks[place], m.marks[place + 1], pos = struct.unpack('<I4I4', ask, pos)
    end
    local hints = ask:byte(pos)
    pos = pos + 1
    if hints == 1 then
      if #ask < pos + 10 + 5 * rules then return nil end
      local version, held = struct.unpack('<I7I4', ask, pos)
      if version > SPAN_MAX_US then version = SPAN_MAX_US end
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
