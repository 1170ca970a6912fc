package io.sluicegate.http;

import io.sluicegate.Decision;
import io.sluicegate.ErrorCode;
import io.sluicegate.Gate;
import io.sluicegate.GateHealth;
import io.sluicegate.Limiter;
import io.sluicegate.SluicegateException;
import io.sluicegate.internal.Checks;
import io.sluicegate.internal.json.Json;
import java.net.URI;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;

/**
 * Asks a Sluicegate server over HTTP. A request is sent once: what got no answer is not repeated. Beside limiters it has what
 * only a server can do: batches, settlements and explanations.
 */
public final class HttpGate implements Gate {
    private static final Answers.Operation BATCH = new Answers.Operation("check", null);
    private static final int PORT_MAX = 65535;

    private final HttpTransport server;

    private HttpGate(Builder builder) {
        server = new HttpTransport(builder.server, builder.token, builder.app, builder.timeout, builder.warmsUp);
    }

    /**
     * A gate that sends its requests to a server.
     *
     * @param server where it listens, as {@code https://HOST:PORT}
     * @return a builder, with which you configure the gate
     * @throws IllegalArgumentException if it is not the address of a server over HTTP, or has a query
     */
    public static Builder remote(URI server) {
        boolean isHttp = "http".equalsIgnoreCase(server.getScheme()) || "https".equalsIgnoreCase(server.getScheme());
        if (!isHttp || server.getHost() == null || server.getPort() > PORT_MAX || server.getRawQuery() != null || server.getRawFragment() != null) {
            String shown = server.getScheme() + "://" + (server.getHost() == null ? "" : server.getHost()) + (server.getPort() < 0 ? "" : ":" + server.getPort());
            throw new IllegalArgumentException("server: `" + shown + "` is not an address; expected `http://HOST:PORT` or `https://..`, without a query");
        }
        return new Builder(server);
    }

    @Override
    public Limiter policy(String name) {
        return new Limiter(name, server);
    }

    /**
     * The health of the server, as this program sees it: {@link GateHealth.State#DOWN} if it does not decide, also because it does not accept
     * the token. If there was no request for 10 s, one is sent now.
     *
     * @return the health
     */
    @Override
    public GateHealth health() {
        return server.health();
    }

    @Override
    public void close() {
        server.close();
    }

    /**
     * Checks several at once: each is decided on its own, whatever becomes of the others.
     *
     * @param checks 1 to 100 of them
     * @return an answer to each, in their order
     * @throws SluicegateException if none was decided
     */
    public List<CheckAnswer> checkEach(List<Check> checks) {
        return server.post("check:batch", batch(checks, false), BATCH, fields -> {
            List<?> items = answers(fields, checks.size());
            List<CheckAnswer> answers = new ArrayList<>();
            for (int place = 0; place < checks.size(); place++) {
                Map<?, ?> each = (Map<?, ?>) items.get(place);
                String policy = checks.get(place).policy();
                answers.add(each.containsKey("allowed")
                    ? new CheckAnswer(Answers.decision(policy, each, ""), null)
                    : new CheckAnswer(null, Answers.problem(new Answers.Operation("check", policy), (int) Answers.number(each, "status", Answers.STATUS_MAX), each)));
            }
            return List.copyOf(answers);
        });
    }

    /**
     * Checks several at once: all are charged, or none is. Meanwhile other requests may be refused for permits that are
     * given back in the end; none passes for that reason.
     *
     * @param checks 1 to 100 of them; none of them waits
     * @return the answer
     * @throws SluicegateException if there is no decision
     */
    public AtomicAnswer checkAll(List<Check> checks) {
        return server.post("check:batch", batch(checks, true), BATCH, fields -> {
            boolean allowed = Answers.bool(fields, "allowed");
            int refused = allowed ? AtomicAnswer.NONE : (int) Answers.number(fields, "refused", checks.size() - 1);
            List<Decision> decisions = new ArrayList<>();
            int place = Math.max(refused, 0);
            for (Object each : answers(fields, allowed ? checks.size() : 1)) {
                decisions.add(Answers.decision(checks.get(place++).policy(), (Map<?, ?>) each, ""));
            }
            return new AtomicAnswer(allowed, refused, List.copyOf(decisions));
        });
    }

