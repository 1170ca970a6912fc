package io.sluicegate.spring

import io.sluicegate.Limit
import io.sluicegate.test.TestGate
import java.net.URI
import java.net.http.HttpClient
import java.net.http.HttpRequest
import java.net.http.HttpResponse
import java.time.Duration
import kotlinx.coroutines.delay
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Test
import org.springframework.boot.WebApplicationType
import org.springframework.boot.autoconfigure.EnableAutoConfiguration
import org.springframework.boot.builder.SpringApplicationBuilder
import org.springframework.context.annotation.Bean
import org.springframework.context.annotation.Configuration
import org.springframework.web.bind.annotation.GetMapping
import org.springframework.web.bind.annotation.RestController

class ControllerTest {
    @RestController
    open class Hello {
        @GetMapping("/")
        @RateLimit(policy = "orders", key = "'all'", status = 420, body = "slow down")
        open suspend fun hello(): String {
            delay(1)
            return "hello"
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    open class Application {
        @Bean
        open fun hello() = Hello()

        @Bean
        open fun gate() = TestGate().also { it.policy("orders", Limit.fixedWindow(1, Duration.ofHours(1))) }
    }

    @Test
    fun a_controller_that_suspends_answers_as_others_do() {
        SpringApplicationBuilder(Application::class.java).web(WebApplicationType.SERVLET).logStartupInfo(false)
            .properties("spring.main.banner-mode=off", "server.port=0", "server.address=127.0.0.1", "logging.level.root=error").run().use { context ->
                val port = context.environment.getProperty("local.server.port")
                val request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:$port/")).timeout(Duration.ofSeconds(20)).build()
                val passed = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString())
                assertEquals("200 hello", "${passed.statusCode()} ${passed.body()}")
                assertEquals("\"limit\";r=0;t=3960", passed.headers().firstValue("RateLimit").orElse("none"))
                val refused = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString())
                assertEquals("420 slow down", "${refused.statusCode()} ${refused.body()}")
            }
    }
}
