package io.sluicegate.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.DirectGate;
import io.sluicegate.Gate;
import io.sluicegate.InMemoryGate;
import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import io.sluicegate.OnStoreFailure;
import io.sluicegate.RedisPort;
import io.sluicegate.Sluicegate;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.List;
import java.util.Locale;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;

/** The tests that every middleware must pass. Its server answers {@code hello} at every path. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
public abstract class MiddlewareContract {
    private final HttpClient client = HttpClient.newHttpClient();
    private final Policies policies = new Policies();
    /** Name of a policy of each middleware by itself: the log has a line a minute. */
    private final String misspelt = "misspelt-" + getClass().getSimpleName().toLowerCase(Locale.ROOT);
    private int port;

    /**
     * The limit of one path.
     *
     * @param path the path
     * @param policy the policy
     * @param header the field of the request that is the key; null: the client's address
     * @param trusted the proxies that are trusted
     */
    public record Guard(String path, String policy, String header, List<String> trusted) {
        static Guard byHeader(String policy) {
            return new Guard("/" + policy, policy, "X-Tenant", List.of());
        }

        static Guard byAddress(String policy, String... trusted) {
            return new Guard("/" + policy, policy, null, List.of(trusted));
        }
    }

    /** Serves, and returns the port. */
    protected abstract int serve(Gate gate, List<Guard> guards) throws Exception;

    /** Ends what serves. */
    protected abstract void end() throws Exception;

    /** Policies in memory, and one whose Redis is not there. */
    private static final class Policies implements Gate {
        private final InMemoryGate memory = Sluicegate.inMemory(Clock.fixed(Instant.parse("2026-03-01T00:00:00Z"), ZoneOffset.UTC));
        private final DirectGate nowhere = Sluicegate.direct(new NoRedis()).build();

        Policies() {
            memory.compiled(Records.file());
        }

        @Override
        public Limiter policy(String name) {
            if (name.equals("unknown")) {
                // Redis was never there, so its policies are not known.
                return nowhere.policy(name);
            }
            if (name.equals("everyone")) {
                return memory.limit("everyone", Limit.fixedWindow(1, Duration.ofHours(1))).shared();
            }
            return name.equals("deny")
                ? nowhere.limit("deny", Limit.fixedWindow(10, Duration.ofHours(1)).onStoreFailure(OnStoreFailure.DENY))
                : memory.policy(name);
        }

        @Override
        public void close() {
            memory.close();
            nowhere.close();
        }
    }

    static final class NoRedis implements RedisPort {
        @Override
        public Object call(long timeoutNanos, byte[]... command) throws Failure {
            throw new Failure("there is no connection", false, false);
        }

        @Override
        public void subscribe(String channel, Consumer<String> listener) {
            // Nothing is heard.
        }

        @Override
        public void close() {
            // There is nothing.
        }
    }

    @BeforeAll
    void start() throws Exception {
        port = serve(policies, List.of(Guard.byAddress("reject"), Guard.byAddress("behind", "127.0.0.0/8", "10.0.0.0/8"), Guard.byHeader("tenant"),
            Guard.byHeader("shadow"), Guard.byHeader("degrade"), Guard.byHeader("deny"), Guard.byHeader("unknown"), Guard.byHeader("everyone"), Guard.byHeader(misspelt)));
    }

    @AfterAll
    void stop() throws Exception {
        end();
        policies.close();
    }

    protected final HttpResponse<String> get(String path, String... headers) throws Exception {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path)).timeout(Duration.ofSeconds(20));
        for (int place = 0; place < headers.length; place += 2) {
            request.header(headers[place], headers[place + 1]);
        }
        return client.send(request.build(), HttpResponse.BodyHandlers.ofString());
    }

    protected static String field(HttpResponse<String> response, String name) {
        return String.join(",", response.headers().allValues(name));
    }

    @Test
    void what_passes_says_what_is_left_and_a_refusal_is_a_problem() throws Exception {
        HttpResponse<String> first = get("/reject", "X-Forwarded-For", "1.1.1.1");
        assertEquals(200, first.statusCode());
        assertEquals("hello", first.body());
        assertEquals("\"fixed_window\";r=0;t=3960", field(first, "RateLimit"));
        assertEquals("\"fixed_window\";q=1;w=3600", field(first, "RateLimit-Policy"));
        assertEquals("", field(first, "Retry-After"));
        // What an untrusted client says of its address changes nothing.
        HttpResponse<String> refused = get("/reject", "X-Forwarded-For", "2.2.2.2");
        assertEquals(429, refused.statusCode());
        assertEquals("3960", field(refused, "Retry-After"));
        assertEquals("\"fixed_window\";r=0;t=3960", field(refused, "RateLimit"));
        assertEquals("application/problem+json", field(refused, "Content-Type"));
        assertTrue(refused.body().contains("#quota-exceeded\"") && refused.body().contains("\"violated-policies\":[\"fixed_window\"]"));
        assertFalse(refused.body().contains("127.0.0.1"));
    }

    @Test
    void nobody_deciding_is_a_503() throws Exception {
        HttpResponse<String> refused = get("/deny", "X-Tenant", "a");
        assertEquals(503, refused.statusCode());
        assertEquals("1", field(refused, "Retry-After"));
        assertEquals("", field(refused, "RateLimit"));
        assertEquals("application/problem+json", field(refused, "Content-Type"));
        assertTrue(refused.body().contains("#temporary-reduced-capacity\""));
    }

    @Test
    void a_policy_that_nobody_can_look_up_is_a_503() throws Exception {
        HttpResponse<String> undecided = get("/unknown", "X-Tenant", "a");
        assertEquals(503, undecided.statusCode());
        assertEquals("1", field(undecided, "Retry-After"));
        assertEquals("application/problem+json", field(undecided, "Content-Type"));
        assertTrue(undecided.body().contains("#temporary-reduced-capacity\""));
    }

    @Test
    void a_mistake_of_the_program_is_named_in_the_log_and_not_to_strangers() throws Exception {
        try (LogLines log = new LogLines()) {
            HttpResponse<String> mistake = get("/" + misspelt, "X-Tenant", "a");
            assertEquals(500, mistake.statusCode());
            assertEquals("application/problem+json", field(mistake, "Content-Type"));
            assertFalse((mistake.body() + mistake.headers()).contains("misspelt"), mistake.body());
            assertEquals(500, get("/" + misspelt, "X-Tenant", "b").statusCode());
            assertEquals(List.of("WARNING a request was answered with 500: policy: unknown policy `" + misspelt + "`"), log.with(misspelt));
        }
    }

    @Test
    void ports_of_forwarded_addresses_are_left_out() throws Exception {
        assertEquals(200, get("/behind", "X-Forwarded-For", "198.18.1.1:4001").statusCode());
        assertEquals(429, get("/behind", "X-Forwarded-For", "198.18.1.1:4002").statusCode());
        assertEquals(200, get("/behind", "X-Forwarded-For", "198.18.1.2:4001").statusCode());
        assertEquals(200, get("/behind", "X-Forwarded-For", "[2001:db8:7::1]:4001").statusCode());
        assertEquals(429, get("/behind", "X-Forwarded-For", "[2001:db8:7::2]").statusCode());
    }

    @Test
    void a_list_of_addresses_that_ends_with_a_comma_names_none() throws Exception {
        get("/behind", "X-Forwarded-For", "198.18.1.3,");
        assertEquals(429, get("/behind", "X-Forwarded-For", "198.18.1.4,").statusCode());
    }

    @Test
    void two_hundred_fields_change_no_budget() throws Exception {
        String[] many = new String[402];
        for (int place = 0; place < 200; place++) {
            many[2 * place] = "X-Forged-" + place;
            many[2 * place + 1] = "8.8.8." + place;
        }
        many[400] = "X-Tenant";
        many[401] = "many";
        int first = get("/tenant", many).statusCode();
        // Some servers refuse so many fields themselves.
        assertTrue(first == 200 || first >= 400 && first < 500, "status " + first);
        assertEquals(first == 200 ? 429 : first, get("/tenant", many).statusCode());
    }

    @Test
    void two_fields_of_the_key_are_refused_and_charge_nothing() throws Exception {
        HttpResponse<String> twice = get("/tenant", "X-Tenant", "forged", "x-tenant", "real");
        assertEquals(400, twice.statusCode());
        assertTrue(twice.body().contains("\"detail\":\"header `X-Tenant`: is given more than once\""), twice.body());
        assertEquals("application/problem+json", field(twice, "Content-Type"));
        assertEquals(200, get("/tenant", "X-Tenant", "forged").statusCode());
        assertEquals(200, get("/tenant", "X-Tenant", "real").statusCode());
    }

    @Test
    void shadow_passes() throws Exception {
        assertEquals("hello", get("/shadow", "X-Tenant", "a").body());
        HttpResponse<String> over = get("/shadow", "X-Tenant", "a");
        assertEquals(200, over.statusCode());
        assertEquals("hello", over.body());
    }

    @Test
    void the_response_of_the_policy_is_served() throws Exception {
        assertEquals("hello", get("/degrade", "X-Tenant", "a").body());
        HttpResponse<String> later = get("/degrade", "X-Tenant", "a");
        assertEquals(203, later.statusCode());
        assertEquals("later", later.body());
        assertEquals("b", field(later, "x-a"));
    }

    @Test
    void a_client_behind_trusted_proxies_has_the_last_address_that_they_saw() throws Exception {
        assertEquals(200, get("/behind", "X-Forwarded-For", "1.1.1.1").statusCode());
        assertEquals(200, get("/behind", "X-Forwarded-For", "2.2.2.2, 10.0.0.9").statusCode());
        for (String spoofed : List.of("9.9.9.9, 1.1.1.1", "9.9.9.9, 2.2.2.2, 10.1.1.1", "1.1.1.1")) {
            assertEquals(429, get("/behind", "X-Forwarded-For", spoofed).statusCode(), spoofed);
        }
        assertEquals(429, get("/behind", "X-Forwarded-For", "9.9.9.9", "X-Forwarded-For", "1.1.1.1").statusCode());
    }

    @Test
    void a_request_without_a_key_is_refused_unless_the_limiter_is_shared() throws Exception {
        HttpResponse<String> none = get("/tenant");
        assertEquals(400, none.statusCode());
        assertTrue(none.body().contains("\"detail\":\"header `X-Tenant`: is missing\""), none.body());
        assertEquals("application/problem+json", field(none, "Content-Type"));
        assertEquals(400, get("/tenant", "X-Tenant", "").statusCode());
        assertEquals(200, get("/everyone").statusCode());
        assertEquals(429, get("/everyone", "X-Tenant", "").statusCode());
        assertEquals(200, get("/everyone", "X-Tenant", "a").statusCode());
    }

    @Test
    void keys_of_requests_may_be_long() throws Exception {
        String longKey = "x".repeat(2000);
        assertEquals(200, get("/tenant", "X-Tenant", longKey + "1").statusCode());
        assertEquals(200, get("/tenant", "X-Tenant", longKey + "2").statusCode());
        assertEquals(429, get("/tenant", "X-Tenant", longKey + "2").statusCode());
    }

    @Test
    void what_is_not_guarded_is_free() throws Exception {
        HttpResponse<String> free = get("/free");
        assertEquals(200, free.statusCode());
        assertEquals("", field(free, "RateLimit"));
    }
}