    /**
     * Corrects a charge that was an estimate: gives back what was too much, or takes what was too little, as far as
     * permits are left. An id is settled once an hour; the second time changes nothing, and is an {@link ErrorCode#SERVER}
     * whose {@link SluicegateException#status()} is 409.
     *
     * @param charged the check, with the cost that was charged
     * @param id a name of it, 1 to 1,024 bytes
     * @param cost what it came to, 0 to 2^31
     * @return what was corrected
     * @throws SluicegateException if nothing was corrected, or it is not known
     */
    public Settlement settle(Check charged, String id, long cost) {
        Map<String, Object> body = server.requestBody(charged.policy(), charged.key());
        body.put("id", Checks.id(id));
        body.put("charged", charged.cost());
        body.put("cost", cost == 0 ? 0 : Checks.cost(cost));
        return server.post("settle", body, new Answers.Operation("settle", charged.policy()), fields -> new Settlement(
            Answers.number(fields, "refunded"), Answers.number(fields, "taken"), Answers.number(fields, "missing"),
            Answers.decision(charged.policy(), (Map<?, ?>) fields.get("decision"), "")));
    }

    /**
     * Explains what a check would now come to. Nothing is charged.
     *
     * @param check the check
     * @return which rules hold, and the answer of each of them
     * @throws SluicegateException if there is no explanation
     */
    public Explanation explain(Check check) {
        return server.post("explain", checkBody(check), new Answers.Operation("explain", check.policy()),
            fields -> Explanation.read(check.policy(), fields));
    }

    private static List<?> answers(Map<?, ?> fields, int number) {
        List<?> answers = (List<?>) fields.get("answers");
        if (answers.size() != number) {
            throw new IndexOutOfBoundsException(answers.size());
        }
        return answers;
    }

    private Map<String, Object> checkBody(Check check) {
        Map<String, Object> body = server.requestBody(check.policy(), check.key());
        body.put("cost", check.cost());
        return body;
    }

    private Map<String, Object> batch(List<Check> checks, boolean atomic) {
        return Json.object("atomic", atomic, "checks", checks.stream().map(this::checkBody).toList());
    }

    /** The options of a program. It is for one thread. */
    public static final class Builder {
        private static final Duration TIMEOUT_MIN = Duration.ofMillis(1);
        /** The longest that a queue holds a request back. */
        private static final Duration TIMEOUT_MAX = Duration.ofDays(366);

        private final URI server;
        private String token;
        private String app;
        private Duration timeout = Duration.ofMillis(200);
        private boolean warmsUp = true;

        private Builder(URI server) {
            this.server = Objects.requireNonNull(server, "server");
        }

        /**
         * The token by which the server authenticates the program.
         *
         * @param token the token
         * @return this builder
         * @throws IllegalArgumentException if it has a character that a header field cannot have
         */
        public Builder token(String token) {
            if (token.chars().anyMatch(c -> c < ' ' && c != '\t' || c == 0x7f || c > 0xff)) {
                throw new IllegalArgumentException("token: has a character that a header field cannot have");
            }
            this.token = token;
            return this;
        }

        /**
         * The program's app, for servers that accept apps without tokens.
         *
         * @param app a name
         * @return this builder
         */
        public Builder app(String app) {
            this.app = Checks.app(app);
            return this;
        }

        /**
         * Sets the time that an answer may take, with the connection that it may need; 200 ms by default. Where policies queue it must be longer than their
         * {@code max_wait}.
         *
         * @param timeout 1 ms to 366 d
         * @return this builder
         * @throws IllegalArgumentException if it is no such time
         */
        public Builder timeout(Duration timeout) {
            if (timeout.compareTo(TIMEOUT_MIN) < 0 || timeout.compareTo(TIMEOUT_MAX) > 0) {
                throw new IllegalArgumentException("timeout: `" + timeout + "` is outside 1 ms to 366 d");
            }
            this.timeout = timeout;
            return this;
        }

        /**
         * Says whether the process has just started, and runs the path of a request for the first time; it is so by default. Then
         * {@link #build()} sends the server some hundred health checks, for half a second at most, and in the first 5 s after the
         * first request the timeout is 500 ms, if it is set to less.
         *
         * @param warmsUp false for a process that has sent requests before, and for tests about short timeouts
         * @return this builder
         */
        public Builder warmUp(boolean warmsUp) {
            this.warmsUp = warmsUp;
            return this;
        }

        /** {@return the gate} The server need not answer yet. */
        public HttpGate build() {
            return new HttpGate(this);
        }
    }
}
