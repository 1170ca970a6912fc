package io.sluicegate.http;

import io.sluicegate.Call;
import io.sluicegate.Decision;
import io.sluicegate.ErrorCode;
import io.sluicegate.Transport;
import io.sluicegate.Verb;
import io.sluicegate.internal.AsyncPool;
import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.json.JsonException;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/** Sends requests to a server, each once. */
final class HttpTransport implements Transport, AutoCloseable {
    private final HttpClient client;
    private final AsyncPool pool = new AsyncPool();
    private final URI base;
    private final String token;
    private final String app;
    private final Duration timeout;

    HttpTransport(URI base, String token, String app, Duration timeout) {
        // HTTP/1.1: POST is never repeated by this client.
        this.client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(timeout.dividedBy(2)).build();
        this.base = URI.create(base.toString().replaceAll("/+$", "") + "/");
        this.token = token;
        this.app = app;
        this.timeout = timeout;
    }

    @Override
    public Executor executor() {
        return pool;
    }

    @Override
    public void close() {
        pool.shutdownNow();
    }

    /** An answer with status 200, and the field {@code RateLimit-Policy}. */
    record Answer(Map<?, ?> fields, String policyField) {}

    @Override
    public Decision decide(Call call) throws InterruptedException {
        String path = (call.verb() == Verb.RESERVE ? Verb.CHECK : call.verb()).text();
        return decided(() -> {
            Answer answer = post(path, body(call), new Answers.Asked(call.verb().text(), call.policy()));
            return Answers.decision(call.policy(), answer.fields, answer.policyField);
        });
    }

    /** What reads an answer. */
    interface Reader<T> {
        T read() throws InterruptedException;
    }

    /** {@return what is read; an answer that lacks something is an error} */
    static <T> T decided(Reader<T> reader) throws InterruptedException {
        try {
            return reader.read();
        } catch (NumberFormatException | ClassCastException | NullPointerException | IndexOutOfBoundsException e) {
            throw ErrorCode.SERVER.with(Map.of("status", 200, "detail", "is not a decision"));
        }
    }

    Answer post(String path, Map<String, Object> body, Answers.Asked asked) throws InterruptedException {
        HttpRequest.Builder request = HttpRequest.newBuilder(base.resolve("v1/" + path))
            .header("content-type", "application/json").header("user-agent", "sluicegate-java/0.1.0")
            .POST(HttpRequest.BodyPublishers.ofString(Json.write(body)));
        if (token != null) {
            request.header("authorization", "Bearer " + token);
        }
        HttpResponse<LimitedBody.Body> response = send(request.build());
        byte[] said = response.body().bytes();
        if (said == null) {
            throw ErrorCode.SERVER.with(Map.of("status", response.statusCode(), "detail", "more than " + LimitedBody.BYTES_MAX + " bytes"));
        }
        Map<?, ?> fields;
        try {
            fields = Json.read(said) instanceof Map<?, ?> map ? map : Map.of();
        } catch (JsonException e) {
            fields = Map.of();
        }
        if (response.statusCode() != 200) {
            throw Answers.problem(asked, response.statusCode(), fields);
        }
        return new Answer(fields, response.headers().firstValue("ratelimit-policy").orElse(""));
    }

    // The timeout of a request ends with the head of its answer; this one holds until all of it is there.
    private HttpResponse<LimitedBody.Body> send(HttpRequest request) throws InterruptedException {
        CompletableFuture<HttpResponse<LimitedBody.Body>> sent = client.sendAsync(request, head -> new LimitedBody());
        try {
            return sent.get(timeout.toNanos(), TimeUnit.NANOSECONDS);
        } catch (ExecutionException e) {
            boolean isSent = !(e.getCause() instanceof ConnectException || e.getCause() instanceof HttpConnectTimeoutException);
            throw isSent ? ErrorCode.PERHAPS_CHARGED.with(Map.of("cause", "the server does not answer"))
                : ErrorCode.NOT_CHARGED.with(Map.of("cause", "there is no connection"));
        } catch (TimeoutException e) {
            throw ErrorCode.PERHAPS_CHARGED.with(Map.of("cause", "the server does not answer"));
        } finally {
            sent.cancel(true);
        }
    }

    private Map<String, Object> body(Call call) {
        Map<String, Object> body = question(call.policy(), call.key());
        switch (call.verb()) {
            case RESET, RELEASE, RENEW -> { }
            default -> body.put("cost", call.cost());
        }
        if (call.verb() == Verb.RESERVE) {
            body.put("max_wait_ms", call.maxWaitUs() / 1000);
        }
        if (call.id() != null) {
            body.put("id", call.id());
        }
        return body;
    }

    /** {@return the members that every question has} */
    Map<String, Object> question(String policy, String key) {
        return Json.object("policy", policy, "key", key, "app", app);
    }
}
