package io.sluicegate.ktor

import io.ktor.server.application.ApplicationCallPipeline
import io.ktor.server.application.BaseRouteScopedPlugin
import io.ktor.server.application.PipelineCall
import io.ktor.server.application.isHandled
import io.ktor.server.application.pluginOrNull
import io.ktor.server.routing.RoutingNode
import io.ktor.server.routing.RoutingPipelineCall
import io.ktor.util.AttributeKey
import io.ktor.util.pipeline.PipelineContext
import io.ktor.util.pipeline.PipelinePhase

/**
 * Checks each request of an application or of a route by a policy, and blocks no thread. What passes goes on with `RateLimit` fields; what is
 * refused is answered with 429 (503 if Redis or the server did not decide) and a problem, or with the response that the policy gives. A request
 * that has to wait is held back by a timer. One without a key is answered with 400, unless the limiter is shared: then it has the budget that all
 * such requests share.
 *
 * ```
 * route("/orders") {
 *     install(SluicegatePlugin) {
 *         limiter = gate.policy("orders")
 *         header("X-Tenant")
 *     }
 * }
 * ```
 *
 * A request has to pass the limits of all routes that it is under, from the root on. For another limit on the same route install a plugin of
 * another name: `install(SluicegatePlugin("by address")) { … }`. Ktor refuses a plugin that is installed on the application and on a route;
 * `routing { install(SluicegatePlugin) { … } }` is for all routes.
 *
 * @param name the name of the plugin
 */
public open class SluicegatePlugin(name: String) : BaseRouteScopedPlugin<SluicegateConfig, RouteLimit> {
    /** The plugin of a route with one limit. */
    public companion object Default : SluicegatePlugin("Sluicegate") {
        private val WITH_PRINCIPAL = PipelinePhase("Sluicegate")
    }

    final override val key: AttributeKey<RouteLimit> = AttributeKey(name)

    final override fun install(pipeline: ApplicationCallPipeline, configure: SluicegateConfig.() -> Unit): RouteLimit {
        val limit = SluicegateConfig().apply(configure).limit()
        pipeline.intercept(ApplicationCallPipeline.Plugins) { pass(limit, needsPrincipal = false) }
        // Where a route authenticates, it does so between these two.
        pipeline.insertPhaseBefore(ApplicationCallPipeline.Call, WITH_PRINCIPAL)
        pipeline.intercept(WITH_PRINCIPAL) { pass(limit, needsPrincipal = true) }
        return limit
    }

    private suspend fun PipelineContext<Unit, PipelineCall>.pass(own: RouteLimit, needsPrincipal: Boolean) {
        for (limit in limits(context, own)) {
            if (limit.needsPrincipal == needsPrincipal && !context.isHandled && !limit.passes(context)) {
                finish()
                return
            }
        }
    }

    // Ktor runs only the innermost one of the plugins of a name, so that one asks for the others.
    private fun limits(call: PipelineCall, own: RouteLimit): List<RouteLimit> {
        var node: RoutingNode? = (call as? RoutingPipelineCall)?.route ?: return listOf(own)
        val limits = ArrayDeque<RouteLimit>()
        while (node != null) {
            node.pluginOrNull(this)?.let(limits::addFirst)
            node = node.parent
        }
        return limits
    }
}
