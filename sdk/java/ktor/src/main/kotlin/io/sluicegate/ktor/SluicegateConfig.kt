package io.sluicegate.ktor

import io.ktor.server.application.ApplicationCall
import io.ktor.utils.io.KtorDsl
import io.sluicegate.ClientAddress
import io.sluicegate.Decision
import io.sluicegate.Limiter
import io.sluicegate.ktor.internal.AddressKey
import io.sluicegate.ktor.internal.HeaderKey
import io.sluicegate.ktor.internal.OwnKey
import io.sluicegate.ktor.internal.RequestKey

/** What a [SluicegatePlugin] limits by. It needs a [limiter], and one of [header], [address], [key] and [principal]; of these the last one wins. */
@KtorDsl
public class SluicegateConfig internal constructor() {
    /** The limiter of a policy, `gate.policy("orders")`, or of a limit in code. */
    public var limiter: Limiter? = null

    private var key: RequestKey? = null
    private var cost: suspend (ApplicationCall) -> Long = { 1 }
    private var onDeny: suspend (ApplicationCall, Decision) -> Unit = { _, _ -> }

    /**
     * Limits by a field of the header. A request with two such fields is answered with 400, as a proxy may have added the true one behind that of
     * the client.
     */
    public fun header(name: String) {
        key = HeaderKey(name)
    }

    /** Limits clients by their address, behind the proxies that are trusted. The plugins of Ktor for forwarded headers have no part in it. */
    public fun address(address: ClientAddress = ClientAddress.behind()) {
        key = AddressKey(address)
    }

    /** Limits by a key of the program's own: null or an empty text if a request has none. It is asked before a route authenticates. */
    public fun key(key: suspend (ApplicationCall) -> String?) {
        this.key = OwnKey(needsPrincipal = false, key)
    }

    /**
     * Limits by who is logged in, such as `call.principal<UserIdPrincipal>()?.name`: as [key], but after `authenticate` of the route. Requests that
     * do not pass that are not limited.
     */
    public fun principal(key: suspend (ApplicationCall) -> String?) {
        this.key = OwnKey(needsPrincipal = true, key)
    }

    /** Sets what a request costs, 1 to 2^31; it is 1 otherwise. */
    public fun cost(cost: suspend (ApplicationCall) -> Long) {
        this.cost = cost
    }

    /**
     * Answers requests that are refused. The `RateLimit` fields and `Retry-After` are set already. Where it does not respond, the answer is that of
     * the policy, or a problem.
     */
    public fun onDeny(respond: suspend (call: ApplicationCall, refusal: Decision) -> Unit) {
        onDeny = respond
    }

    internal fun limit(): RouteLimit = RouteLimit(
        checkNotNull(limiter) { "limiter: is not set; expected `limiter = gate.policy(\"…\")`" },
        checkNotNull(key) { "there is no key; expected one of `header`, `address`, `key` and `principal`" },
        cost,
        onDeny,
    )
}
