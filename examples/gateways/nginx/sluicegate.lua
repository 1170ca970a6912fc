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
-- some apps may use.

local _M = {}

local TIMEOUT_MS_DEFAULT = 1000
local IDLE_MS = 30000
-- Connections that each worker keeps.
local POOL_SIZE = 64

local function encode(words)
    local bytes = { "*" .. #words .. "\r\n" }
    for _, word in ipairs(words) do
        word = tostring(word)
        bytes[#bytes + 1] = "$" .. #word .. "\r\n" .. word .. "\r\n"
    end
    return table.concat(bytes)
end

-- Reads one reply of RESP2: a number, a string, a list or ngx.null. An error is nil and its message.
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
    return nil, rest
end

local function ask(options, words)
    local socket = ngx.socket.tcp()
    socket:settimeout(options.timeout_ms or TIMEOUT_MS_DEFAULT)
    local connected, err = socket:connect(options.host, options.port)
    if not connected then
        return nil, err
    end
    if options.password and socket:getreusedtimes() == 0 then
        socket:send(encode { "AUTH", options.password })
        local said, problem = read(socket)
        if not said then
            socket:close()
            return nil, problem
        end
    end
    local sent, reply
    sent, err = socket:send(encode(words))
    if sent then
        reply, err = read(socket)
    end
    if not reply then
        socket:close()
        return nil, err
    end
    socket:setkeepalive(IDLE_MS, POOL_SIZE)
    return reply
end

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

function _M.limit(options)
    local charge = "\n" .. options.policy .. "\t" .. tostring(options.key) .. "\n"
    if is_charged(charge) then
        local said = ngx.req.get_headers()
        return said["X-Sluicegate-Verdict"], said["X-Sluicegate-Degrade"] or said["X-Sluicegate-Divert"]
    end
    local words = { "SG.CHECK", options.policy, options.key }
    if options.app then
        words[#words + 1] = "APP"
        words[#words + 1] = options.app
    end
    mark()
    local reply, err = ask(options, words)
    local passes = reply and reply[1]
    if reply then
        remember(charge)
    end
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
        return ngx.exit(429)
    end
    ngx.log(ngx.ERR, "sluicegate: ", err or ("there is no policy " .. options.policy))
    if not options.open then
        return ngx.exit(503)
    end
end

return _M
