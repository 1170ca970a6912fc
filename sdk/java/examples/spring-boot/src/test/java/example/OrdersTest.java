package example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.testing.Records;
import io.sluicegate.testing.TestRedis;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import org.junit.jupiter.api.Test;
import org.springframework.boot.SpringApplication;
import org.springframework.context.ConfigurableApplicationContext;

class OrdersTest {
    @Test
    void addresses_and_users_are_limited() throws Exception {
        try (TestRedis redis = TestRedis.start()) {
            redis.command("HSET", "sg:{policies}", "#format", "1", "#revision", "1", "api", Records.of("api"), "orders", Records.of("orders"));
            try (ConfigurableApplicationContext context = SpringApplication.run(Orders.class, "--server.port=0", "--server.address=127.0.0.1",
                "--spring.main.banner-mode=off", "--logging.level.root=warn", "--sluicegate.deadline=10s", "--sluicegate.redis.url=" + redis.uri())) {
                String port = context.getEnvironment().getProperty("local.server.port");
                assertEquals("ordered by alice", get(port, "alice").body());
                assertEquals("\"api\";q=4", get(port, "alice").headers().firstValue("RateLimit-Policy").orElse("").split(";w")[0]);
                refused("orders", get(port, "alice"));
                assertEquals(200, get(port, "bob").statusCode());
                refused("api", get(port, "carol"));
            }
        }
    }

    private static void refused(String rule, HttpResponse<String> response) {
        assertEquals(429, response.statusCode());
        assertTrue(response.headers().firstValue("Retry-After").isPresent());
        assertTrue(response.body().contains("\"violated-policies\":[\"" + rule + "\"]"), response.body());
    }

    private static HttpResponse<String> get(String port, String user) throws Exception {
        URI uri = URI.create("http://127.0.0.1:" + port + "/orders/" + user);
        return HttpClient.newHttpClient().send(HttpRequest.newBuilder(uri).build(), HttpResponse.BodyHandlers.ofString());
    }
}
