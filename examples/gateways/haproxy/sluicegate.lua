-- Asks Sluicegate whether the present request may pass, over the protocol of Redis. Tested with HAProxy 2.6.
--
--   setenv SLUICEGATE_ADDRESS 127.0.0.1:6380       (in `global`; or unix@/run/sluicegate.sock. A server that
--                                                   requires a token wants SLUICEGATE_PASSWORD as well)
--   lua-load-per-thread /etc/haproxy/sluicegate.lua
--
-- (With `lua-load`, filters crash HAProxy 2.6 under load: github.com/haproxy/haproxy/issues/2467.)
--
--   http-request set-var(txn.sluicegate_key) src,ipmask(32,64)
--   http-request lua.sluicegate_limit site          (takes a permit, as SG.CHECK)
--   http-request lua.sluicegate_acquire connections (holds one for the time of the request, as SG.ACQUIRE)
--   filter lua.sluicegate                           (gives it back, however the request ends)
--
-- Both actions set these variables of the transaction: `sluicegate_verdict` is pass, shadow, degrade, divert,
-- refuse, or error while there is no answer; `sluicegate_tag` is the tag or the target of degrade and divert;
-- `sluicegate_retry_after` is a number of seconds if the request may pass later. The configuration does with
-- them what it wants. A permit is renewed while its request runs, for an hour at most.

local address, password = os.getenv("SLUICEGATE_ADDRESS"), os.getenv("SLUICEGATE_PASSWORD")
assert(address, "sluicegate: set SLUICEGATE_ADDRESS before lua-load-per-thread")

local TIMEOUT_S = 5
-- Attempts to release a permit, RETRY_MS apart. After them it comes back by the rule's ttl.
local TRIES_MAX = 20
local RETRY_MS = 500
-- A permit is renewed three times in its ttl, and for an hour at most.
local RENEWALS_IN_TTL = 3
local HELD_MAX_S = 3600

local function encode(words)
    local bytes = { "*" .. #words .. "\r\n" }
    for _, word in ipairs(words) do
        word = tostring(word)
        bytes[#bytes + 1] = "$" .. #word .. "\r\n" .. word .. "\r\n"
    end
    return table.concat(bytes)
end

-- Reads one reply of RESP2: a number, a string, a list or `false` for null. An error is nil and its message.
local function read(socket)
    local line, err = socket:receive("*l")
    if not line then
        return nil, err
    end
    local kind, rest = line:sub(1, 1), line:sub(2):gsub("\r$", "")
    if kind == ":" then
        return tonumber(rest)
    elseif kind == "+" then
        return rest
    elseif kind == "$" then
        local length = tonumber(rest)
        if length < 0 then
            return false
        end
        local text, problem = socket:receive(length + 2)
        return text and text:sub(1, length), problem
    elseif kind == "*" then
        local list = {}
        for place = 1, tonumber(rest) do
            local element, problem = read(socket)
            if element == nil then
                return nil, problem
            end
            list[place] = element
        end
        return list
    end
    return nil, rest
end

local function ask(words)
    local socket = core.tcp()
    socket:settimeout(TIMEOUT_S)
    local reply, err = socket:connect(address)
    if reply and password then
        socket:send(encode { "AUTH", password })
        reply, err = read(socket)
    end
    if reply then
        socket:send(encode(words))
        reply, err = read(socket)
    end
    socket:close()
    return reply, err
end

-- Sets the variables of the transaction by a reply of SG.CHECK or SG.ACQUIRE, and delays what rules delay.
local function tell(txn, policy, reply, err)
    local function set(name, value)
        if value then
            txn:set_var("txn.sluicegate_" .. name, value)
        else
            txn:unset_var("txn.sluicegate_" .. name)
        end
    end
    local passes = reply and reply[1]
    if passes ~= 1 and passes ~= -1 then
        core.Alert("sluicegate: " .. (err or ("there is no policy " .. policy)))
        return set("verdict", "error")
    end
    local retry_after_ms = passes == -1 and reply[4] or -1
    set("verdict", reply[9] or (passes == 1 and "pass" or "refuse"))
    set("tag", reply[10])
    set("retry_after", retry_after_ms >= 0 and math.max(math.ceil(retry_after_ms / 1000), 1) or nil)
    if passes == 1 and reply[6] > 0 then
        core.msleep(reply[6])
    end
end

core.register_action("sluicegate_limit", { "http-req" }, function(txn, policy)
    -- HAProxy ends an action whose client goes away, and then goes on with its rules.
    txn:set_var("txn.sluicegate_verdict", "error")
    tell(txn, policy, ask { "SG.CHECK", policy, txn:get_var("txn.sluicegate_key") or "" })
end, 1)

-- The permits that requests hold, or may hold, by id.
local held = {}

local function renew(permit, ttl_ms)
    while held[permit.id] and core.now().sec < permit.since_s + HELD_MAX_S do
        core.msleep(math.ceil(ttl_ms / RENEWALS_IN_TTL))
        if held[permit.id] then
            ask { "SG.RENEW", permit.policy, permit.key, permit.id }
        end
    end
end

local function release(permit)
    for _ = 1, TRIES_MAX do
        local reply = ask { "SG.RELEASE", permit.policy, permit.key, permit.id }
        -- By its share, a server releases what it has granted itself; Redis may hold the permit as well.
        if reply and reply[7] ~= "local" then
            return
        end
        core.msleep(RETRY_MS)
    end
    core.Alert("sluicegate: a permit of " .. permit.policy .. " comes back by its ttl")
end

core.register_action("sluicegate_acquire", { "http-req" }, function(txn, policy)
    txn:set_var("txn.sluicegate_verdict", "error")
    local id, key = txn.f:uuid(), txn:get_var("txn.sluicegate_key") or ""
    local permit = { id = id, policy = policy, key = key, since_s = core.now().sec }
    permit.before = held[txn:get_var("txn.sluicegate_permit") or ""]
    -- Before there is an answer: without one, the permit may be held.
    held[id] = permit
    txn:set_var("txn.sluicegate_permit", id)
    local reply, err = ask { "SG.ACQUIRE", policy, key, id }
    -- The key is free again when this permit, its newest, lapses.
    if reply and reply[1] == 1 and reply[5] > 0 then
        core.register_task(function() renew(permit, reply[5]) end)
    end
    tell(txn, policy, reply, err)
end, 1)

local Filter = { id = "sluicegate", flags = filter.FLT_CFG_FL_HTX }
Filter.__index = Filter

function Filter:new()
    return setmetatable({}, Filter)
end

-- HAProxy has done with the request: it was answered, refused or aborted, or its connection is upgraded. Nothing
-- waits here.
function Filter:end_analyze(txn, channel)
    local permit = not channel:is_resp() and held[txn:get_var("txn.sluicegate_permit") or ""]
    while permit do
        local of = permit
        held[of.id] = nil
        core.register_task(function() release(of) end)
        permit = of.before
    end
end

core.register_filter("sluicegate", Filter, function(made)
    return made
end)
