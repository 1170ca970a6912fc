package io.sluicegate.ktor

import io.ktor.http.ContentType
import io.ktor.http.HttpStatusCode
import io.ktor.http.content.TextContent
import io.ktor.server.application.Application
import io.ktor.server.application.ApplicationCallPipeline
import io.ktor.server.application.DuplicatePluginException
import io.ktor.server.application.createApplicationPlugin
import io.ktor.server.application.hooks.ResponseBodyReadyForSend
import io.ktor.server.application.install
import io.ktor.server.auth.Authentication
import io.ktor.server.auth.UserIdPrincipal
import io.ktor.server.auth.authenticate
import io.ktor.server.auth.basic
import io.ktor.server.auth.principal
import io.ktor.server.request.receiveText
import io.ktor.server.response.respondText
import io.ktor.server.routing.get
import io.ktor.server.routing.post
import io.ktor.server.routing.route
import io.ktor.server.routing.routing
import io.sluicegate.Call
import io.sluicegate.Decision
import io.sluicegate.Limit
import io.sluicegate.Limiter
import io.sluicegate.Transport
import io.sluicegate.http.HttpGate
import io.sluicegate.test.TestGate
import io.sluicegate.testing.TestServer
import java.net.URI
import java.time.Duration
import java.util.Base64
import java.util.concurrent.CancellationException
import java.util.concurrent.CompletableFuture
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicInteger
import kotlinx.coroutines.Job
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.job
import org.junit.jupiter.api.AfterEach
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** What only a plugin of Ktor has, with limits in memory whose clock stands. */
class RoutesTest {
    private val gate = TestGate()

    private fun hourly(name: String, limit: Long): Limiter = gate.limit(name, Limit.fixedWindow(limit, Duration.ofHours(1)))

    @AfterEach
    fun close() = gate.close()

    @Test
    fun a_plugin_of_the_application_limits_all_its_requests() = served({
        install(SluicegatePlugin) {
            limiter = hourly("all", 2)
            address()
        }
        routing { get("/a") { call.respondText("hello") } }
    }) { server ->
        assertEquals(200, server.get("/a").statusCode())
        assertEquals(404, server.get("/none").statusCode())
        assertEquals(429, server.get("/a").statusCode())
    }

    @Test
    fun two_plugins_on_one_route_both_charge_and_both_have_fields() = served({
        routing {
            route("/orders") {
                install(SluicegatePlugin("by address")) {
                    limiter = hourly("address", 3)
                    address()
                }
                install(SluicegatePlugin) {
                    limiter = hourly("tenant", 1)
                    header("X-Tenant")
                }
                get { call.respondText("hello") }
            }
        }
    }) { server ->
        val first = server.get("/orders", "X-Tenant", "a")
        assertEquals("200 hello", "${first.statusCode()} ${first.body()}")
        assertEquals("\"limit\";r=2;t=3960,\"limit\";r=0;t=3960", first.field("RateLimit"))
        assertEquals("\"limit\";q=3;w=3600,\"limit\";q=1;w=3600", first.field("RateLimit-Policy"))
        assertEquals(429, server.get("/orders", "X-Tenant", "a").statusCode())
        assertEquals(200, server.get("/orders", "X-Tenant", "b").statusCode())
        val byAddress = server.get("/orders", "X-Tenant", "c")
        assertEquals(429, byAddress.statusCode())
        assertEquals("\"limit\";r=0;t=3960", byAddress.field("RateLimit"))
        assertEquals("3960", byAddress.field("Retry-After"))
    }

    @Test
    fun a_request_has_to_pass_the_limits_of_all_routes_that_it_is_under() = served({
        routing {
            install(SluicegatePlugin) {
                limiter = hourly("all", 3)
                key { "all" }
            }
            route("/orders/{id}") {
                install(SluicegatePlugin) {
                    limiter = hourly("orders", 1)
                    key { call -> call.parameters["id"] }
                }
                get { call.respondText("order ${call.parameters["id"]}") }
            }
            get("/free") { call.respondText("hello") }
        }
    }) { server ->
        assertEquals("order 7", server.get("/orders/7").body())
        assertEquals(429, server.get("/orders/%37").statusCode())
        assertEquals("order 8", server.get("/orders/8").body())
        assertEquals(429, server.get("/free").statusCode())
    }

