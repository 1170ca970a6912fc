package io.sluicegate.http;

import io.sluicegate.Decision;
import io.sluicegate.ErrorCode;
import io.sluicegate.Gate;
import io.sluicegate.Limiter;
import io.sluicegate.Mode;
import io.sluicegate.Overflow;
import io.sluicegate.Quota;
import io.sluicegate.SluicegateException;
import io.sluicegate.internal.AsyncPool;
import io.sluicegate.internal.Call;
import io.sluicegate.internal.Checks;
import io.sluicegate.internal.Transport;
import io.sluicegate.internal.json.Json;
import io.sluicegate.internal.json.JsonException;
import io.sluicegate.internal.kernel.Verb;
import java.io.IOException;
import java.net.ConnectException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpConnectTimeoutException;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Executor;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Asks a Sluicegate server over HTTP. A request is sent once: what got no answer is not repeated. */
public final class HttpGate implements Gate {
    private static final Duration CONNECT = Duration.ofMillis(100);
    private static final Pattern QUOTA = Pattern.compile("\"([a-z0-9._-]{1,128})\";q=([0-9]{1,16})(?:;w=([0-9]{1,10}))?(;qu=\"concurrent-requests\")?");

    private final HttpClient client;
    private final AsyncPool pool = new AsyncPool();
    private final Transport server;

    private HttpGate(Builder builder) {
        // HTTP/1.1: POST is never repeated by this client.
        client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(CONNECT).build();
        server = new Server(builder.server, builder.token, builder.app, builder.timeout);
    }

    /**
     * A gate that asks a server.
     *
     * @param server where it listens, as {@code https://HOST:PORT}
     * @return what is said about the gate
     */
    public static Builder remote(URI server) {
        return new Builder(server);
    }

    @Override
    public Limiter policy(String name) {
        return new Limiter(name, server);
    }

    @Override
    public void close() {
        pool.close();
    }

    /** What a program says of itself. */
    public static final class Builder {
        private final URI server;
        private String token;
        private String app;
        private Duration timeout = Duration.ofMillis(200);

        private Builder(URI server) {
            this.server = server;
        }

        /**
         * The token by which the server knows the program.
         *
         * @param token the token
         * @return this builder
         */
        public Builder token(String token) {
            this.token = token;
            return this;
        }

        /**
         * The program's app, for servers that know apps without tokens.
         *
         * @param app a name
         * @return this builder
         */
        public Builder app(String app) {
            this.app = Checks.app(app);
            return this;
        }

        /**
         * How long an answer may take; 200 ms by default. Where policies queue it must be longer than their
         * {@code max_wait}.
         *
         * @param timeout the time
         * @return this builder
         */
        public Builder timeout(Duration timeout) {
            this.timeout = timeout;
            return this;
        }

        /** {@return the gate} */
        public HttpGate build() {
            return new HttpGate(this);
        }
    }

    private final class Server implements Transport {
        private final URI base;
        private final String token;
        private final String app;
        private final Duration timeout;

