-- The main part of the script: decides each key of the call, and stores its new state. The build joins the script
-- of prelude.lua, the twins, steps.lua and lease.lua (the body of `make`), and this file, with general.lua in the
-- place that names it. Comments are left out then.
--
-- A twin is one function for all acts of an algorithm, as every function that is made costs every call:
--
--     twin(act, rule, state, now, cost, more)
--
-- Unless the table says otherwise, `rule` is what `new` returned, `state` is what is remembered under that
-- rule, `now` is the instant in µs, `cost` is in permits, and arguments that are not listed are nil.
--
-- | Act          | Arguments besides `rule` and `now`       | Results                                      |
-- |--------------|------------------------------------------|----------------------------------------------|
-- | `new`        | `rule`: the text of a rule set           | the rule; nil if a number is out of range or |
-- |              | `state`: where in it the numbers begin   | there are too few or too many                |
-- |              | `now`: how many numbers there are        |                                              |
-- | `limit`      | (no `now`)                               | the largest cost that ever passes at once    |
-- | `unpack`     | `state`: the text that is stored         | the state, and the place after it; nil if    |
-- |              | `now`: where in it the state begins      | the text is malformed                        |
-- |              | `more`: true if the rule is the only one |                                              |
-- | `pack`       | `state`                                  | `now` with the state's text behind it        |
-- |              | `now`: the text that comes before        |                                              |
-- |              | `more`: true if the rule is the only one |                                              |
-- | `check`      | `state` or nil, `cost`                   | passes: the wait in µs, 0 for none           |
-- |              | `more`: the longest wait in µs, or nil;  | refused: nil, and the µs until a retry, or   |
-- |              | of permits, the id or nil                | NEVER                                        |
-- | `charge`     | `state` or nil, `cost`                   | the new state; of some twins also the        |
-- |              | `more`: of `acquire`, the permit's id    | results of `status` after it                 |
-- | `first_seen` | (`state` is nil)                         | the state of a key whose first request is    |
-- |              |                                          | refused; nil if nothing is to be remembered  |
-- | `available`  | `state` or nil                           | the largest cost that would pass now         |
-- | `status`     | `state` or nil                           | permits left, below 0 for those in use above |
-- |              |                                          | the limit; µs until the budget is full       |
-- | `rewind`     | `state`                                  | true if the state was from later than `now`, |
-- |              |                                          | and has been changed to one of `now`         |
-- | `latest`     | `state`                                  | the latest instant that the state has seen;  |
-- |              |                                          | a calendar's rule goes on to that window     |
-- | `refund`     | `state`, `cost`                          | permits that were given back; changes        |
-- |              |                                          | `state`                                      |
-- | `leases`     | (no `now`)                               | LEASED_FLOWS, LEASED_IN_STEPS, or nothing if |
-- |              |                                          | permits of the rule cannot be leased         |
-- | `forget`     | `state`                                  | (what does not count any more is forgotten)  |
-- | `enqueue`    | `state` or nil, `cost`                   | the state in which the request has a ticket; |
-- |              | `more`: a permit's id and a process      | nil if the queue is full                     |
-- | `leave`      | `state`                                  | 0, and the new state; nil if there is no     |
-- |              | `more`: a permit's id and a process      | ticket of that process                       |
-- | `called`     | `state`                                  | permit and process of each of the first      |
-- |              |                                          | requests in the queue that would pass now    |
-- | `holds`      | `state`, `more`: a permit's id           | whether the permit is held                   |
-- | `release`,   | `state`, `more`: a permit's id           | the permit's cost, and the new state; nil if |
-- | `renew`      |                                          | the permit is not held                       |
-- | `countable`  |                                          | the most permits in use that a state counts; |
-- |              |                                          | nil for any that a hint can say              |
-- | `used`       | `state`                                  | permits in use, rounded up                   |
-- | `with_used`  | `cost`: permits in use (`state` is nil)  | the state; nil if nothing is remembered      |
-- | `convert`    | `state`: of `more`, the old rule of the  | the state under `rule`                       |
-- |              | same algorithm                           |                                              |
-- | `rescale`    | `state`, `more`: as of `convert`         | the state under `rule`; nil if the times of  |
-- |              | `cost`: a function from permits under    | the old state do not hold under it           |
-- |              | the old limit to permits under the new   |                                              |
--
-- `charge`, `release`, `renew` and `convert` may change the state that they are given and return it.
-- Optional acts return nothing where a twin does not have them: `first_seen`, `rescale`, `leases`, `forget`,
-- `countable`, and those of permits.
end

