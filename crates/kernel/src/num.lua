-- The twin of ceil_f64 in num.rs: never below 0; from 2^53 on, where every double is an integer, `x` itself.
local function ceil_f64(x)
  if not (x > 0) then return 0 end
  return x < UNITS_MAX and x + -x % 1 or x
end