        Server(URI base, String token, String app, Duration timeout) {
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
        public Decision decide(Call call) throws InterruptedException {
            String path = "v1/" + (call.verb() == Verb.RESERVE ? Verb.CHECK : call.verb()).text();
            HttpRequest.Builder request = HttpRequest.newBuilder(base.resolve(path)).timeout(timeout)
                .header("content-type", "application/json").header("user-agent", "sluicegate-java/0.1.0")
                .POST(HttpRequest.BodyPublishers.ofString(body(call)));
            if (token != null) {
                request.header("authorization", "Bearer " + token);
            }
            try {
                HttpResponse<byte[]> response = client.send(request.build(), HttpResponse.BodyHandlers.ofByteArray());
                return read(call, response);
            } catch (ConnectException | HttpConnectTimeoutException e) {
                throw ErrorCode.NOT_CHARGED.with(Map.of("cause", "there is no connection"));
            } catch (IOException e) {
                throw ErrorCode.PERHAPS_CHARGED.with(Map.of("cause", "the server does not answer"));
            }
        }

        private String body(Call call) {
            StringBuilder body = new StringBuilder("{\"policy\":").append(Json.quote(call.policy()));
            if (call.key() != null) {
                body.append(",\"key\":").append(Json.quote(call.key()));
            }
            if (app != null) {
                body.append(",\"app\":").append(Json.quote(app));
            }
            if (call.verb() != Verb.RESET && call.verb() != Verb.RELEASE && call.verb() != Verb.RENEW) {
                body.append(",\"cost\":").append(call.cost());
            }
            if (call.verb() == Verb.RESERVE) {
                body.append(",\"max_wait_ms\":").append(call.maxWaitUs() / 1000);
            }
            if (call.id() != null) {
                body.append(",\"id\":").append(Json.quote(call.id()));
            }
            return body.append("}").toString();
        }

        private Decision read(Call call, HttpResponse<byte[]> response) {
            Object value;
            try {
                value = Json.read(response.body());
            } catch (JsonException e) {
                throw problem(call, response.statusCode(), Map.of());
            }
            if (!(value instanceof Map<?, ?> fields) || response.statusCode() != 200) {
                throw problem(call, response.statusCode(), value instanceof Map<?, ?> map ? map : Map.of());
            }
            try {
                return decision(call, fields, response.headers().firstValue("ratelimit-policy").orElse(""));
            } catch (NumberFormatException | ClassCastException | NullPointerException e) {
                throw ErrorCode.SERVER.with(Map.of("status", 200, "detail", "is not a decision"));
            }
        }

        private Decision decision(Call call, Map<?, ?> fields, String policyField) {
            boolean never = fields.get("retry_after_us") == Json.NULL;
            Object mode = fields.get("mode");
            long heldUs = fields.containsKey("held_us") ? number(fields, "held_us") : 0;
            return new Decision((Boolean) fields.get("allowed"), number(fields, "granted"), Math.max(number(fields, "wait_us") - heldUs, 0),
                number(fields, "limit"), number(fields, "remaining"), never ? Decision.NEVER : number(fields, "retry_after_us"),
                number(fields, "reset_after_us"), call.policy(), (String) fields.get("rule"),
                quotas(policyField),
                mode == null ? Mode.STORE : mode(mode.toString()), overflow(fields), heldUs);
        }

        private static List<Quota> quotas(String field) {
            List<Quota> quotas = new ArrayList<>();
            Matcher matcher = QUOTA.matcher(field);
            while (matcher.find()) {
                long windowUs = matcher.group(3) == null ? 0 : Long.parseLong(matcher.group(3)) * 1_000_000;
                quotas.add(new Quota(matcher.group(1), Long.parseLong(matcher.group(2)), windowUs, matcher.group(4) != null));
            }
            return List.copyOf(quotas);
        }

        private static Mode mode(String text) {
            for (Mode mode : Mode.values()) {
                if (mode.name().toLowerCase(Locale.ROOT).equals(text)) {
                    return mode;
                }
            }
            return Mode.STORE;
        }

        private static long number(Map<?, ?> fields, String name) {
            return Long.parseLong(((Json.Num) fields.get(name)).text());
        }

        private static Overflow overflow(Map<?, ?> fields) {
            Object kind = fields.get("overflow");
            if ("shadow".equals(kind)) {
                return new Overflow.Shadow();
            }
            if (fields.get("target") instanceof String target) {
                return new Overflow.Divert(target);
            }
            if (fields.get("tag") instanceof String tag) {
                return new Overflow.Tag(tag);
            }
            if (fields.get("response") instanceof Map<?, ?> response) {
                Map<String, String> headers = new HashMap<>();
                if (response.get("headers") instanceof Map<?, ?> given) {
                    given.forEach((name, value) -> headers.put((String) name, String.valueOf(value)));
                }
                return new Overflow.Response((int) number(response, "status"), headers, (String) response.get("body"));
            }
            return null;
        }

        private static SluicegateException problem(Call call, int status, Map<?, ?> fields) {
            String type = String.valueOf(fields.get("type"));
            String detail = fields.get("detail") instanceof String text ? text : "no detail";
            if (type.endsWith(":unknown-policy")) {
                return ErrorCode.UNKNOWN_POLICY.with(Map.of("policy", call.policy()));
            }
            if (type.endsWith(":not-configured")) {
                return new SluicegateException(ErrorCode.POLICY_NOT_AVAILABLE, detail);
            }
            if (status == 400 && detail.startsWith("op: ")) {
                return ErrorCode.UNSUPPORTED_VERB.with(Map.of("verb", call.verb().text(), "policy", call.policy()));
            }
            return ErrorCode.SERVER.with(Map.of("status", status, "detail", detail));
        }
    }
}
