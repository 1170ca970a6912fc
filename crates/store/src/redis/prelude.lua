-- Sluicegate: decides one request per key, where the state lives. See spec/redis.md.
--
-- Every number here is an integer of at most 2^53, exact in a double, or one of Guava's doubles.
-- For integers 0 <= a <= 2^53 and b > 0 the rounded a / b lies between the same two integers as the
-- exact quotient (or on the same one), so its floor, its ceiling and a % b are exact.
--
-- Every function that is made and every local that a function shares costs every call, as Redis
-- runs the whole script anew: so functions are few, and constants are replaced by their numbers
-- when the script is put together.

local NEVER = -1
local UNITS_MAX = 9007199254740992
local DEPTH_MAX = 4503599627370496
local SPAN_MAX_US = 9007199254740991
-- 2^128: the doubles of Guava's algorithms are far below it, and no product of two overflows.
local LARGEST = 340282366920938463463374607431768211456
local INSTANT_MAX_US = 4503599627370496
local YEAR_2026_US = 1767225600000000

-- Verbs.
local CHECK = 1
local RESERVE = 2
local AT_MOST = 3
local PEEK = 4
local REFUND = 5
local RESET = 6
local ACQUIRE = 7
local RELEASE = 8
local RENEW = 9
local LEASE = 10
local DEBIT = 11
local RAISE = 13
-- A debit, and a request after it.
local IN_DEBT = 12
local COST_MAX = 2147483648

-- Acquire, or wait for it; wait no more.
local WAIT = 14
local LEAVE = 15

-- Clocks: the server's, a time that the caller gives instead, and the callers' own clocks.
local SERVER = 0
local GIVEN = 1
local CLIENT = 2

-- Ways to carry usage over when rules change.
local KEEP = 0
local PROPORTIONAL = 1
local FORGET = 2

-- Flags of a rule: a full budget is a new key; it hands out permits; its window is in the request. A rule hands out
-- permits if `flags % CALENDAR >= PERMITS`.
local FULL_IS_FRESH = 1
local PERMITS = 2
local CALENDAR = 4

-- The caller's answer about the rules that wrote a state: they follow, or they are lost.
local RULES = 1
local LOST = 2

-- Leases, as in crates/kernel/src/limits.rs: the longest times, in µs, and the largest numbers.
local LEASE_TERM_MAX = 2000000
local LEASE_PATIENCE_MAX = 250000
local LEASE_DEADLINE_MAX = 2375000
local LEASE_HINT_MAX = 60000000
local LEASE_HOLDERS_MAX = 64
local LEASE_MARKS_MAX = 4
local LEASE_PERMITS_MAX = 4294967295
local LEASE_USED_MAX = 1099511627775
-- The first byte of the section of leases in a value: an L, or an l if the state before it is an empty one in the
-- place of none.
local LEASE_SECTION = 76
local LEASE_SECTION_ALONE = 108
-- Ways in which leased permits of a rule come back.
local LEASED_FLOWS = 1
local LEASED_IN_STEPS = 2
-- The store's record of a holder when its message arrives.
local LEASE_KNOWN = 0
local LEASE_NEW = 1
local LEASE_VOID = 2
local LEASE_LOST = 3
local LEASE_FULL = 4

-- Requests that wait for a permit, as in crates/kernel/src/limits.rs: the time for which the tickets of a process count
-- after it last asked, in µs, and the most that one decision calls.
local TICKET_TTL = 3000000
local CALLED_MAX = 16

-- Largest part of a state of other rules in a reply, in bytes: the head that names those rules is in it.
local HEAD_MAX = 1024

-- The instant from which the head of a policy's state counts, in ms: the beginning of 2026.
local HEADS_SINCE_MS = 1767225600000
-- Time for which the charge of a debt is noted: an hour. A caller without an answer asks again within seconds.
local CHARGED_MS = 3600000
-- Time for which a budget that does not start full is kept after it is full: 30 days.
local IDLE_MS = 2592000000
-- Time for which a key outlives its budget if the caller gives the time, which may not be the server's: a day.
local GIVEN_MS = 86400000
-- Time for which a key outlives its budget on the callers' clocks, the most that these may differ: a minute.
local CLIENT_MS = 60000

-- floor(a * b / c) and the remainder, for integers a <= 2^53, b < 2^53 and 1 <= c <= 2^52. Exact up
-- to 2^53; above that it is some number above 2^53.
local function mul_div(a, b, c)
  local left = a % c
  local quotient, rest, low, bit = (a - left) / c * b, 0, 0, DEPTH_MAX
  while bit >= 1 do
    rest, low = rest * 2, low * 2
    if rest >= c then rest, low = rest - c, low + 1 end
    if b >= bit then
      b, rest = b - bit, rest + left
      if rest >= c then rest, low = rest - c, low + 1 end
    end
    bit = bit / 2
  end
  return quotient + low, rest
end

-- Makes a function that not every call needs: the twin of the algorithm whose code is `what`, or the step of
-- that name in steps.lua or lease.lua; nil if there is neither. Its body is joined of those files.
local function make(what)
