package io.sluicegate.spring

import io.sluicegate.ErrorCode
import io.sluicegate.Limit
import io.sluicegate.RateLimitExceededException
import io.sluicegate.SluicegateException
import io.sluicegate.test.TestGate
import java.time.Duration
import java.util.concurrent.Executors
import java.util.function.Supplier
import kotlinx.coroutines.CompletableDeferred
import kotlinx.coroutines.CoroutineName
import kotlinx.coroutines.CoroutineScope
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.asCoroutineDispatcher
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.first
import kotlinx.coroutines.flow.onEach
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withContext
import kotlinx.coroutines.withTimeout
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Assertions.fail
import org.junit.jupiter.api.Test
import org.springframework.beans.factory.BeanCreationException
import org.springframework.context.support.GenericApplicationContext

class SuspendTest {
    private fun limited(gate: TestGate, test: suspend (Office) -> Unit) {
        gate.policy("orders", Limit.fixedWindow(2, Duration.ofMinutes(1)))
        gate.policy("desk", Limit.concurrency(1, Duration.ofSeconds(30)))
        gate.policy("leaky", Limit.leakyBucket(100, Duration.ofSeconds(1)).burst(1))
        GenericApplicationContext().use { context ->
            context.beanFactory.registerSingleton("gate", gate)
            context.registerBean(RateLimitPostProcessor::class.java, Supplier { RateLimitPostProcessor() })
            context.registerBean(Office::class.java, Supplier { Office() })
            context.refresh()
            runBlocking(CoroutineName("test")) { test(context.getBean(Office::class.java)) }
        }
    }

    private suspend fun refused(call: suspend () -> Any?): RateLimitExceededException {
        try {
            call()
        } catch (e: RateLimitExceededException) {
            return e
        }
        return fail("it passed")
    }

    @Test
    fun a_function_that_suspends_is_limited_by_its_key() = TestGate().use { gate ->
        limited(gate) { office ->
            assertEquals("opened by alice, test", office.open(User("alice")))
            assertEquals("opened by alice, test", office.open(User("alice")))
            assertEquals("orders", refused { office.open(User("alice")) }.decision().policy())
            assertEquals("opened by bob, test", office.open(User("bob")))
            assertEquals(3, office.calls())
            gate.advance(Duration.ofSeconds(66))
            assertEquals("opened by alice, test", office.open(User("alice")))
        }
    }

    @Test
    fun its_cost_and_its_answer_are_those_of_the_annotation() = TestGate().use { gate ->
        limited(gate) { office ->
            office.costly(User("alice"), 2)
            val refusal = refused { office.costly(User("alice"), 2) }
            assertEquals("420 slow down", "${refusal.answer().status()} ${refusal.answer().body()}")
        }
    }

    @Test
    fun a_key_that_is_missing_is_an_exception_of_the_coroutine() = TestGate().use { gate ->
        limited(gate) { office ->
            try {
                office.open(User(null))
                fail<Unit>("it passed")
            } catch (e: SluicegateException) {
                assertEquals(ErrorCode.KEY_EMPTY, e.code())
            }
        }
    }

    @Test
    fun a_fallback_may_suspend_or_not() = TestGate().use { gate ->
        limited(gate) { office ->
            assertEquals("open", office.withFallback(User("alice")))
            assertEquals("busy: limit, test", office.withFallback(User("alice")))
            assertEquals("open", office.withPlainFallback(User("bob")))
            assertNull(office.withPlainFallback(User("bob")))
        }
    }

    @Test
    fun each_collection_of_a_flow_is_limited() = TestGate().use { gate ->
        limited(gate) { office ->
            val flow = office.flow(User("alice"))
            assertEquals(0, office.calls())
            assertEquals(listOf(1, 2, 3), flow.toList())
            refused { flow.toList() }
            assertEquals(1, office.calls())
            assertEquals(listOf(4, 5), office.suspendedFlow(User("bob")).toList())
            refused { office.suspendedFlow(User("bob")).toList() }
        }
    }

    @Test
    fun a_wait_holds_no_thread_and_the_coroutine_goes_on_where_it_was() = TestGate().use { gate ->
        limited(gate) { office ->
            Executors.newSingleThreadExecutor { Thread(it, "own") }.asCoroutineDispatcher().use { own ->
                withContext(own) {
                    assertEquals("twice", office.twice(User("alice")))
                    assertEquals("twice", office.twice(User("alice")))
                    assertTrue(Thread.currentThread().name.startsWith("own"), Thread.currentThread().name)
                }
            }
        }
    }

    private fun free(gate: TestGate) = gate.policy("desk").peek("alice").remaining()

    private suspend fun becomesFree(gate: TestGate) = withTimeout(20_000) {
        while (free(gate) != 1L) {
            delay(5)
        }
    }

    @Test
    fun a_function_that_suspends_holds_its_permit_until_it_is_over() = TestGate().use { gate ->
        limited(gate) { office ->
            val alice = User("alice")
            assertEquals("0 free", office.hold(alice) { "${free(gate)} free" })
            assertEquals(1, free(gate))
            refused { office.hold(alice) { office.hold(alice) { "twice" } } }
            assertEquals(1, free(gate))
            val begun = CompletableDeferred<Unit>()
            val job = CoroutineScope(Dispatchers.Default).launch {
                office.hold(alice) {
                    begun.complete(Unit)
                    awaitCancellation()
                }
            }
            begun.await()
            assertEquals(0, free(gate))
            job.cancelAndJoin()
            becomesFree(gate)
        }
    }

    @Test
    fun a_flow_holds_its_permit_until_its_collector_is_done() = TestGate().use { gate ->
        limited(gate) { office ->
            val seen = office.stream(User("alice")).onEach { assertEquals(0, free(gate)) }.first()
            assertEquals(1, seen)
            becomesFree(gate)
        }
    }

    @Test
    fun mistakes_are_refused_at_the_start() {
        refusedAtTheStart(UnknownKey::class.java, "`#usr` is no parameter of public java.lang.Object io.sluicegate.spring.UnknownKey.create(")
        refusedAtTheStart(NoFallback::class.java, "there is no fallback `busy` with the parameters of")
    }
}

internal fun <T : Any> refusedAtTheStart(bean: Class<T>, message: String) {
    TestGate().use { gate ->
        GenericApplicationContext().use { context ->
            context.beanFactory.registerSingleton("gate", gate)
            context.registerBean(RateLimitPostProcessor::class.java, Supplier { RateLimitPostProcessor() })
            context.registerBean(bean, Supplier { bean.getDeclaredConstructor().newInstance() })
            try {
                context.refresh()
                fail<Unit>("it started")
            } catch (e: BeanCreationException) {
                assertTrue(e.message!!.contains(message), e.message)
            }
        }
    }
}
