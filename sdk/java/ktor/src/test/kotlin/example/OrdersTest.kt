package example

import io.sluicegate.Limit
import io.sluicegate.ktor.KtorServer
import io.sluicegate.ktor.field
import io.sluicegate.test.TestGate
import io.sluicegate.testing.Checkout
import java.time.Duration
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

class OrdersTest {
    @Test
    fun the_program_of_the_page_limits_each_tenant() = TestGate().use { gate ->
        gate.policy("orders", Limit.tokenBucket(1, Duration.ofSeconds(10)))
        KtorServer { orders(gate) }.use { server ->
            assertEquals("ordered", server.get("/orders", "X-Tenant", "a").body())
            val refused = server.get("/orders", "X-Tenant", "a")
            assertEquals("429 10", "${refused.statusCode()} ${refused.field("Retry-After")}")
            assertEquals("ordered", server.get("/orders", "X-Tenant", "b").body())
            assertEquals(400, server.get("/orders").statusCode())
        }
    }

    @Test
    fun the_pages_have_the_program() {
        val program = Checkout.bytes("sdk/java/ktor/src/test/kotlin/example/Orders.kt").decodeToString().substringAfter("\n\nfun ")
        for (page in listOf("README.md", "README.zh.md")) {
            assertTrue("```kotlin\nfun $program```" in Checkout.bytes("sdk/java/$page").decodeToString(), page)
        }
    }
}
