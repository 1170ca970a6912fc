package io.sluicegate.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.DirectGate;
import io.sluicegate.Gate;
import io.sluicegate.InMemoryGate;
import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import io.sluicegate.OnStoreFailure;
import io.sluicegate.Sluicegate;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Clock;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;

/**
 * The tests that every middleware must pass which holds a permit for a request. Its server has the paths {@code /POLICY/WORK}: {@code hello}
 * answers at once, {@code hold} and {@code later} do when {@link #work} is let go, on the thread of the request and without one; {@code fail}
 * throws; {@code stream} writes without end.
 */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
public abstract class ConcurrencyContract {
    /** The limit of the policy `pool`. */
    protected static final int LIMIT = 5;
    private static final int AT_ONCE = 50;

    protected final Work work = new Work();
    protected final InMemoryGate memory = Sluicegate.inMemory(Clock.fixed(Instant.parse("2026-03-01T00:00:00Z"), ZoneOffset.UTC));
    private final DirectGate nowhere = Sluicegate.direct(new MiddlewareContract.NoRedis()).build();
    private final HttpClient client = HttpClient.newHttpClient();
    private int port;

    /** The work of a server, which ends when a test lets it go. */
    public static final class Work {
        private final AtomicInteger inside = new AtomicInteger();
        private final AtomicInteger most = new AtomicInteger();
        private volatile CompletableFuture<String> end = new CompletableFuture<>();

        /** Begins, and returns a future that completes when it is let go. */
        public CompletableFuture<String> begin() {
            most.accumulateAndGet(inside.incrementAndGet(), Math::max);
            CompletableFuture<String> ended = end.thenApply(text -> {
                inside.decrementAndGet();
                return text;
            });
            // It did not get there.
            ended.whenComplete((text, problem) -> inside.addAndGet(problem == null ? 0 : -1));
            return ended;
        }

        /** The number that is under way. */
        public int inside() {
            return inside.get();
        }

        /** Ends all. */
        public void letGo() {
            CompletableFuture<String> ended = end;
            end = new CompletableFuture<>();
            ended.complete("done");
        }
    }

    /** Serves {@code /POLICY/*} of these policies, each limited by the field `X-Tenant`, and returns the port. */
    protected abstract int serve(Gate gate, List<String> policies) throws Exception;

    /** Ends what serves. */
    protected abstract void end() throws Exception;

    private Limiter limiter(String name) {
        return name.equals("deny") ? nowhere.limit("deny", Limit.concurrency(1, Duration.ofHours(1)).onStoreFailure(OnStoreFailure.DENY)) : memory.policy(name);
    }

    @BeforeAll
    void start() throws Exception {
        memory.compiled(Records.file());
        memory.policy("pool", Limit.concurrency(LIMIT, Duration.ofSeconds(30)));
        Gate gate = new Gate() {
            @Override
            public Limiter policy(String name) {
                return limiter(name);
            }

            @Override
            public void close() {
                memory.close();
                nowhere.close();
            }
        };
        port = serve(gate, List.of("pool", "jobs-shadow", "jobs-degrade", "deny"));
    }

    @AfterAll
    void stop() throws Exception {
        work.letGo();
        end();
        nowhere.close();
    }

