package io.sluicegate.http;

import io.sluicegate.Call;
import io.sluicegate.Decision;
import io.sluicegate.ErrorCode;
import io.sluicegate.GateHealth;
import io.sluicegate.SluicegateException;
import io.sluicegate.Transport;
import io.sluicegate.Verb;
import io.sluicegate.internal.Alarm;
import io.sluicegate.internal.AsyncCalls;
import io.sluicegate.internal.AsyncPool;
import io.sluicegate.internal.Causes;
import io.sluicegate.internal.Deadline;
import io.sluicegate.internal.Texts;
import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.json.JsonException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.function.Supplier;

/**
 * Sends requests to a server, each once. Each request that is under way has a connection of its own (HTTP/1.1), so at most 64 of callers
 * that do not wait are sent at a time.
 */
final class HttpTransport implements Transport, AutoCloseable {
    /**
     * Time that requests before the first one may take, and their number: they are health checks. So the client is compiled, and
     * there is a connection for as many as may come at once.
     */
    private static final long WARM_UP_NANOS = TimeUnit.MILLISECONDS.toNanos(500);
    private static final int WARM_UP_ROUNDS = 6;
    private static final int WARM_UP_AT_ONCE = AsyncPool.CALLS_AT_ONCE_MAX;
    private static final byte[] SAMPLE = ("{\"allowed\":true,\"granted\":1,\"wait_us\":0,\"limit\":1,\"remaining\":0,\"retry_after_us\":0,"
        + "\"reset_after_us\":1,\"rule\":\"r\"}").getBytes(StandardCharsets.US_ASCII);
    /**
     * Permits that are asked for at a time without a thread: each may wait at the server, on a connection of its own. Others wait here. They are apart
     * from other calls, which would wait behind them: also the releases that they wait for.
     */
    static final int ACQUIRES_AT_ONCE_MAX = 1_024;
    private static final int OK = 200;
    private static final int UNAUTHORIZED = 401;
    private static final int SERVER_ERROR = 500;

    private final HttpClient client;
    private final AsyncPool pool = new AsyncPool(AsyncCalls.THREADS);
    private final AsyncCalls calls = new AsyncCalls(AsyncPool.CALLS_AT_ONCE_MAX, pool);
    private final AsyncCalls acquires = new AsyncCalls(ACQUIRES_AT_ONCE_MAX, pool);
    private final URI base;
    private final String token;
    private final String app;
    private final Deadline timeout;
    private final ServerWatch watch;

    HttpTransport(URI base, String token, String app, Duration timeout, boolean warmsUp) {
        // HTTP/1.1: POST is never repeated by this client.
        this.client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        this.base = URI.create(base.toString().replaceAll("/+$", "") + "/");
        this.token = token;
        this.app = app;
        this.timeout = new Deadline(timeout.toNanos(), warmsUp);
        this.watch = new ServerWatch(base.toString().replaceAll("//.*@", "//").replaceAll("/+$", ""), Alarm::new, System::nanoTime);
        if (warmsUp) {
            warmUp();
        }
    }

    // Where the server does not answer, the requests will show it.
    private void warmUp() {
        HttpRequest look = HttpRequest.newBuilder(base.resolve("livez")).GET().build();
        long until = System.nanoTime() + WARM_UP_NANOS;
        List<CompletableFuture<?>> under = new ArrayList<>();
        try {
            for (int round = 0; round < WARM_UP_ROUNDS; round++) {
                for (int at = 0; at < (round == 0 ? 1 : WARM_UP_AT_ONCE); at++) {
                    under.add(send(look));
                }
                for (CompletableFuture<?> each : under) {
                    each.get(Math.max(until - System.nanoTime(), 0), TimeUnit.NANOSECONDS);
                }
                under.clear();
                Answers.decision("warm-up", (Map<?, ?>) Json.read(SAMPLE), "\"r\";q=1;w=1");
            }
        } catch (ExecutionException | TimeoutException e) {
            under.forEach(each -> each.cancel(true));
        } catch (InterruptedException e) {
            under.forEach(each -> each.cancel(true));
            Thread.currentThread().interrupt();
        }
    }

