package io.sluicegate.ktor.internal

import io.ktor.server.application.ApplicationCall
import io.sluicegate.ClientAddress
import io.sluicegate.internal.Undecided

/** Where the key of a request comes from. */
internal sealed interface RequestKey {
    /** Its name in answers. */
    val source: String

    val needsPrincipal: Boolean get() = false

    suspend fun of(call: ApplicationCall): String?
}

/** A field of the header. */
internal class HeaderKey(private val name: String) : RequestKey {
    override val source: String = Undecided.header(name)

    /** Whether a request has the field twice. */
    fun isRepeated(call: ApplicationCall): Boolean = call.request.headers.getAll(name).orEmpty().size > 1

    override suspend fun of(call: ApplicationCall): String? = call.request.headers[name]
}

/** The address of a client behind trusted proxies. */
internal class AddressKey(private val address: ClientAddress) : RequestKey {
    override val source: String get() = "address"

    // The other end of the connection: `origin` is what a client may have forwarded.
    override suspend fun of(call: ApplicationCall): String =
        address.key(call.request.local.remoteAddress, call.request.headers.getAll(address.header())?.joinToString(","))
}

/** A key of the program's own. */
internal class OwnKey(override val needsPrincipal: Boolean, private val key: suspend (ApplicationCall) -> String?) : RequestKey {
    override val source: String get() = "key"

    override suspend fun of(call: ApplicationCall): String? = key(call)
}
