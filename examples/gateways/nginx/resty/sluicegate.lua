-- The interface of lua-resty-limit-traffic, with limits that hold over all nginx that ask the same Sluicegate.
--
--   access_by_lua_block {
--       local limit_req = require("resty.sluicegate").req
--       local lim = limit_req.new("site", 200, 100)
--       local delay, err = lim:incoming(ngx.var.binary_remote_addr, true)
--       if not delay then
--           return ngx.exit(err == "rejected" and 503 or 500)
--       end
--       ngx.sleep(delay)
--   }
--
-- `req`, `conn`, `count` and `traffic` have the methods and results of `resty.limit.*`. The first argument of `new`
-- is the name of the limits, 1 to 120 of `A-Za-z0-9._-`, instead of that of a shared dictionary. Limits of another kind or
-- name have budgets of their own. The numbers of a name may change: the permits in use stay.
--
-- `server { host = "127.0.0.1", port = 6380 }`, in init_by_lua, sets where Sluicegate is: these are the defaults. Other
-- options are `password`, `app`, `timeout_ms`, and `open`: without an answer, `incoming` returns nil and an error,
-- or with `open = true` a delay of 0, and the error is logged.

local sluicegate = require("sluicegate")

local _M = {}

local NAME_BYTES_MAX = 120
local PERMITS_MAX = 4294967296
-- Permits of one key that can be held at once.
local HELD_MAX = 10000
-- Decimals of a rate: one in ten million a second is one in four months.
local RATE_DECIMALS_MAX = 7
local RATE_MIN = 10 ^ -RATE_DECIMALS_MAX
-- Shortest and longest window, in seconds: a microsecond and 366 days.
local WINDOW_MIN, WINDOW_MAX = 1e-6, 31622400
-- A permit of a worker that has died comes back after it; others are renewed three times in it.
local TTL = "60s"

local OPTIONS = { host = true, port = true, password = true, app = true, timeout_ms = true, open = true }
local HOST_DEFAULT, PORT_DEFAULT = "127.0.0.1", 6380
local server = { host = HOST_DEFAULT, port = PORT_DEFAULT }

-- Sets where Sluicegate is, for all limits of this nginx.
function _M.server(options)
    local set = { host = HOST_DEFAULT, port = PORT_DEFAULT }
    for option, value in pairs(options) do
        if not OPTIONS[option] then
            error("server: unknown option `" .. tostring(option) .. "`", 2)
        end
        set[option] = value
    end
    server = set
end

local function problem_of_name(name)
    if type(name) ~= "string" or #name > NAME_BYTES_MAX or not name:find("^[%w._-]+$") then
        return "name: expected 1 to " .. NAME_BYTES_MAX .. " of `A-Za-z0-9._-`"
    end
end

local function problem_of_range(field, number, min, max)
    -- NaN is in no range.
    if not (number >= min and number <= max) then
        return field .. ": `" .. number .. "` is outside " .. min .. ".." .. max
    end
end

local function problem_of_whole(field, number, min, max)
    if not (number >= min and number <= max and number % 1 == 0) then
        return field .. ": `" .. number .. "` is not a whole number " .. min .. ".." .. max
    end
end

-- The options of a command about `key`.
local function options_of(limiter, key)
    return {
        host = server.host, port = server.port, password = server.password, app = server.app,
        timeout_ms = server.timeout_ms, policy = limiter.name, key = key, rules = limiter.rules,
    }
end

-- Returns the options of a command about `key`, or nil and the error of the key.
local function about(limiter, key)
    if key == nil or key == "" then
        return nil, key and "empty key" or "nil key"
    end
    return options_of(limiter, tostring(key))
end

-- Sends a command about `key`. Returns the reply; or nil, the error, and whether requests pass nevertheless, as there is no
-- answer.
local function ask(limiter, verb, key)
    local options, problem = about(limiter, key)
    if not options then
        return nil, problem
    end
    local words = sluicegate.with_options(options, { verb, options.policy, options.key })
    local reply, err, is_answer = sluicegate.ask(options, words)
    if not reply then
        return nil, "sluicegate: " .. tostring(err), server.open and not is_answer
    end
    return reply
end

-- Returns what `incoming` returns without an answer.
local function unanswered(err, passes)
    if not passes then
        return nil, err
    end
    ngx.log(ngx.ERR, err)
    return 0, 0
end

