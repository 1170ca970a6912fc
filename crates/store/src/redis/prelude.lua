-- Sluicegate: decides one request per key, where the state lives. See spec/redis.md.
--
-- Every number here is an integer of at most 2^53, exact in a double, or one of Guava's doubles.
-- For integers 0 <= a <= 2^53 and b > 0 the rounded a / b lies between the same two integers as the
-- exact quotient (or on the same one), so its floor, its ceiling and a % b are exact.

local NEVER = -1
local UNITS_MAX = 9007199254740992
local DEPTH_MAX = 4503599627370496
local SPAN_MAX_US = 9007199254740991
local YEAR_2026_US = 1767225600000000

-- The least integer that is not below `x`.
local function ceil(x)
  return x + -x % 1
end

-- The same for any double: never below 0, and as it is where every double is an integer.
local function ceil_f64(x)
  if not (x > 0) then return 0 end
  return x < UNITS_MAX and x + -x % 1 or x
end

-- floor(a * b / c) and what is left, for integers a <= 2^53, b <= 2^52 and 1 <= c <= 2^52. Exact up
-- to 2^53; above that no more than a number above 2^53.
local function mul_div(a, b, c)
  local left = a % c
  local quotient, rest, low = (a - left) / c * b, 0, 0
  local bit = DEPTH_MAX
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

-- The twin of the algorithm whose code this is; nil if there is none.
local function twin_of(code)