    @Test
    fun mistakes_are_refused_at_the_start() {
        fun mistake(module: Application.() -> Unit): String? = assertThrows(Exception::class.java) { KtorServer(module).close() }.message
        assertEquals("limiter: is not set; expected `limiter = gate.policy(\"…\")`", mistake { install(SluicegatePlugin) { address() } })
        assertEquals("there is no key; expected one of `header`, `address`, `key` and `principal`",
            mistake { install(SluicegatePlugin) { limiter = hourly("none", 1) } })
        val twice = mistake {
            install(SluicegatePlugin) { limiter = hourly("all", 1); address() }
            routing { route("/a") { install(SluicegatePlugin) { limiter = hourly("a", 1); address() } } }
        }
        assertTrue(twice!!.startsWith("Installing RouteScopedPlugin to application and route is not supported"), twice)
    }

    @Test
    fun who_is_logged_in_is_limited_after_the_login_and_clients_before_it() = served({
        install(Authentication) { basic { validate { given -> if (given.password == "secret") UserIdPrincipal(given.name) else null } } }
        routing {
            authenticate {
                route("/users") {
                    install(SluicegatePlugin) {
                        limiter = hourly("users", 1)
                        principal { call -> call.principal<UserIdPrincipal>()?.name }
                    }
                    get { call.respondText("hello") }
                }
                route("/clients") {
                    install(SluicegatePlugin) {
                        limiter = hourly("clients", 1)
                        address()
                    }
                    get { call.respondText("hello") }
                }
            }
        }
    }) { server ->
        fun login(name: String, password: String) = "Basic " + Base64.getEncoder().encodeToString("$name:$password".toByteArray())
        assertEquals(401, server.get("/users", "Authorization", login("alice", "guess")).statusCode())
        assertEquals(200, server.get("/users", "Authorization", login("alice", "secret")).statusCode())
        assertEquals(429, server.get("/users", "Authorization", login("alice", "secret")).statusCode())
        assertEquals(200, server.get("/users", "Authorization", login("bob", "secret")).statusCode())
        assertEquals(401, server.get("/clients", "Authorization", login("alice", "guess")).statusCode())
        assertEquals(429, server.get("/clients", "Authorization", login("alice", "secret")).statusCode())
    }

    @Test
    fun an_application_may_answer_refusals_in_its_own_way() = served({
        routing {
            route("/own") {
                install(SluicegatePlugin) {
                    limiter = hourly("own", 1)
                    key { call -> call.request.queryParameters["user"] }
                    onDeny { call, refusal ->
                        if (refusal.policy() == "own" && call.request.queryParameters["user"] == "a") {
                            call.respondText("slow down", status = HttpStatusCode(420, "Slow Down"))
                        }
                    }
                }
                get { call.respondText("hello") }
            }
        }
    }) { server ->
        assertEquals(200, server.get("/own?user=a").statusCode())
        val own = server.get("/own?user=a")
        assertEquals("420 slow down", "${own.statusCode()} ${own.body()}")
        assertEquals("3960", own.field("Retry-After"))
        assertEquals("\"limit\";r=0;t=3960", own.field("RateLimit"))
        assertEquals(200, server.get("/own?user=b").statusCode())
        val problem = server.get("/own?user=b")
        assertEquals(429, problem.statusCode())
        assertEquals("application/problem+json", problem.field("Content-Type"))
        assertEquals("3960", problem.field("Retry-After"))
    }

    @Test
    fun pages_of_the_application_take_the_place_of_the_body() = served({
        install(createApplicationPlugin("pages") {
            on(ResponseBodyReadyForSend) { call, content ->
                if (content.status == HttpStatusCode.TooManyRequests) {
                    transformBodyTo(TextContent("again in ${call.response.headers["Retry-After"]} s", ContentType.Text.Plain, content.status))
                }
            }
        })
        install(SluicegatePlugin) {
            limiter = hourly("pages", 1)
            address()
        }
        routing { get("/") { call.respondText("hello") } }
    }) { server ->
        assertEquals(200, server.get("/").statusCode())
        val page = server.get("/")
        assertEquals("429 again in 3960 s", "${page.statusCode()} ${page.body()}")
        assertEquals("text/plain", page.field("Content-Type"))
    }

