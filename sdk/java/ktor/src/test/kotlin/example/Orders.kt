package example

import io.ktor.server.application.Application
import io.ktor.server.cio.CIO
import io.ktor.server.engine.embeddedServer
import io.ktor.server.response.respondText
import io.ktor.server.routing.get
import io.ktor.server.routing.route
import io.ktor.server.routing.routing
import io.sluicegate.Gate
import io.sluicegate.Sluicegate
import io.sluicegate.ktor.SluicegatePlugin
import io.sluicegate.lettuce.LettucePort

fun Application.orders(gate: Gate) {
    routing {
        route("/orders") {
            install(SluicegatePlugin) {
                limiter = gate.policy("orders")
                header("X-Tenant")
            }
            get { call.respondText("ordered") }
        }
    }
}

fun main() {
    Sluicegate.direct(LettucePort.connect("redis://localhost")).app("shop").build().use { gate ->
        embeddedServer(CIO, port = 8000) { orders(gate) }.start(wait = true)
    }
}
