package io.sluicegate.spring

import kotlinx.coroutines.flow.Flow
import org.junit.jupiter.api.Tag
import org.junit.jupiter.api.Test

/** Functions of coroutines without `kotlinx-coroutines-reactor`. */
@Tag("without-reactor")
class WithoutReactorTest {
    open class Suspending {
        @RateLimit(policy = "orders", key = "#a0")
        open suspend fun create(user: String): String = user
    }

    open class Flowing {
        @RateLimit(policy = "orders")
        open fun create(): Flow<String> = throw AssertionError("it is called by nobody")
    }

    @Test
    fun a_function_of_coroutines_is_refused_at_the_start_by_its_name() {
        val needs = ": a function that suspends, or returns a Flow, needs `kotlinx-coroutines-reactor` and `kotlin-reflect` on the class path"
        refusedAtTheStart(Suspending::class.java, "@RateLimit at public java.lang.Object ${Suspending::class.java.name}.create(java.lang.String,"
            + "kotlin.coroutines.Continuation)$needs")
        refusedAtTheStart(Flowing::class.java, "@RateLimit at public kotlinx.coroutines.flow.Flow ${Flowing::class.java.name}.create()$needs")
    }
}
