package io.sluicegate.ktor

import io.ktor.server.application.Application
import io.ktor.server.response.respondText
import io.ktor.server.routing.get
import io.ktor.server.routing.route
import io.ktor.server.routing.routing
import io.sluicegate.Decision
import io.sluicegate.DirectGate
import io.sluicegate.Gate
import io.sluicegate.Limit
import io.sluicegate.Mode
import io.sluicegate.Observer
import io.sluicegate.OnStoreFailure
import io.sluicegate.Sluicegate
import io.sluicegate.SluicegateException
import io.sluicegate.http.HttpGate
import io.sluicegate.lettuce.LettucePort
import io.sluicegate.testing.Records
import io.sluicegate.testing.TestRedis
import io.sluicegate.testing.TestServer
import java.net.URI
import java.time.Duration
import java.util.TreeMap
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Test

/** Applications whose requests a Redis or a server decides. */
class DecidersTest {
    /** Counts the modes of decisions. */
    private class Modes : Observer {
        private val counts = TreeMap<String, Int>()

        @Synchronized
        fun counted(): Map<String, Int> = TreeMap(counts)

        @Synchronized
        override fun decided(verb: String, decision: Decision, nanos: Long) {
            // Redis refused what is remembered.
            counts.merge((if (decision.mode() == Mode.REMEMBERED) Mode.STORE else decision.mode()).name, 1, Int::plus)
        }

        @Synchronized
        override fun failed(policy: String, verb: String, failure: SluicegateException, nanos: Long) {
            counts.merge(failure.code().name, 1, Int::plus)
        }
    }

    @Test
    fun requests_at_once_use_up_a_limit_in_redis() {
        TestRedis.start().use { redis ->
            publish(redis)
            direct(redis, Duration.ofSeconds(10)).use { gate ->
                KtorServer { orders(gate) }.use { server -> assertUsedUp(server) }
            }
        }
    }

    @Test
    fun requests_at_once_use_up_a_limit_of_a_server() {
        TestServer.start(POLICIES, null).use { decider ->
            HttpGate.remote(URI.create(decider.http())).timeout(Duration.ofSeconds(20)).build().use { gate ->
                KtorServer { orders(gate) }.use { server -> assertUsedUp(server) }
            }
        }
    }

    private fun assertUsedUp(server: KtorServer) {
        assertEquals(mapOf(200 to 20, 429 to 30), server.atOnce(50, "/orders", "X-Tenant", "a"))
        val refused = server.get("/orders", "X-Tenant", "a")
        assertEquals("\"fixed_window\";q=20;w=31622400", refused.field("RateLimit-Policy"))
        assertEquals("\"fixed_window\";r=0;t=${refused.field("Retry-After")}", refused.field("RateLimit"))
    }

    @Test
    fun while_redis_is_away_a_share_or_the_policy_decides_and_then_redis_again() {
        TestRedis.start().use { redis ->
            publish(redis)
            direct(redis, Duration.ofSeconds(1)).use { gate ->
                val modes = Modes()
                KtorServer { orders(gate, modes) }.use { server ->
                    assertEquals(mapOf(200 to 5), server.atOnce(5, "/orders", "X-Tenant", "a"))
                    assertEquals(200, server.get("/strict", "X-Tenant", "a").statusCode())
                    assertEquals(mapOf("STORE" to 5), modes.counted())
                    redis.stop()
                    // The share of one program is the limit, of which 5 are used.
                    assertEquals(mapOf(200 to 15, 429 to 35), server.atOnce(50, "/orders", "X-Tenant", "a"))
                    assertEquals("\"fixed_window\";r=0", server.get("/orders", "X-Tenant", "a").field("RateLimit").substringBeforeLast(";"))
                    val denied = server.get("/strict", "X-Tenant", "a")
                    assertEquals(503, denied.statusCode())
                    assertEquals("1", denied.field("Retry-After"))
                    assertEquals("", denied.field("RateLimit"))
                    redis.restart()
                    publish(redis)
                    TestRedis.await("Redis decides again") { server.get("/strict", "X-Tenant", "b").statusCode() == 200 }
                    assertEquals(200, server.get("/orders", "X-Tenant", "b").statusCode())
                    assertEquals(6, modes.counted()["STORE"])
                }
            }
        }
    }

    /** The first 50 requests of a process: a program of its own, as a process is cold once. */
    @Test
    fun the_first_requests_of_a_process_admit_the_limit() {
        repeat(if (TestRedis.isLong()) 20 else 1) {
            TestRedis.start().use { redis ->
                publish(redis)
                val classPath = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"))
                val process = ProcessBuilder(System.getProperty("java.home") + "/bin/java", "-Xmx256m", "-cp", classPath, Cold::class.java.name, redis.uri())
                    .redirectError(ProcessBuilder.Redirect.DISCARD).start()
                try {
                    val output = process.inputStream.readAllBytes().decodeToString().trim()
                    println("cold Ktor: $output")
                    assertEquals("{200=20, 429=30} {STORE=50}", output)
                } finally {
                    process.destroyForcibly()
                }
            }
        }
    }

    /** Serves with a limit of 20, asks 50 times at once, and prints how many had which status, and which mode. */
    object Cold {
        @JvmStatic
        fun main(args: Array<String>) {
            val modes = Modes()
            Sluicegate.direct(LettucePort.connect(args[0])).build().use { gate ->
                KtorServer { orders(gate, modes) }.use { server -> println("${server.atOnce(50, "/orders", "X-Tenant", "a")} ${modes.counted()}") }
            }
        }
    }

    private companion object {
        const val POLICIES = """{"policies":[{"name":"fixed-20","rules":[{"fixed_window":{"limit":20,"window":"366d"}}]}]}"""

        fun direct(redis: TestRedis, deadline: Duration): DirectGate = Sluicegate.direct(LettucePort.connect(redis.uri())).deadline(deadline).build()

        fun publish(redis: TestRedis) {
            redis.command("HSET", "sg:{policies}", "#format", "1", "#revision", "1", "fixed-20", Records.of("fixed-20"))
        }

        fun Application.orders(gate: Gate, vararg observers: Observer) = routing {
            route("/orders") {
                install(SluicegatePlugin) {
                    limiter = gate.policy("fixed-20").observedBy(*observers)
                    header("X-Tenant")
                }
                get { call.respondText("hello") }
            }
            if (gate is DirectGate) {
                route("/strict") {
                    install(SluicegatePlugin) {
                        limiter = gate.limit("strict", Limit.fixedWindow(100, Duration.ofHours(1)).onStoreFailure(OnStoreFailure.DENY))
                        header("X-Tenant")
                    }
                    get { call.respondText("hello") }
                }
            }
        }
    }
}
