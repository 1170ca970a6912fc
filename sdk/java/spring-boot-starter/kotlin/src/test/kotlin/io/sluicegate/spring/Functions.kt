package io.sluicegate.spring

import io.sluicegate.RateLimitExceededException
import java.util.concurrent.atomic.AtomicInteger
import kotlinx.coroutines.CoroutineName
import kotlinx.coroutines.awaitCancellation
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.flow.flowOf

data class User(val id: String?)

/** A bean whose functions suspend. */
open class Office {
    private val calls = AtomicInteger()

    open fun calls(): Int = calls.get()

    @RateLimit(policy = "orders", key = "#user.id")
    open suspend fun open(user: User): String {
        calls.incrementAndGet()
        delay(1)
        return "opened by ${user.id}, ${currentCoroutineContext()[CoroutineName]?.name}"
    }

    @RateLimit(policy = "orders", key = "#a0.id + #cost", cost = "#cost", status = 420, body = "slow down")
    open suspend fun costly(user: User, cost: Int) {
        calls.incrementAndGet()
    }

    @RateLimit(policy = "orders", key = "#user.id", cost = "2", fallback = "busy")
    open suspend fun withFallback(user: User): String = "open"

    private suspend fun busy(user: User, refusal: RateLimitExceededException): String {
        delay(1)
        return "busy: ${refusal.decision().rule()}, ${currentCoroutineContext()[CoroutineName]?.name}"
    }

    @RateLimit(policy = "orders", key = "#user.id", cost = "2", fallback = "closed")
    open suspend fun withPlainFallback(user: User): String? = "open"

    private fun closed(user: User): String? = null

    @RateLimit(policy = "orders", key = "#user.id", cost = "2")
    open fun flow(user: User): Flow<Int> {
        calls.incrementAndGet()
        return flowOf(1, 2, 3)
    }

    @RateLimit(policy = "orders", key = "#user.id", cost = "2")
    open suspend fun suspendedFlow(user: User): Flow<Int> {
        delay(1)
        return flowOf(4, 5)
    }

    @RateLimit(policy = "orders", key = "#user.id")
    @RateLimit(policy = "leaky", key = "#user.id")
    open suspend fun twice(user: User): String = "twice"

    @ConcurrencyLimit(policy = "desk", key = "#user.id")
    open suspend fun hold(user: User, work: suspend () -> String): String = work()

    @ConcurrencyLimit(policy = "desk", key = "#user.id")
    open fun stream(user: User): Flow<Int> = flow {
        emit(1)
        awaitCancellation()
    }
}

open class UnknownKey {
    @RateLimit(policy = "orders", key = "#usr.id")
    open suspend fun create(user: User): String = user.toString()
}

open class NoFallback {
    @RateLimit(policy = "orders", fallback = "busy")
    open suspend fun create(user: User): String = user.toString()

    open suspend fun busy(user: String): String = user
}
