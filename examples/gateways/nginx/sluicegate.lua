-- Asks Sluicegate whether the present request may pass, over the protocol of Redis.
--
--   access_by_lua_block {
--       local sluicegate = require("sluicegate")
--       sluicegate.limit { host = "127.0.0.1", port = 6380, policy = "site", key = sluicegate.client() }
--   }
--
-- A request over the limit ends with 429 and Retry-After. One that passes carries its verdict to the
-- application: X-Sluicegate-Verdict (pass, shadow, degrade, divert), and X-Sluicegate-Degrade or
-- X-Sluicegate-Divert with the tag or the target; `limit` returns the verdict and the tag or target, to act
-- on them here. The response of a policy that degrades with one is served without its headers.
--
-- nginx runs the access phase again for a request that it redirects internally (`index`, `try_files`,
-- `error_page`). Declare $sluicegate_charged as lua.conf does, and such a request is charged once; without
-- the variable it is charged each time.
--
-- Without an answer a request ends with 503, or passes if `open` is true. `timeout_ms` must be longer than
-- the policy may delay a request; `password` is for servers that require one, `app` for policies that only
-- some apps may use. `deny` is the status of a refusal, 429 if you set none (`limit_req` uses 503).
--
-- A policy with a `concurrency` rule says how many requests run at once, as `limit_conn` does. `acquire` takes
-- a permit and `release` gives it back, however the request ends:
--
--   access_by_lua_block { require("sluicegate").acquire { host = "127.0.0.1", port = 6380, policy = "jobs", key = "" } }
--   log_by_lua_block { require("sluicegate").release() }
--
-- Both need $sluicegate_permits, declared as limit_conn_lua.conf does. `release` belongs to the server, so that
-- it runs in each location to which nginx redirects a request. If the rule has a `queue`, a request waits for a
-- permit up to `max_wait_ms`, beside `timeout_ms`. A permit is renewed while its request runs, for an hour at
-- most; that of a worker that dies comes back after the rule's `ttl`.
--
-- `rules` are limits of your own in place of a policy's: a list of rules in JSON, such as
-- `[{"leaky_bucket":{"rate":"2/s","burst":3}}]`. Then `policy` is the name of these limits. resty/sluicegate.lua
-- has the interface of lua-resty-limit-traffic over it.

local _M = {}

local TIMEOUT_MS_DEFAULT = 1000
local IDLE_MS = 30000
-- Connections that each worker keeps.
local POOL_SIZE = 64
-- Permits of a worker that are yet to be released. One beyond them comes back by its ttl, as does one that is not
-- released by TRIES_MAX attempts, RETRY_S apart.
local RELEASES_MAX = 10000
local TRIES_MAX = 20
local RETRY_S = 0.5
-- Refusals of a worker that are released because the store was late. Further ones come back by their ttl, should they be
-- held: a store that is late with thousands has no time for as many releases.
local LATE_MAX = 100
-- Commands that are sent together.
local AT_ONCE_MAX = 100
-- A permit is renewed three times in its ttl, and for an hour at most: were there no log_by_lua, it would never
-- come back.
local RENEWALS_EVERY_S = 1
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

-- Reads one reply of RESP2: a number, a string, a list or ngx.null. An error is nil, its message, and whether the server
-- sent it.
local function read(socket)
    local line, err = socket:receive("*l")
    if not line then
        return nil, err
    end
    local kind, rest = line:sub(1, 1), line:sub(2)
    if kind == ":" then
        return tonumber(rest)
    elseif kind == "+" then
        return rest
    elseif kind == "$" then
        local length = tonumber(rest)
        if length < 0 then
            return ngx.null
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
    return nil, rest, kind == "-"
end

-- Returns whether an error of the server says that the request took no effect, and never will: it need not be sent again.
local function is_final(err)
    local word = err:match("^%S+")
    return (word == "NOTCHARGED" or word == "NOAUTH" or word == "NOPERM" or word == "WRONGPASS")
        and not err:find("^NOTCHARGED store:")
end