-- A rate as an exact fraction: 2.5 is `25/10s`.
local function rate_text(rate)
    for decimals = 0, RATE_DECIMALS_MAX do
        local whole = math.floor(rate * 10 ^ decimals + 0.5)
        local is_last = decimals == RATE_DECIMALS_MAX or rate * 10 ^ (decimals + 1) > PERMITS_MAX
        if is_last or math.abs(whole / 10 ^ decimals - rate) <= rate * 1e-9 then
            return ("%.0f/%.0fs"):format(whole, 10 ^ decimals)
        end
    end
end

-- Requests a second: those above the rate are delayed, up to `burst` of them.
local req = {}
req.__index = req

function req.new(name, rate, burst)
    assert(rate > 0 and burst >= 0)
    local problem = problem_of_name(name) or problem_of_range("rate", rate, RATE_MIN, PERMITS_MAX)
        or problem_of_whole("burst", burst, 0, PERMITS_MAX)
    if problem then
        return nil, problem
    end
    return setmetatable({ name = "req." .. name, burst = burst }, req):set_rate(rate)
end

local function set_req(self, rate, burst)
    local problem = problem_of_range("rate", rate, RATE_MIN, PERMITS_MAX) or problem_of_whole("burst", burst, 0, PERMITS_MAX)
    assert(not problem, problem)
    self.rate, self.burst = rate, burst
    self.rules = ('[{"leaky_bucket":{"rate":"%s","burst":%.0f}}]'):format(rate_text(rate), burst)
    return self
end

function req:set_rate(rate)
    return set_req(self, rate, self.burst)
end

function req:set_burst(burst)
    return set_req(self, self.rate, burst)
end

-- Returns the delay in seconds, and by how many requests the key is above its rate.
function req:incoming(key, commit)
    local reply, err, passes = ask(self, commit and "SG.CHECK" or "SG.PEEK", key)
    if not reply then
        return unanswered(err, passes)
    end
    if reply[1] ~= 1 then
        return nil, "rejected"
    end
    local delay = reply[6] / 1000
    return delay, delay * self.rate
end

function req:uncommit(key)
    local reply, err = ask(self, "SG.REFUND", key)
    if not reply then
        return nil, err
    end
    return true
end

-- Requests that run at once: those above `max` are delayed, up to `burst` of them.
local conn = {}
conn.__index = conn

-- Permits of requests by number, which sluicegate.lua holds: one that it no longer does is forgotten here.
local permits = setmetatable({}, { __mode = "v" })

local function set_conn(self, max, burst)
    local problem = problem_of_whole("max", max, 1, HELD_MAX) or problem_of_whole("burst", burst, 0, HELD_MAX - max)
    assert(not problem, problem)
    self.max, self.burst = max, burst
    self.rules = ('[{"concurrency":{"limit":%.0f,"ttl":"%s"}}]'):format(max + burst, TTL)
    return self
end

function conn.new(name, max, burst, default_conn_delay)
    assert(max > 0 and burst >= 0 and default_conn_delay > 0)
    local problem = problem_of_name(name) or problem_of_whole("max", max, 1, HELD_MAX)
        or problem_of_whole("burst", burst, 0, HELD_MAX - max)
    if problem then
        return nil, problem
    end
    local self = setmetatable({ name = "conn." .. name, unit_delay = default_conn_delay, committed = false }, conn)
    return set_conn(self, max, burst)
end

function conn:set_conn(max)
    return set_conn(self, max, self.burst)
end

function conn:set_burst(burst)
    return set_conn(self, self.max, burst)
end

-- The numbers of this request's permits. The variable outlives internal redirects, where it is declared.
local function numbers_of_request()
    return ngx.var.sluicegate_permits or ngx.ctx.sluicegate_permits or ""
end

local function remember(permit)
    local numbers = numbers_of_request() .. " " .. permit.number
    permits[permit.number] = permit
    -- The assignment fails where the variable is not declared.
    if not pcall(function() ngx.var.sluicegate_permits = numbers end) then
        ngx.ctx.sluicegate_permits = numbers
    end
end

-- The permit of this request for `key`, if it has one.
local function permit_of(self, key)
    for number in numbers_of_request():gmatch("%d+") do
        local permit = permits[tonumber(number)]
        local of = permit and permit.options
        if of and of.policy == self.name and of.key == tostring(key) then
            return permit
        end
    end
end

local function take_permit(self, key)
    local permit = permit_of(self, key)
    if permit then
        permits[permit.number] = nil
    end
    return permit
end

local function delay_of(self, running)
    if running > self.max then
        return self.unit_delay * math.floor((running - 1) / self.max), running
    end
    return 0, running
