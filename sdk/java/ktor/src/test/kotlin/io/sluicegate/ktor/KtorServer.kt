package io.sluicegate.ktor

import io.ktor.server.application.Application
import io.ktor.server.cio.CIO
import io.ktor.server.engine.embeddedServer
import java.net.URI
import java.net.http.HttpClient
import java.net.http.HttpRequest
import java.net.http.HttpResponse
import java.time.Duration
import java.util.concurrent.CompletableFuture
import kotlinx.coroutines.runBlocking

/** An application that a test serves, and a client for it. */
internal class KtorServer(module: Application.() -> Unit) : AutoCloseable {
    private val server = embeddedServer(CIO, host = "127.0.0.1", port = 0, module = module).start(wait = false)
    private val client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build()
    val port = runBlocking { server.engine.resolvedConnectors().first().port }

    fun send(path: String, vararg fields: String, body: String? = null): CompletableFuture<HttpResponse<String>> {
        val request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:$port$path")).timeout(Duration.ofSeconds(20))
        fields.asList().chunked(2).forEach { (name, value) -> request.header(name, value) }
        body?.let { request.POST(HttpRequest.BodyPublishers.ofString(it)) }
        return client.sendAsync(request.build(), HttpResponse.BodyHandlers.ofString())
    }

    fun get(path: String, vararg fields: String): HttpResponse<String> = send(path, *fields).get()

    /** The statuses of so many requests at once, with their numbers. */
    fun atOnce(requests: Int, path: String, vararg fields: String): Map<Int, Int> =
        (1..requests).map { send(path, *fields) }.groupingBy { it.get().statusCode() }.eachCount().toSortedMap()

    override fun close() = server.stop(0, 0)
}

internal fun HttpResponse<String>.field(name: String): String = headers().allValues(name).joinToString(",")