-- Opens or reuses a connection. `wait_ms` is how long the server may delay an answer.
local function connect(options, wait_ms)
    local socket = ngx.socket.tcp()
    socket:settimeout((options.timeout_ms or TIMEOUT_MS_DEFAULT) + (wait_ms or 0))
    -- A connection belongs to its password: another one is another app.
    local pool = { pool = table.concat({ options.host, options.port or "", ngx.md5(options.password or "") }, ":") }
    local connected, err
    if options.port then
        connected, err = socket:connect(options.host, options.port, pool)
    else
        connected, err = socket:connect(options.host, pool)
    end
    if not connected then
        return nil, err
    end
    if options.password and socket:getreusedtimes() == 0 then
        socket:send(encode { "AUTH", options.password })
        local said, problem, is_answer = read(socket)
        if not said then
            socket:close()
            return nil, problem, is_answer
        end
    end
    return socket
end

-- Sends one command. Returns the reply; or nil, the error, and whether the server sent it.
local function ask(options, words, wait_ms)
    local socket, err, is_answer = connect(options, wait_ms)
    if not socket then
        return nil, err, is_answer
    end
    local sent, reply
    sent, err = socket:send(encode(words))
    if sent then
        reply, err, is_answer = read(socket)
    end
    if reply or is_answer then
        socket:setkeepalive(IDLE_MS, POOL_SIZE)
    else
        socket:close()
    end
    return reply, err, is_answer
end
_M.ask = ask

-- The client's address as a key. An IPv6 address becomes its network of 64 bits, as a client can use any
-- address in it; an IPv4-mapped one becomes the IPv4 address.
function _M.client()
    local bytes = ngx.var.binary_remote_addr
    if #bytes == 4 then
        return ngx.var.remote_addr
    end
    if bytes:sub(1, 12) == ("\0"):rep(10) .. "\255\255" then
        return table.concat({ bytes:byte(13, 16) }, ".")
    end
    return ("%02x%02x:%02x%02x:%02x%02x:%02x%02x::/64"):format(bytes:byte(1, 8))
end

-- Sets the headers for the application, and removes those that the client has sent.
local function mark(verdict, what)
    ngx.req.set_header("X-Sluicegate-Verdict", verdict)
    ngx.req.set_header("X-Sluicegate-Degrade", verdict == "degrade" and what or nil)
    ngx.req.set_header("X-Sluicegate-Divert", verdict == "divert" and what or nil)
    return verdict, what
end

-- Returns whether this request was charged for this key before an internal redirect. ngx.ctx does not
-- outlive such a redirect, and ngx.req.is_internal() is also true for requests that were never checked,
-- those of a location that only try_files or error_page lead to.
local function is_charged(charge)
    local charged = ngx.var.sluicegate_charged
    return charged ~= nil and charged:find(charge, 1, true) ~= nil
end

local function remember(charge)
    -- The assignment fails where the variable is not declared.
    pcall(function()
        ngx.var.sluicegate_charged = (ngx.var.sluicegate_charged or "") .. charge
    end)
end

-- The verdict on a request, and its tag or target, from before an internal redirect.
local function said_before()
    local said = ngx.req.get_headers()
    return said["X-Sluicegate-Verdict"], said["X-Sluicegate-Degrade"] or said["X-Sluicegate-Divert"]
end

-- Does what a reply says: marks the request, delays it, or ends it.
local function obey(options, reply, err)
    local passes = reply and reply[1]
    if passes == 1 then
        -- A request that rules delay waits here.
        if reply[6] > 0 then
            ngx.sleep(reply[6] / 1000)
        end
        return mark(reply[9] or "pass")
    end
    -- Over the limit and not just refused: a response with its status, a tag, or a target.
    local over, what, status = reply and reply[9], reply and reply[10], reply and reply[11]
    if over and type(status) == "number" then
        ngx.status = status
        ngx.print(what)
        return ngx.exit(status)
    end
    if over then
        return mark(over, what)
    end
    if passes == -1 then
        local retry_after_ms = reply[4]
        if retry_after_ms >= 0 then
            ngx.header["Retry-After"] = math.max(math.ceil(retry_after_ms / 1000), 1)
        end
        return ngx.exit(options.deny or 429)
    end
    ngx.log(ngx.ERR, "sluicegate: ", err or ("there is no policy " .. options.policy))
    if not options.open then
        return ngx.exit(503)
    end
