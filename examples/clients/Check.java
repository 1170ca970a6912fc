// Asks over HTTP by java.net.http. With ?deny=429 the status is enough, and no JSON has to be read.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;

public class Check {
    static final HttpClient CLIENT = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    static final URI CHECK = URI.create(System.getenv("SLUICEGATE_URL") + "/v1/check?deny=429");

    /** Keys with quotes or backslashes need a JSON library. */
    static boolean passes(String policy, String key) throws Exception {
        var body = "{\"policy\":\"" + policy + "\",\"key\":\"" + key + "\"}";
        var request = HttpRequest.newBuilder(CHECK).timeout(Duration.ofSeconds(1))
            .header("content-type", "application/json").POST(BodyPublishers.ofString(body)).build();
        var answer = CLIENT.send(request, BodyHandlers.ofString());
        return switch (answer.statusCode()) {
            case 200 -> true;
            case 429, 503 -> false; // Retry-After says when
            default -> throw new IllegalStateException(answer.body());
        };
    }

    public static void main(String[] args) throws Exception {
        var passed = 0;
        for (var i = 0; i < 6; i++) {
            if (passes("login", "java")) passed++;
        }
        System.out.println(passed + " of 6 passed");
    }
}
