package example;

import io.sluicegate.Gate;
import io.sluicegate.http.HttpGate;
import jakarta.enterprise.context.ApplicationScoped;
import jakarta.enterprise.inject.Disposes;
import jakarta.enterprise.inject.Produces;
import jakarta.ws.rs.GET;
import jakarta.ws.rs.Path;
import java.net.URI;
import org.eclipse.microprofile.config.inject.ConfigProperty;

/** Takes orders. */
@Path("/orders")
public class Orders {
    /** {@return what was ordered} */
    @GET
    public String order() {
        return "ordered";
    }

    /** Has the gate, which asks the server of the setting {@code sluicegate.url}. */
    static class Gates {
        @Produces
        @ApplicationScoped
        Gate gate(@ConfigProperty(name = "sluicegate.url") URI server) {
            return HttpGate.remote(server).build();
        }

        void close(@Disposes Gate gate) {
            gate.close();
        }
    }
}
