-- The twin of sliding_window.rs: the same steps, names and order. `state.counts[b % len + 1]`
-- belongs to bucket `b`, for newest - len < b <= newest.

-- The oldest bucket that overlaps (now - window, now].
local function oldest(rule, now)
  local since = now + 1 - rule.window_us
  if since < 0 then since = 0 end
  return (since - since % rule.bucket_us) / rule.bucket_us
end

-- The µs from `now` until `bucket` no longer overlaps the window.
local function time_to_end(rule, bucket, now)
  local span = (bucket + 1) * rule.bucket_us - now + rule.window_us - 1
  return span > 0 and span or 0
end

local function oldest_remembered(rule, state)
  return state.newest + 1 > rule.len and state.newest + 1 - rule.len or 0
end

-- The first of the remembered buckets that count at `now`; the last is the newest.
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

-- Makes room for the bucket of `now`, forgetting those that it pushes out.
local function advance(rule, state, now)
  local bucket = (now - now % rule.bucket_us) / rule.bucket_us
  local steps = bucket - state.newest
  if steps > rule.len then steps = rule.len end
  for pushed = 0, steps - 1 do
    state.counts[(bucket - pushed) % rule.len + 1] = 0
  end
  if bucket > state.newest then state.newest = bucket end
end

-- Arguments and results of each act: the table in crates/store/src/redis/epilogue.lua.
return function(act, rule, state, now, cost, more)
  if act == 'new' then
    if now ~= 4 then return nil end
    local limit, window_us, bucket_us, buckets = struct.unpack('<dddd', rule, state)
    if not (limit >= 1 and limit <= UNITS_MAX and window_us >= 1 and window_us <= UNITS_MAX
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
    return rule.window_us >= 10000000 and LEASED_IN_STEPS
  elseif act == 'unpack' then
    if #state < now + 7 then return nil end
    local newest, width = struct.unpack('<I7B', state, now)
    local pos, len = now + 8, rule.len
    if (width ~= 4 and width ~= 7) or #state < pos + width * len - 1 or newest * rule.bucket_us > UNITS_MAX then
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
    if cost > rule.limit then return nil, NEVER end
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
    -- The newest counters give back first: they would have been held the longest.
    local left = cost
    for bucket = state.newest, first_live(rule, state, now), -1 do
      local slot = bucket % rule.len + 1
      local back = state.counts[slot]
      if left < back then back = left end
      state.counts[slot], left = state.counts[slot] - back, left - back
    end
    return cost - left
  elseif act == 'rewind' then
    -- The newest counter moves to now, and the others keep their distances less one: the place of the
    -- clock in its bucket is not known, and no counter may end sooner than before.
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
    -- Unchanged buckets keep their counts; others take the sum over as if it were granted now.
    local old = more
    if rule.window_us == old.window_us and rule.len == old.len then return state end
    local used = sum_at(old, state, now)
    state = empty(rule, now)
    state.counts[state.newest % rule.len + 1] = used
    return state
  elseif act == 'rescale' then
    -- Unchanged buckets keep their scaled counts. Sums are scaled, from the newest bucket on, so that at
    -- every later instant the sum of the buckets that still count is rounded once.
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
