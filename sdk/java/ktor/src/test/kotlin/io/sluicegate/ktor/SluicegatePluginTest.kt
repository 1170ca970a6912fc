package io.sluicegate.ktor

import io.ktor.server.response.respondText
import io.ktor.server.routing.get
import io.ktor.server.routing.route
import io.ktor.server.routing.routing
import io.sluicegate.ClientAddress
import io.sluicegate.Gate
import io.sluicegate.testing.MiddlewareContract
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Test

class SluicegatePluginTest : MiddlewareContract() {
    private lateinit var server: KtorServer

    @Volatile
    private var thread = ""

    override fun serve(gate: Gate, guards: List<Guard>): Int {
        server = KtorServer {
            routing {
                for (guard in guards) {
                    route(guard.path()) {
                        install(SluicegatePlugin) {
                            limiter = gate.policy(guard.policy())
                            if (guard.header() == null) address(ClientAddress.behind(*guard.trusted().toTypedArray())) else header(guard.header())
                        }
                    }
                }
                route("/cost") {
                    install(SluicegatePlugin) {
                        limiter = gate.policy("tenant")
                        key { "cost" }
                        cost { 2 }
                    }
                }
                get("{path...}") {
                    thread = Thread.currentThread().name
                    call.respondText("hello")
                }
                for (path in guards.map { it.path() } + "/cost") {
                    get(path) {
                        thread = Thread.currentThread().name
                        call.respondText("hello")
                    }
                }
            }
        }
        return server.port
    }

    override fun end() = server.close()

    @Test
    fun a_cost_that_never_fits_has_no_retry() {
        val refused = get("/cost")
        assertEquals(429, refused.statusCode())
        assertEquals("", refused.field("Retry-After"))
    }

    @Test
    fun what_passes_goes_on_upon_a_thread_of_ktor() {
        assertEquals(200, get("/tenant", "X-Tenant", "thread").statusCode())
        assertFalse(thread.isEmpty() || thread.startsWith("sluicegate"), thread)
    }
}
