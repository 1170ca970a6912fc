package example;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.testing.TestRedis;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import org.junit.jupiter.api.Test;

class PlainTest {
    @Test
    void the_twenty_first_mail_has_to_wait() throws Exception {
        try (TestRedis redis = TestRedis.start(); Plain plain = new Plain(redis.uri(), 0, Duration.ofSeconds(10))) {
            HttpRequest mail = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + plain.port() + "/mail/alice")).build();
            HttpClient client = HttpClient.newHttpClient();
            HttpResponse<String> last = null;
            // More than twenty only where the machine takes minutes.
            for (int sent = 0; sent < 100 && (last == null || last.statusCode() == 200); sent++) {
                last = client.send(mail, HttpResponse.BodyHandlers.ofString());
                assertTrue(sent >= 20 || last.statusCode() == 200, last.body());
            }
            assertEquals(429, last.statusCode());
            assertTrue(last.headers().firstValue("Retry-After").isPresent());
            assertTrue(last.body().contains("quota-exceeded"), last.body());
        }
    }
}
