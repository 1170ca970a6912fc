package example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeFalse;

import io.quarkus.test.common.QuarkusTestResource;
import io.quarkus.test.common.QuarkusTestResourceLifecycleManager;
import io.quarkus.test.common.http.TestHTTPResource;
import io.quarkus.test.junit.QuarkusTest;
import io.sluicegate.testing.TestServer;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Map;
import org.eclipse.microprofile.config.inject.ConfigProperty;
import org.junit.jupiter.api.Test;
import org.opentest4j.TestAbortedException;

@QuarkusTest
@QuarkusTestResource(OrdersTest.Server.class)
class OrdersTest {
    private static final String NONE = "http://127.0.0.1:1";

    @TestHTTPResource("/orders")
    URI orders;

    @ConfigProperty(name = "sluicegate.url")
    String server;

    /** The server that decides. Where there is no program for it, the application starts, and the test is skipped. */
    public static final class Server implements QuarkusTestResourceLifecycleManager {
        private TestServer server;

        @Override
        public Map<String, String> start() {
            try {
                server = TestServer.start("{\"policies\":[{\"name\":\"api\",\"rules\":[{\"fixed_window\":{\"limit\":2,\"window\":\"366d\"}}]}]}", null);
            } catch (TestAbortedException e) {
                // It has said why.
            }
            return Map.of("sluicegate.url", server == null ? NONE : server.http(), "quarkus.http.test-port", "0", "quarkus.log.level", "WARN");
        }

        @Override
        public void stop() {
            if (server != null) {
                server.close();
            }
        }
    }

    @Test
    void addresses_are_limited() throws Exception {
        assumeFalse(server.equals(NONE));
        HttpResponse<String> first = get();
        assertEquals("200 ordered", first.statusCode() + " " + first.body());
        assertEquals("\"fixed_window\";q=2;w=31622400", field(first, "RateLimit-Policy"));
        assertEquals(200, get().statusCode());
        HttpResponse<String> refused = get();
        assertEquals(429, refused.statusCode());
        assertEquals("\"fixed_window\";r=0;t=" + field(refused, "Retry-After"), field(refused, "RateLimit"));
        assertEquals("application/problem+json", field(refused, "Content-Type"));
        assertTrue(refused.body().contains("#quota-exceeded"), refused.body());
    }

    private HttpResponse<String> get() throws Exception {
        return HttpClient.newHttpClient().send(HttpRequest.newBuilder(orders).build(), HttpResponse.BodyHandlers.ofString());
    }

    private static String field(HttpResponse<String> response, String name) {
        return String.join(",", response.headers().allValues(name));
    }
}