end

-- Returns the delay in seconds, and how many requests run with this one. A request holds one permit of a key, also if
-- it asks again; after an internal redirect, if $sluicegate_permits is declared as limit_conn_lua.conf does.
function conn:incoming(key, commit)
    self.committed = false
    local options, problem = about(self, key)
    if not options then
        return nil, problem
    end
    local permit = permit_of(self, key)
    if not permit and not commit then
        local reply, err, passes = ask(self, "SG.PEEK", key)
        if not reply then
            return unanswered(err, passes)
        end
        local running = reply[2] - reply[3] + 1
        if running > reply[2] then
            return nil, "rejected"
        end
        return delay_of(self, running)
    end
    if not permit then
        permit = sluicegate.new_permit(options)
        permit.id = ngx.var.request_id .. "." .. permit.number
        -- Before there is an answer: a client that aborts ends this function there.
        remember(permit)
        local reply, err, is_answer = sluicegate.hold(permit)
        if not reply and not is_answer then
            -- The permit may be held.
            sluicegate.give_back(permit)
        end
        if not reply or reply[1] ~= 1 then
            permits[permit.number] = nil
            if reply then
                return nil, "rejected"
            end
            return unanswered("sluicegate: " .. tostring(err), server.open and not is_answer)
        end
        permit.running = reply[2] - reply[3]
    end
    self.committed = commit or false
    return delay_of(self, permit.running)
end

function conn:is_committed()
    return self.committed
end

-- Gives the permit of this request back, in the log phase, and adapts the delay to the time that the request took. Returns
-- how many requests ran when this one came, without it: the answer comes too late.
function conn:leaving(key, req_latency)
    assert(key)
    local permit = take_permit(self, key)
    if permit then
        sluicegate.give_back(permit)
    end
    if req_latency then
        self.unit_delay = (req_latency + self.unit_delay) / 2
    end
    return permit and permit.running - 1 or 0
end

-- Gives the permit of this request back at once. Returns how many requests run.
function conn:uncommit(key)
    assert(key)
    local permit = take_permit(self, key)
    self.committed = false
    if not permit then
        return nil, "not found"
    end
    local reply, err = sluicegate.give_back_now(permit)
    if not reply then
        return nil, "sluicegate: " .. tostring(err)
    end
    return reply[2] - reply[3]
end

-- Requests in a window, which begins with the first one of a key.
local count = {}
count.__index = count

function count.new(name, limit, window)
    assert(limit > 0 and window > 0)
    local problem = problem_of_name(name) or problem_of_whole("count", limit, 1, PERMITS_MAX)
        or problem_of_range("window", window, WINDOW_MIN, WINDOW_MAX)
    if problem then
        return nil, problem
    end
    local rules = '[{"fixed_window":{"limit":%.0f,"window":"%.0fus","align":"first"}}]'
    return setmetatable({ name = "count." .. name, rules = rules:format(limit, window * 1e6) }, count)
end

-- Returns 0, and how many requests may still come in the window.
function count:incoming(key, commit)
    local reply, err, passes = ask(self, commit and "SG.CHECK" or "SG.PEEK", key)
    if not reply then
        return unanswered(err, passes)
    end
    if reply[1] ~= 1 then
        return nil, "rejected"
    end
    return 0, commit and reply[3] or reply[3] - 1
end

function count:uncommit(key)
    assert(key)
    local reply, err = ask(self, "SG.REFUND", key)
    if not reply then
        return nil, err
    end
    return reply[3]
end

local traffic = {}

-- Returns the longest delay of all limiters. If one refuses, none is charged: all but the last are asked without a
-- charge first, so only a request that others overtake meanwhile is charged and given back.
function traffic.combine(limiters, keys, states)
    local last = #limiters
    for place = 1, last - 1 do
        local delay, err = limiters[place]:incoming(keys[place], false)
        if not delay then
            return nil, err
        end
    end
    local longest, charged = 0, {}
    for step = 1, last do
        -- The last one first: it was not asked yet.
        local place = step == 1 and last or step - 1
        local delay, state = limiters[place]:incoming(keys[place], true)
        if not delay then
            for _, earlier in ipairs(charged) do
                limiters[earlier]:uncommit(keys[earlier])
            end
            return nil, state
        end
        charged[step] = place
        longest = math.max(longest, delay)
        if states then
            states[place] = state
        end
    end
    return longest
end

_M.req, _M.conn, _M.count, _M.traffic = req, conn, count, traffic

return _M
