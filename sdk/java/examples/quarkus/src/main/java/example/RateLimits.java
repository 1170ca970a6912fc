package example;

import io.sluicegate.ClientAddress;
import io.sluicegate.Decision;
import io.sluicegate.Gate;
import io.sluicegate.HttpAnswer;
import io.sluicegate.HttpFields;
import io.sluicegate.SluicegateException;
import io.smallrye.mutiny.Uni;
import io.vertx.core.http.HttpServerRequest;
import jakarta.ws.rs.container.ContainerRequestContext;
import jakarta.ws.rs.container.ContainerResponseContext;
import jakarta.ws.rs.core.Response;
import org.jboss.resteasy.reactive.server.ServerRequestFilter;
import org.jboss.resteasy.reactive.server.ServerResponseFilter;

/** Limits addresses by the policy {@code api}, and blocks no thread. */
public class RateLimits {
    private final Gate gate;
    private final ClientAddress address = ClientAddress.behind(); // no proxy is trusted

    RateLimits(Gate gate) {
        this.gate = gate;
    }

    @ServerRequestFilter
    Uni<Response> check(ContainerRequestContext context, HttpServerRequest request) {
        String key = address.key(request.remoteAddress().hostAddress(), context.getHeaderString(address.header()));
        return Uni.createFrom().completionStage(() -> gate.policy("api").checkAsync(key)).onItem().transformToUni(decision -> {
            context.setProperty("decision", decision);
            Uni<Response> answer = Uni.createFrom().item(decision.allowed() ? null : response(HttpAnswer.of(decision)));
            return decision.waitUs() == 0 ? answer : answer.onItem().delayIt().by(decision.waitTime());
        }).onFailure(SluicegateException.class).recoverWithItem(undecided -> response(HttpAnswer.of(undecided)));
    }

    @ServerResponseFilter
    void addFields(ContainerRequestContext context, ContainerResponseContext response) {
        if (context.getProperty("decision") instanceof Decision decision) {
            HttpFields.of(decision).forEach(response.getHeaders()::putSingle);
        }
    }

    private static Response response(HttpAnswer answer) {
        Response.ResponseBuilder response = Response.status(answer.status()).entity(answer.body());
        answer.fields().forEach(response::header);
        return response.build();
    }
}