local keys, args, try = KEYS, ARGV, redis.pcall
-- The server's time in µs, once a decision needed it; the function of general.lua, likewise; the replies, if
-- there are several keys.
local now_us, decide_any, replies
-- The last pair of arguments, and what was read from it: the rule and its twin, the head of its states and
-- the number of its bytes that identify the rules, the cost, and whether a full budget is a new key. `rule` is
-- nil if it is not the ordinary case.
local last_text, last_ask, rule, twin, head, same, cost, starts_full
-- Equal requests in a row for one key share one read before the first of them, which is at `first`, and one write
-- after the last: `goes_on` is true in between. `value` is the stored text, `state` its present state, and
-- `touched` is true if a request has changed it.
local first, goes_on, value, state, touched

for place = 1, #args / 2 do
  local key, text, ask = keys[place], args[2 * place - 1], args[2 * place]
  local reply
  -- The text to store (nil: none), the µs until every budget is full, whether a full budget is a new key, the clock
  -- (nil: the server's), and the µs by which the state is ahead of it.
  local packed, full_after, full_is_fresh, clock, ahead
  -- Waiting requests that would pass now (nil: none), and the charge of a debt, if it must be noted.
  local called, charged_now

  if not goes_on then first, value, state, touched = place, try('GET', key), nil, nil end

  -- The ordinary case is a check by one rule, on the server's time. It is by far the most frequent, so it is decided
  -- here, without the lists of general.lua. Equal arguments in a row are read once.
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
        head, same, twin = text:sub(tail), own > 0 and own or #text, make(code)
        rule = twin and twin('new', text, 18, numbers)
        starts_full = flags == FULL_IS_FRESH
      end
    end
  end

  -- A stored state keeps its head; a new one has the head of the rules.
  local failed, begin = value and value.err, head
  if rule and value and not failed then begin = value:sub(1, #head) end

  -- In the ordinary case no state of other rules is stored, and nothing behind the state.
  local ordinary = rule and not failed and (begin == head or begin:sub(1, same) == head:sub(1, same))
  if ordinary and value and not goes_on then
    local pos
    state, pos = twin('unpack', rule, value, #head + 1, nil, true)
    ordinary = pos == #value + 1
  end

  if failed then
    -- An error of the server is the reply of the key that it is about, and of no other.
    reply = value
  elseif ordinary then
    -- The steps are those of `decide_any`.
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
      -- A budget that starts below full fills from the first request on.
      state = twin('first_seen', rule, nil, now_us)
      touched = state
    end
    if not remaining then remaining, full_after = twin('status', rule, state, now_us) end
    goes_on = keys[place + 1] == key and args[2 * place + 1] == text and args[2 * place + 2] == ask
    if touched and not goes_on then
      -- As in `decide_any`: no instant in a head is later than now.
      local most = (now_us - now_us % 1000) / 1000 - HEADS_SINCE_MS
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
      -- part: general.lua
    end
    local decided
    if #args ~= #keys then
      decided, reply, packed, full_after, full_is_fresh, clock, ahead, called = pcall(decide_any, value, text, ask)
    else
      -- Two keys and one pair of arguments: a debt comes before the request, and the second key notes it.
      decided, reply, packed, full_after, full_is_fresh, clock, ahead, called, charged_now =
        pcall(make('after_debt'), decide_any, keys[2], value, text, ask)
    end
    -- A state that another program has changed may fail in any way. Only its key gets the error.
    if not decided then reply, packed, called = '\4state', nil, nil end
    if called then reply = reply .. called end
  end

  -- Store a change until every budget is full: then the state says no more than a missing key.
  if packed and packed ~= value then
    local written
    if full_is_fresh and full_after <= 0 then
      written = value and try('DEL', key)
    else
      -- A state that is ahead of the caller's clock is ahead of the server's.
      local span = full_after + ahead
      local ttl = (span - span % 1000) / 1000 + 1
      if not full_is_fresh then ttl = ttl + IDLE_MS end
      if clock == GIVEN then ttl = ttl + GIVEN_MS end
      if clock == CLIENT then ttl = ttl + CLIENT_MS end
      written = try('SET', key, packed, 'PX', ttl)
    end
    -- A failed write has charged nothing: its error is the reply, also to the requests before that share the
    -- write.
    if type(written) == 'table' and written.err then
      reply, charged_now = written, nil
      for before = first, place - 1 do replies[before] = written end
    end
  end
  if charged_now then try('SET', keys[2], charged_now, 'PX', CHARGED_MS) end

  -- The reply to one key is returned alone, those to several as a list.
  if #args == 2 then return reply end
  replies = replies or {}
  replies[place] = reply
end
return replies