    protected final HttpRequest request(String path, String... headers) {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path)).timeout(Duration.ofSeconds(30));
        for (int place = 0; place < headers.length; place += 2) {
            request.header(headers[place], headers[place + 1]);
        }
        return request.build();
    }

    protected final HttpResponse<String> get(String path, String... headers) throws Exception {
        return client.send(request(path, headers), HttpResponse.BodyHandlers.ofString());
    }

    protected final CompletableFuture<HttpResponse<String>> begin(String path, String key) {
        return client.sendAsync(request(path, "X-Tenant", key), HttpResponse.BodyHandlers.ofString());
    }

    protected static String field(HttpResponse<?> response, String name) {
        return String.join(",", response.headers().allValues(name));
    }

    /** Permits of a key that nobody holds. */
    protected final long free(String key) {
        return memory.policy("pool").peek(key).remaining();
    }

    protected final void becomesFree(String key) {
        TestRedis.await("the permits of " + key, () -> free(key) == LIMIT);
    }

    @Test
    void five_of_fifty_requests_at_once_are_inside_and_the_others_refused() throws Exception {
        for (String path : List.of("hold", "later")) {
            work.most.set(0);
            List<CompletableFuture<HttpResponse<String>>> all = new ArrayList<>();
            for (int number = 0; number < AT_ONCE; number++) {
                all.add(begin("/pool/" + path, path));
            }
            TestRedis.await("refusals", () -> all.stream().filter(CompletableFuture::isDone).count() == AT_ONCE - LIMIT);
            assertEquals(LIMIT, work.inside());
            assertEquals(0, free(path));
            work.letGo();
            Map<Integer, Integer> statuses = new TreeMap<>();
            for (CompletableFuture<HttpResponse<String>> each : all) {
                HttpResponse<String> response = each.get(20, TimeUnit.SECONDS);
                statuses.merge(response.statusCode(), 1, Integer::sum);
                assertEquals("\"limit\";q=5;qu=\"concurrent-requests\"", field(response, "RateLimit-Policy"));
                if (response.statusCode() == 429) {
                    assertEquals("30", field(response, "Retry-After"));
                    assertTrue(response.body().contains("#quota-exceeded\""), response.body());
                }
            }
            assertEquals(Map.of(200, LIMIT, 429, AT_ONCE - LIMIT), statuses, path);
            assertEquals(LIMIT, work.most.get(), path);
            becomesFree(path);
        }
    }

    @Test
    void a_request_that_fails_frees_its_permit() throws Exception {
        for (int number = 0; number < 3 * LIMIT; number++) {
            assertEquals(500, get("/pool/fail", "X-Tenant", "fail").statusCode());
            becomesFree("fail");
        }
    }

    @Test
    void a_stream_holds_its_permit_until_the_client_goes() throws Exception {
        HttpResponse<InputStream> stream = client.send(request("/pool/stream", "X-Tenant", "stream"), HttpResponse.BodyHandlers.ofInputStream());
        assertEquals(200, stream.statusCode());
        assertTrue(stream.body().read() >= 0);
        assertEquals(LIMIT - 1, free("stream"));
        stream.body().close();
        becomesFree("stream");
    }

    @Test
    void shadow_lets_all_pass() throws Exception {
        List<CompletableFuture<HttpResponse<String>>> all = List.of(begin("/jobs-shadow/later", "a"), begin("/jobs-shadow/later", "a"), begin("/jobs-shadow/later", "a"));
        TestRedis.await("three inside", () -> work.inside() == 3);
        work.letGo();
        for (CompletableFuture<HttpResponse<String>> each : all) {
            assertEquals("200 done", each.get(20, TimeUnit.SECONDS).statusCode() + " " + each.join().body());
        }
        TestRedis.await("the permit", () -> memory.policy("jobs-shadow").peek("a").remaining() == 1);
    }

    @Test
    void what_does_not_go_on_is_answered_as_by_other_filters_and_holds_nothing() throws Exception {
        CompletableFuture<HttpResponse<String>> held = begin("/jobs-degrade/later", "a");
        TestRedis.await("one inside", () -> work.inside() == 1);
        assertEquals(429, get("/jobs-degrade/hello", "X-Tenant", "a").statusCode());
        work.letGo();
        assertEquals(200, held.get(20, TimeUnit.SECONDS).statusCode());
        HttpResponse<String> nobody = get("/deny/hello", "X-Tenant", "a");
        assertEquals("503 1", nobody.statusCode() + " " + field(nobody, "Retry-After"));
        HttpResponse<String> missing = get("/pool/hello");
        assertEquals(400, missing.statusCode());
        assertTrue(missing.body().contains("\"detail\":\"header `X-Tenant`: is missing\""), missing.body());
        assertEquals(400, get("/pool/hello", "X-Tenant", "twice", "x-tenant", "other").statusCode());
        assertEquals(LIMIT, free("twice"));
    }

    @Test
    void ten_thousand_requests_leave_no_permit_held() throws Exception {
        List<String> paths = List.of("/pool/hello", "/pool/hello", "/pool/hello", "/pool/fail");
        ExecutorService threads = Executors.newFixedThreadPool(8);
        try {
            List<CompletableFuture<Void>> all = new ArrayList<>();
            for (int thread = 0; thread < 8; thread++) {
                all.add(CompletableFuture.runAsync(() -> {
                    try {
                        for (int number = 0; number < 1250; number++) {
                            int status = get(paths.get(number % paths.size()), "X-Tenant", "many").statusCode();
                            assertTrue(status == 200 || status == 429 || status == 500, "status " + status);
                        }
                    } catch (Exception e) {
                        throw new IllegalStateException(e);
                    }
                }, threads));
            }
            CompletableFuture.allOf(all.toArray(CompletableFuture[]::new)).get(120, TimeUnit.SECONDS);
        } finally {
            threads.shutdownNow();
        }
        becomesFree("many");
    }

    /** Writes until the client is gone. */
    public static void writeWithoutEnd(OutputStream out) throws IOException {
        byte[] part = new byte[8192];
        while (true) {
            out.write(part);
            out.flush();
        }
    }
}
