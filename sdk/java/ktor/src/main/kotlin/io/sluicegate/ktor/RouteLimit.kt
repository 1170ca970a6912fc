package io.sluicegate.ktor

import io.ktor.http.BadContentTypeFormatException
import io.ktor.http.ContentType
import io.ktor.http.HttpHeaders
import io.ktor.http.HttpStatusCode
import io.ktor.http.content.OutgoingContent
import io.ktor.server.application.ApplicationCall
import io.ktor.server.application.isHandled
import io.ktor.server.response.respond
import io.sluicegate.Decision
import io.sluicegate.HttpAnswer
import io.sluicegate.HttpFields
import io.sluicegate.Limiter
import io.sluicegate.SluicegateException
import io.sluicegate.internal.RequestKeys
import io.sluicegate.internal.Undecided
import io.sluicegate.ktor.internal.HeaderKey
import io.sluicegate.ktor.internal.RequestKey
import kotlin.time.Duration.Companion.microseconds
import kotlinx.coroutines.delay
import kotlinx.coroutines.future.await

/** The limit of an application or of a route, as [SluicegateConfig] has it. */
public class RouteLimit internal constructor(
    private val limiter: Limiter,
    private val key: RequestKey,
    private val cost: suspend (ApplicationCall) -> Long,
    private val onDeny: suspend (ApplicationCall, Decision) -> Unit,
) {
    internal val needsPrincipal: Boolean get() = key.needsPrincipal

    /** Returns whether a request goes on; if it does not, it is answered. */
    internal suspend fun passes(call: ApplicationCall): Boolean {
        if (key is HeaderKey && key.isRepeated(call)) {
            call.respondWith(Undecided.repeated(key.source))
            return false
        }
        val requestKey = RequestKeys.usable(key.of(call))
        val permits = cost(call)
        val decision = try {
            limiter.checkAsync(requestKey, permits).await()
        } catch (undecided: SluicegateException) {
            call.respondWith(Undecided.answer(undecided, limiter.policy(), key.source))
            return false
        }
        // Beside those of other limits: each field is a list.
        val fields = HttpFields.of(decision)
        fields.forEach { (name, value) -> call.response.headers.append(name, value) }
        if (decision.allowed()) {
            delay(decision.waitUs().microseconds)
            return true
        }
        onDeny(call, decision)
        if (!call.isHandled) {
            call.respondWith(HttpAnswer.of(decision), fields.keys)
        }
        return false
    }

    /** Responds, with the fields but those that are set already. */
    private suspend fun ApplicationCall.respondWith(answer: HttpAnswer, set: Set<String> = emptySet()) {
        val content = AnswerContent(answer)
        for ((name, value) in answer.fields()) {
            val isOfContent = content.contentType != null && name.equals(HttpHeaders.ContentType, ignoreCase = true)
            if (!isOfContent && set.none { it.equals(name, ignoreCase = true) }) {
                response.headers.append(name, value, safeOnly = false)
            }
        }
        respond(content)
    }
}

/** The status and the body of an answer, and its type, so that another content of the application can take the place of all three. */
private class AnswerContent(answer: HttpAnswer) : OutgoingContent.ByteArrayContent() {
    private val body = answer.body().encodeToByteArray()

    override val status: HttpStatusCode = HttpStatusCode.fromValue(answer.status())
    override val contentLength: Long = body.size.toLong()
    /** Null if Ktor cannot read it: a policy may have any text. */
    override val contentType: ContentType? = answer.fields().entries.find { it.key.equals(HttpHeaders.ContentType, ignoreCase = true) }?.let {
        try {
            ContentType.parse(it.value)
        } catch (_: BadContentTypeFormatException) {
            null
        }
    }

    override fun bytes(): ByteArray = body
}