end

-- Adds the options that all commands take.
local function with_options(options, words)
    if options.app then
        words[#words + 1] = "APP"
        words[#words + 1] = options.app
    end
    if options.rules then
        words[#words + 1] = "RULES"
        words[#words + 1] = options.rules
    end
    return words
end
_M.with_options = with_options

function _M.limit(options)
    local charge = "\n" .. options.policy .. "\t" .. tostring(options.key) .. "\n"
    if is_charged(charge) then
        return said_before()
    end
    mark()
    local reply, err = ask(options, with_options(options, { "SG.CHECK", options.policy, options.key }))
    if reply then
        remember(charge)
    end
    return obey(options, reply, err)
end

-- Permits that requests of this worker hold, or may hold, by number. $sluicegate_permits has the numbers of a
-- request: a client writes none of them.
local held, last_number = {}, 0
-- Permits to be released, those to be released once more, and whether the two timers of this worker run.
local releases, retries, is_releasing, is_renewing = {}, {}, false, false

-- Returns whether the server has done what it was asked about a permit, or never will. What it decided without its store,
-- the store may not know.
local function is_done(reply, err)
    if not reply then
        return is_final(err)
    end
    return reply[1] == 0 or reply[8] == "store"
end

-- Sends `verb` for the first of `permits` and those of the same server, AT_ONCE_MAX at most. Returns those that are
-- not done, the others, and whether the server answers.
local function send_together(verb, permits)
    local first, batch, commands, others = permits[1].options, {}, {}, {}
    for _, permit in ipairs(permits) do
        local of = permit.options
        if #batch < AT_ONCE_MAX and of.host == first.host and of.port == first.port and of.password == first.password then
            batch[#batch + 1] = permit
            commands[#batch] = encode(with_options(of, { verb, of.policy, of.key, permit.id }))
        else
            others[#others + 1] = permit
        end
    end
    local socket, err, is_answer = connect(first)
    if not socket then
        -- A wrong token is one for all of them.
        return is_answer and is_final(err) and {} or batch, others, is_answer
    end
    local undone, goes_on = {}, socket:send(commands)
    for _, permit in ipairs(batch) do
        local reply
        if goes_on then
            reply, err, is_answer = read(socket)
            goes_on = reply or is_answer
        end
        if not goes_on or not is_done(reply, err) then
            undone[#undone + 1] = permit
        end
    end
    if goes_on then
        socket:setkeepalive(IDLE_MS, POOL_SIZE)
    else
        socket:close()
    end
    return undone, others, goes_on
end

-- Releases what requests have left, in one timer of the worker: a request that has ended cannot use sockets. What is
-- released once more holds up nothing that is new.
local function release_all()
    while #releases > 0 or #retries > 0 do
        if #releases == 0 then
            ngx.sleep(RETRY_S)
            for _, permit in ipairs(retries) do
                releases[#releases + 1] = permit
            end
            retries = {}
        end
        local list = releases
        releases = {}
        local undone, others, answers = send_together("SG.RELEASE", list)
        for _, permit in ipairs(others) do
            releases[#releases + 1] = permit
        end
        for _, permit in ipairs(undone) do
            permit.tries = (permit.tries or 0) + 1
            if permit.tries < TRIES_MAX then
                retries[#retries + 1] = permit
            else
                ngx.log(ngx.ERR, "sluicegate: a permit of ", permit.options.policy, " comes back by its ttl")
            end
        end
        if not answers then
            ngx.sleep(RETRY_S)
        end
    end
    is_releasing = false
end

-- Renews each second the permits that are due, until none is held. A worker that shuts down ends after it.
local function renew_all()
    while next(held) do
        ngx.sleep(RENEWALS_EVERY_S)
        local now, due = ngx.now(), {}
        for number, permit in pairs(held) do
            if now >= permit.since_s + HELD_MAX_S then
                held[number] = nil
            elseif permit.renew_at_s and now >= permit.renew_at_s then
                permit.renew_at_s = now + permit.ttl_s / RENEWALS_IN_TTL
                due[#due + 1] = permit
            end
        end
        while #due > 0 do
            local _
            _, due = send_together("SG.RENEW", due)
        end
    end
    is_renewing = false
end

-- The permit of this request for this policy and key, if it has one.
local function permit_of(options)
    for number in (ngx.var.sluicegate_permits or ""):gmatch("%d+") do
        local permit = held[tonumber(number)]
        local of = permit and permit.options
        if of and of.policy == options.policy and of.key == options.key then
            return permit
        end
    end
end

-- Numbers a permit that is called `id`.
local function new_permit(options, id)
    last_number = last_number + 1
    return { number = last_number, id = id, options = options, since_s = ngx.now() }
end

local function release_soon()
    if (#releases > 0 or #retries > 0) and not is_releasing then
        is_releasing = ngx.timer.at(0, release_all) or false
    end
end

-- Has a permit released soon, in any phase.
local function give_back(permit)
    held[permit.number] = nil
    if #releases + #retries < RELEASES_MAX then
        releases[#releases + 1] = permit
    else
        ngx.log(ngx.ERR, "sluicegate: too many releases wait: a permit of ", permit.options.policy, " comes back by its ttl")
    end
    release_soon()
end

-- Asks for a permit, which is renewed until it is given back. Returns the reply; or nil, the error, and whether the server
-- sent it: without an answer, the permit may be held.
local function hold(permit)
    local options, number = permit.options, permit.number
    local words = with_options(options, { "SG.ACQUIRE", options.policy, options.key, permit.id })
    if options.max_wait_ms then
        words[#words + 1] = "MAXWAIT"
        words[#words + 1] = options.max_wait_ms
    end
    held[number] = permit
    local reply, err, is_answer = ask(options, words, options.max_wait_ms)
    local is_held = reply and reply[1] == 1 and not reply[9]
    if is_answer and is_final(err) or reply and not is_held and is_done(reply) then
        -- Refused, or passed in shadow.
        held[number] = nil
    elseif reply and not is_held then
        held[number] = nil
        -- The store was late: it may have granted the permit nevertheless.
        if reply[8] == "shed" and #retries < LATE_MAX then
            retries[#retries + 1] = permit
            release_soon()
        end
    elseif reply and reply[5] > 0 then
        -- The key is free again when this permit, its newest, lapses.
        permit.ttl_s = reply[5] / 1000
        permit.renew_at_s = ngx.now() + permit.ttl_s / RENEWALS_IN_TTL
    end
    if not is_renewing then
        is_renewing = ngx.timer.at(0, renew_all) or false
    end
    return reply, err, is_answer
end

-- Releases a permit at once, where sockets work. Returns the reply, or nil and the error.
local function give_back_now(permit)
    local options = permit.options
    held[permit.number] = nil
    local reply, err = ask(options, with_options(options, { "SG.RELEASE", options.policy, options.key, permit.id }))
    if not is_done(reply, err) then
        give_back(permit)
    end
    return reply, err
end

-- For permits of which the caller keeps account: see resty/sluicegate.lua.
_M.new_permit, _M.hold, _M.give_back, _M.give_back_now = new_permit, hold, give_back, give_back_now

-- Takes a permit in the access phase, for `release` to give back. It does with a request over the limit what
-- `limit` does, and returns the same.
function _M.acquire(options)
    if permit_of(options) then
        return said_before()
    end
    mark()
    local permit = new_permit(options, ngx.var.request_id)
    -- Before there is an answer: without one, the permit may be held. The assignment fails where the variable
    -- is not declared.
    ngx.var.sluicegate_permits = (ngx.var.sluicegate_permits or "") .. " " .. permit.number
    return obey(options, hold(permit))
end

-- Gives back the permits of the request, in the log phase. The client does not wait for it.
function _M.release()
    for number in (ngx.var.sluicegate_permits or ""):gmatch("%d+") do
        local permit = held[tonumber(number)]
        if permit then
            give_back(permit)
        end
    end
    release_soon()
end

return _M