    /** {@return what the server answered lately; without requests one is sent that has nothing in it} */
    GateHealth health() {
        if (!watch.isKnown()) {
            try {
                answer(post(request("peek", Map.of()), timeout.ofLook(System.nanoTime())), new Answers.Operation("peek", null));
            } catch (SluicegateException e) {
                // What it means has been noted.
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
        return watch.health();
    }

    @Override
    public void close() {
        acquires.close();
        calls.close();
    }

    /** An answer with status 200, and the field {@code RateLimit-Policy}. */
    private record Answer(Map<?, ?> fields, String policyField) {}

    @Override
    public Decision decide(Call call) throws InterruptedException {
        return decision(call, post(request(call, call.maxWaitUs()), nanos(call, call.maxWaitUs())));
    }

    @Override
    public CompletableFuture<Decision> decideAsync(Call call) {
        boolean mayWait = call.verb() == Verb.ACQUIRE;
        long calledNanos = System.nanoTime();
        return (mayWait ? acquires : calls).begin(begun -> {
            // What it has waited here, it does not wait at the server, which counts in ms.
            long waitedMs = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - calledNanos);
            long maxWaitUs = call.waitsForPermit() ? Math.max(call.maxWaitUs() - TimeUnit.MILLISECONDS.toMicros(waitedMs), 0) : call.maxWaitUs();
            HttpRequest request = request(call, maxWaitUs);
            CompletableFuture<HttpResponse<LimitedBody.Body>> sent = send(request);
            if (mayWait) {
                // The server sees the connection end, and lets the request wait no longer.
                begun.ifAbandoned(() -> sent.cancel(true));
            }
            long nanos = nanos(call, maxWaitUs);
            sent.copy().orTimeout(nanos, TimeUnit.NANOSECONDS).whenComplete((response, problem) -> {
                sent.cancel(true);
                if (problem != null && begun.isAbandoned()) {
                    // It says nothing about the server.
                    begun.end(null, problem);
                    return;
                }
                try {
                    begun.end(decision(call, answered(request, response, problem, nanos)), null);
                } catch (RuntimeException | Error e) {
                    begun.end(null, e);
                }
            });
        });
    }

    /** {@return the time for an answer} The server may first hold the request back. */
    private long nanos(Call call, long maxWaitUs) {
        long nanos = timeout.ofDecision(System.nanoTime());
        long waitNanos = call.waitsForPermit() ? TimeUnit.MICROSECONDS.toNanos(maxWaitUs) : 0;
        return waitNanos > Long.MAX_VALUE - nanos ? Long.MAX_VALUE : nanos + waitNanos;
    }

    private HttpRequest request(Call call, long maxWaitUs) {
        return request((call.verb() == Verb.RESERVE ? Verb.CHECK : call.verb()).text(), body(call, maxWaitUs));
    }

    private Decision decision(Call call, HttpResponse<LimitedBody.Body> response) {
        String verb = call.waitsForPermit() ? Texts.ACQUIRE_WITH_MAX_WAIT : call.verb().text();
        Answer answer = answer(response, new Answers.Operation(verb, call.policy()));
        return decided(() -> Answers.decision(call.policy(), answer.fields, answer.policyField));
    }

    /** {@return what is read; an answer that lacks something is an error} */
    static <T> T decided(Supplier<T> reader) {
        try {
            return reader.get();
        } catch (NumberFormatException | ClassCastException | NullPointerException | IndexOutOfBoundsException e) {
            throw ErrorCode.SERVER.with(Map.of("status", 200, "detail", "is not a decision"));
        }
    }

    /** {@return what is read of the answer to a request, for which the thread waits} */
    <T> T post(String path, Map<String, Object> body, Answers.Operation operation, Function<Map<?, ?>, T> reader) {
        HttpResponse<LimitedBody.Body> response;
        try {
            response = post(request(path, body), timeout.ofDecision(System.nanoTime()));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw ErrorCode.INTERRUPTED.with(Map.of("cause", "the thread was interrupted"));
        }
        Map<?, ?> fields = answer(response, operation).fields;
        return decided(() -> reader.apply(fields));
    }

    private HttpRequest request(String path, Map<String, Object> body) {
        HttpRequest.Builder request = HttpRequest.newBuilder(base.resolve("v1/" + path))
            .header("content-type", "application/json").header("user-agent", "sluicegate-java/0.1.0")
            .POST(new TrackedBody(Json.write(body)));
        if (token != null) {
            request.header("authorization", "Bearer " + token);
        }
        return request.build();
    }

    private Answer answer(HttpResponse<LimitedBody.Body> response, Answers.Operation operation) {
        byte[] body = response.body().bytes();
        if (body == null) {
            watch.failed("it answers with more than " + LimitedBody.BYTES_MAX + " bytes");
            throw ErrorCode.SERVER.with(Map.of("status", response.statusCode(), "detail", "more than " + LimitedBody.BYTES_MAX + " bytes"));
        }
        Map<?, ?> fields;
        try {
            fields = Json.read(body) instanceof Map<?, ?> map ? map : Map.of();
        } catch (JsonException e) {
            fields = Map.of();
        }
        updateWatch(response.statusCode(), fields);
        if (response.statusCode() != OK) {
            throw problem(operation, response.statusCode(), fields);
        }
        if (operation.policy() != null) {
            watch.decides(operation.policy());
        }
        return new Answer(fields, response.headers().firstValue("ratelimit-policy").orElse(""));
    }

    private SluicegateException problem(Answers.Operation operation, int status, Map<?, ?> fields) {
        SluicegateException problem = Answers.problem(operation, status, fields);
        boolean lacksPolicy = problem.code() == ErrorCode.UNKNOWN_POLICY || problem.code() == ErrorCode.POLICY_NOT_AVAILABLE;
        if (lacksPolicy && operation.policy() != null) {
            watch.lacks(operation.policy(), problem.getMessage());
        }
        return problem;
    }

    // Another app's token is like a wrong one; a policy that is not for this app is an answer.
    private void updateWatch(int status, Map<?, ?> fields) {
        boolean isOurs = status == OK ? !fields.isEmpty() : fields.get("type") != null;
        boolean lacksRight = status == UNAUTHORIZED || String.valueOf(fields.get("type")).endsWith(":other-app");
        if (isOurs && status < SERVER_ERROR && !lacksRight) {
            watch.answered();
            return;
        }
        String detail = fields.get("detail") instanceof String text ? ": " + Texts.truncate(text) : "";
        watch.failed("it answers " + status + (isOurs ? detail : ", and not as a server of Sluicegate does"));
    }

    private CompletableFuture<HttpResponse<LimitedBody.Body>> send(HttpRequest request) {
        return client.sendAsync(request, head -> new LimitedBody());
    }

    // The timeout of a request ends with the head of its answer; this one holds until all of it is there.
    private HttpResponse<LimitedBody.Body> post(HttpRequest request, long nanos) throws InterruptedException {
        CompletableFuture<HttpResponse<LimitedBody.Body>> sent = send(request);
        try {
            return answered(request, sent.get(nanos, TimeUnit.NANOSECONDS), null, nanos);
        } catch (ExecutionException | TimeoutException e) {
            return answered(request, null, e, nanos);
        } finally {
            sent.cancel(true);
        }
    }

    /** {@return the response, or throws what a problem of the client comes to} */
    private HttpResponse<LimitedBody.Body> answered(HttpRequest request, HttpResponse<LimitedBody.Body> response, Throwable problem, long nanos) {
        if (problem == null) {
            return response;
        }
        boolean isSent = TrackedBody.isSent(request);
        Throwable cause = problem instanceof TimeoutException ? null : problem.getCause() == null ? problem : problem.getCause();
        // Which side is late is not known: this process may have stood still.
        watch.failed(cause == null ? (isSent ? "it gives no answer within " : "there is no connection within ") + TimeUnit.NANOSECONDS.toMillis(nanos) + " ms"
            : Causes.text(cause, each -> null));
        throw !isSent ? ErrorCode.NOT_CHARGED.with(Map.of("cause", "there is no connection"))
            : ErrorCode.PERHAPS_CHARGED.with(Map.of("cause", "the server does not answer"));
    }

    private Map<String, Object> body(Call call, long maxWaitUs) {
        Map<String, Object> body = requestBody(call.policy(), call.key());
        switch (call.verb()) {
            case RESET, RELEASE, RENEW -> { }
            default -> body.put("cost", call.cost());
        }
        if (call.verb() == Verb.RESERVE || call.waitsForPermit()) {
            body.put("max_wait_ms", maxWaitUs / 1000);
        }
        if (call.id() != null) {
            body.put("id", call.id());
        }
        return body;
    }

    /** {@return the members that every request has} */
    Map<String, Object> requestBody(String policy, String key) {
        return Json.object("policy", policy, "key", key, "app", app);
    }
}