    @Test
    fun a_response_of_a_policy_has_the_type_that_the_policy_gives() {
        val types = listOf("text/html; charset=utf-8", "nonsense")
        val degraded = """{"policies":[${types.indices.joinToString(",") { """{"name":"p$it","rules":[{"fixed_window":{"limit":1,"window":"1h"}}],
            "overflow":{"degrade":{"response":{"status":203,"body":"later","headers":{"Content-Type":"${types[it]}","Retry-After":"5"}}}}}""" }}]}"""
        TestServer.start(degraded, null).use { decider ->
            HttpGate.remote(URI.create(decider.http())).timeout(Duration.ofSeconds(20)).build().use { gate ->
                served({
                    routing {
                        for (place in types.indices) {
                            route("/$place") {
                                install(SluicegatePlugin) {
                                    limiter = gate.policy("p$place")
                                    address()
                                }
                                get { call.respondText("hello") }
                            }
                        }
                    }
                }) { server ->
                    types.forEachIndexed { place, type ->
                        assertEquals("hello", server.get("/$place").body())
                        val later = server.get("/$place")
                        assertEquals("203 later", "${later.statusCode()} ${later.body()}")
                        assertEquals(type, later.field("Content-Type"))
                        assertEquals(1, later.headers().allValues("Retry-After").size)
                    }
                }
            }
        }
    }

    @Test
    fun the_body_is_the_programs_and_of_a_refused_request_it_is_not_read() {
        val handled = AtomicInteger()
        served({
            routing {
                route("/body") {
                    install(SluicegatePlugin) {
                        limiter = hourly("body", 1)
                        header("X-Tenant")
                    }
                    post {
                        handled.incrementAndGet()
                        call.respondText(call.receiveText().length.toString())
                    }
                }
            }
        }) { server ->
            val body = "x".repeat(200_000)
            assertEquals("200000", server.send("/body", "X-Tenant", "a", body = body).get().body())
            assertEquals(429, server.send("/body", "X-Tenant", "a", body = body).get().statusCode())
            assertEquals("200000", server.send("/body", "X-Tenant", "b", body = body).get().body())
            assertEquals(2, handled.get())
        }
    }

    @Test
    fun a_request_that_has_to_wait_holds_no_thread() = served({
        routing {
            route("/leaky") {
                install(SluicegatePlugin) {
                    limiter = gate.limit("leaky", Limit.leakyBucket(2, Duration.ofSeconds(1)).burst(200))
                    key { "all" }
                }
                get { call.respondText("hello") }
            }
            get("/free") { call.respondText("free") }
        }
    }) { server ->
        // The last of them waits for 100 s: more wait than Ktor has threads.
        val waiting = (1..200).map { server.send("/leaky") }
        assertEquals("free", server.send("/free").get(10, TimeUnit.SECONDS).body())
        CompletableFuture.anyOf(*waiting.toTypedArray()).get(20, TimeUnit.SECONDS)
        assertTrue(waiting.any { !it.isDone })
        waiting.forEach { it.cancel(true) }
    }

    @Test
    fun a_call_that_is_cancelled_gives_up_its_question() {
        val asked = CompletableFuture<CompletableFuture<Decision>>()
        val unanswered = object : Transport {
            override fun decide(call: Call): Decision = throw AssertionError("it blocks")

            override fun decideAsync(call: Call): CompletableFuture<Decision> = CompletableFuture<Decision>().also(asked::complete)
        }
        val calls = CompletableFuture<Job>()
        served({
            intercept(ApplicationCallPipeline.Setup) {
                coroutineScope {
                    calls.complete(coroutineContext.job)
                    proceed()
                }
            }
            install(SluicegatePlugin) {
                limiter = Limiter("unanswered", unanswered)
                address()
            }
        }) { server ->
            val response = server.send("/")
            val question = asked.get(20, TimeUnit.SECONDS)
            calls.get(20, TimeUnit.SECONDS).cancel()
            assertThrows(CancellationException::class.java) { question.get(20, TimeUnit.SECONDS) }
            response.cancel(true)
        }
    }

    private fun served(module: Application.() -> Unit, test: (KtorServer) -> Unit) = KtorServer(module).use(test)
}
