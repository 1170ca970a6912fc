package io.sluicegate.http;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import io.sluicegate.Charged;
import io.sluicegate.Decision;
import io.sluicegate.ErrorCode;
import io.sluicegate.GateHealth;
import io.sluicegate.Limiter;
import io.sluicegate.SluicegateException;
import io.sluicegate.internal.json.Json;
import io.sluicegate.testing.Checkout;
import io.sluicegate.testing.LogLines;
import io.sluicegate.testing.TestRedis;
import io.sluicegate.testing.Threads;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.URI;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** A server that answers what no server would. */
class FalseServerTest {
    private static final String DECISION = "{\"allowed\":true,\"code\":1,\"granted\":1,\"wait_us\":0,\"limit\":5,\"remaining\":4,"
        + "\"retry_after_us\":0,\"reset_after_us\":1,\"rule\":\"r\"}";
    private static final List<String> NUMBERS = List.of("granted", "wait_us", "limit", "remaining", "retry_after_us", "reset_after_us");

    private final CountDownLatch over = new CountDownLatch(1);
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private HttpServer server;
    private HttpGate gate;
    private volatile int status = 200;
    private volatile Body body = out -> out.write(DECISION.getBytes(StandardCharsets.UTF_8));

    private interface Body {
        void write(OutputStream out) throws IOException, InterruptedException;
    }

    @BeforeEach
    void start() throws IOException {
        server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 0);
        server.setExecutor(threads);
        server.createContext("/", exchange -> {
            exchange.getRequestBody().readAllBytes();
            exchange.sendResponseHeaders(status, 0);
            try (OutputStream out = exchange.getResponseBody()) {
                body.write(out);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        });
        server.start();
        gate = gate(Duration.ofSeconds(20));
    }

    private HttpGate gate(Duration timeout) {
        return HttpGate.remote(URI.create("http://127.0.0.1:" + server.getAddress().getPort())).timeout(timeout).warmUp(false).build();
    }

    @AfterEach
    void stop() {
        over.countDown();
        gate.close();
        server.stop(0);
        threads.shutdownNow();
    }

    private String error(String text, Executable call) {
        body = out -> out.write(text.getBytes(StandardCharsets.UTF_8));
        SluicegateException e = assertThrows(SluicegateException.class, call, text);
        assertEquals(ErrorCode.SERVER, e.code(), text);
        return e.getMessage();
    }

    private void isNoDecision(String text) {
        assertEquals("server: 200 is not a decision", error(text, () -> gate.policy("p").check("k")), text);
    }

    @Test
    void an_answer_of_another_shape_is_no_decision() {
        for (String text : List.of("", "null", "[]", "{}", "<html>", "[".repeat(100_000), "{\"allowed\":true}",
            DECISION.replace("\"rule\":\"r\"", "\"rule\":1"), DECISION.replace(",\"rule\":\"r\"", ""), DECISION.replace("true", "\"true\""),
            DECISION.replace("true", "1"), DECISION.replace("\"rule\"", "\"mode\":5,\"rule\""))) {
            isNoDecision(text);
        }
    }

    @Test
    void a_number_that_none_can_be_is_no_decision() {
        for (String name : NUMBERS) {
            for (String number : List.of("-1", "9007199254740993", "1208925819614629174706176", "1.5", "1e3", "\"1\"", "true", "[]")) {
                isNoDecision(DECISION.replaceFirst("(\"" + name + "\":)[0-9]+", "$1" + number));
            }
        }
        body = out -> out.write(DECISION.replace("\"limit\":5", "\"limit\":9007199254740992").getBytes(StandardCharsets.UTF_8));
        assertEquals(1L << 53, gate.policy("p").check("k").limit());
    }

    @Test
    void a_batch_has_an_answer_to_each_check() {
        List<Check> two = List.of(new Check("p", "a"), new Check("p", "b"));
        for (String answers : List.of("[]", "[" + DECISION + "]", "[" + DECISION + "," + DECISION + "," + DECISION + "]", "null", "[1,2]")) {
            assertEquals("server: 200 is not a decision", error("{\"answers\":" + answers + "}", () -> gate.checkEach(two)));
            assertEquals("server: 200 is not a decision", error("{\"allowed\":true,\"answers\":" + answers + "}", () -> gate.checkAll(two)));
        }
        for (String refused : List.of("-1", "2", "4294967296", "null")) {
            assertEquals("server: 200 is not a decision",
                error("{\"allowed\":false,\"refused\":" + refused + ",\"answers\":[" + DECISION + "]}", () -> gate.checkAll(two)));
        }
    }

    @Test
    void a_body_that_drips_ends_with_the_timeout() {
        body = out -> {
            for (byte each : DECISION.getBytes(StandardCharsets.UTF_8)) {
                out.write(each);
                out.flush();
                over.await(1, TimeUnit.SECONDS);
            }
        };
        try (HttpGate soon = gate(Duration.ofSeconds(1))) {
            // It drips for more than two minutes.
            SluicegateException late = assertTimeoutPreemptively(Duration.ofSeconds(40),
                () -> assertThrows(SluicegateException.class, () -> soon.policy("p").check("k")));
            assertEquals(ErrorCode.PERHAPS_CHARGED, late.code());
        }
    }

    @Test
    void calls_whose_callers_do_not_wait_share_few_threads_and_end_with_the_timeout() throws Exception {
        CountDownLatch answers = new CountDownLatch(1);
        body = out -> {
            answers.await(20, TimeUnit.SECONDS);
            out.write(DECISION.getBytes(StandardCharsets.UTF_8));
        };
        List<CompletableFuture<Decision>> all = new ArrayList<>();
        for (int call = 0; call < 300; call++) {
            all.add(gate.policy("p").checkAsync("k"));
        }
        try (HttpGate soon = gate(Duration.ofMillis(50))) {
            ExecutionException late = assertThrows(ExecutionException.class, () -> soon.policy("p").checkAsync("k").get(20, TimeUnit.SECONDS));
            assertEquals(Charged.UNKNOWN, ((SluicegateException) late.getCause()).charged());
        }
        assertTrue(all.stream().noneMatch(CompletableFuture::isDone));
        for (int call = 0; call < 300; call += 2) {
            assertTrue(all.get(call).cancel(true));
        }
        answers.countDown();
        for (int call = 1; call < 300; call += 2) {
            assertEquals(4, all.get(call).get(20, TimeUnit.SECONDS).remaining());
        }
        assertTrue(Threads.named("sluicegate-call").size() <= 8, Threads.named("sluicegate").toString());
    }

    @Test
    void a_body_is_read_up_to_its_longest() throws InterruptedException {
        CountDownLatch ended = new CountDownLatch(1);
        body = out -> {
            try {
                byte[] blanks = " ".repeat(65_536).getBytes(StandardCharsets.US_ASCII);
                for (int part = 0; part < 1 << 20; part++) {
                    out.write(blanks);
                }
            } finally {
                ended.countDown();
            }
        };
        SluicegateException e = assertThrows(SluicegateException.class, () -> gate.policy("p").check("k"));
        assertEquals("server: 200 more than 8388608 bytes", e.getMessage());
        // The connection is given up: 64 GiB are not read.
        assertTrue(ended.await(20, TimeUnit.SECONDS));
        byte[] most = (DECISION + " ".repeat(LimitedBody.BYTES_MAX - DECISION.length())).getBytes(StandardCharsets.US_ASCII);
        body = out -> out.write(most);
        assertEquals(4, gate.policy("p").check("k").remaining());
    }

    @Test
    void an_error_of_a_server_says_whether_the_request_was_charged() {
        List<?> entries = (List<?>) ((Map<?, ?>) Json.read(Checkout.bytes("spec/wire/problems.json"))).get("entries");
        assertTrue(entries.size() >= 20);
        for (Object each : entries) {
            Map<?, ?> entry = (Map<?, ?>) each;
            byte[] text = ((String) entry.get("body")).getBytes(StandardCharsets.UTF_8);
            Charged charged = Charged.valueOf(((String) entry.get("charged")).toUpperCase(Locale.ROOT));
            status = ((Long) entry.get("status")).intValue();
            body = out -> out.write(text);
            for (Executable call : List.<Executable>of(() -> gate.policy("p").check("k"), () -> gate.settle(new Check("p", "k", 2), "id", 1),
                () -> gate.checkAll(List.of(new Check("p", "k"))))) {
                SluicegateException e = assertThrows(SluicegateException.class, call);
                assertEquals(charged, e.charged(), () -> (String) entry.get("body"));
                assertTrue(e.code() != ErrorCode.NOT_CHARGED || charged == Charged.NO, () -> (String) entry.get("body"));
                assertTrue(e.code() != ErrorCode.PERHAPS_CHARGED || charged != Charged.NO, () -> (String) entry.get("body"));
            }
        }
    }

    @Test
    void what_a_server_says_is_cut() {
        status = 503;
        String message = error("{\"type\":\"urn:x\",\"detail\":\"" + "x".repeat(500_000) + "\"}", () -> gate.policy("p").check("k"));
        assertEquals("server: 503 " + "x".repeat(1023) + "…", message);
    }

    @Test
    void a_timeout_has_a_range() {
        for (Duration timeout : List.of(Duration.ZERO, Duration.ofNanos(-1), Duration.ofDays(367), Duration.ofSeconds(Long.MAX_VALUE))) {
            assertThrows(IllegalArgumentException.class, () -> gate(timeout));
        }
    }

    private GateHealth.State ask(Limiter limiter) {
        try {
            limiter.check("k");
        } catch (SluicegateException e) {
            assertFalse(e.getMessage().isEmpty());
        }
        return gate.health().state();
    }

    private void answers(int status, String text) {
        this.status = status;
        body = out -> out.write(text.getBytes(StandardCharsets.UTF_8));
    }

    @Test
    void the_health_and_the_log_say_why_nobody_decides_and_when_it_is_over() {
        String address = "http://127.0.0.1:" + server.getAddress().getPort();
        Limiter p = gate.policy("p");
        try (LogLines log = new LogLines()) {
            assertEquals(GateHealth.State.UP, ask(p));
            assertEquals(GateHealth.up(address), gate.health());
            String[][] faults = {
                {"401", "{\"type\":\"urn:sluicegate:problem:bad-token\",\"detail\":\"authorization: invalid token\"}", "it answers 401: authorization: invalid token"},
                {"500", "oh", "it answers 500, and not as a server of Sluicegate does"},
                {"503", "{\"type\":\"urn:sluicegate:problem:no-store\",\"detail\":\"store: Redis does not answer\"}", "it answers 503: store: Redis does not answer"},
                {"200", "<html>", "it answers 200, and not as a server of Sluicegate does"}};
            for (String[] fault : faults) {
                answers(Integer.parseInt(fault[0]), fault[1]);
                assertEquals(GateHealth.State.DOWN, ask(p), fault[0]);
                assertEquals(GateHealth.State.DOWN, ask(p), fault[0]);
                assertEquals(fault[2], gate.health().cause());
                assertEquals(List.of("WARNING the server at " + address + " does not decide: " + fault[2]
                    + "; nothing decides meanwhile: requests get no decision, and filters answer 503"), log.with(fault[2]));
            }
            // An answer about a request is an answer.
            answers(404, "{\"type\":\"urn:sluicegate:problem:unknown-policy\",\"detail\":\"policy: unknown policy `p`\"}");
            assertEquals(GateHealth.State.UP, ask(p));
            assertEquals(1, log.with("INFO the server at " + address + " decides again, after ").size(), log.all().toString());
        }
    }

    @Test
    void the_log_says_which_policy_the_server_lacks_and_when_it_is_back() {
        String address = "http://127.0.0.1:" + server.getAddress().getPort();
        String[][] faults = {
            {"p", "404", "unknown-policy", "policy: unknown policy `p`"},
            {"q", "403", "not-configured", "app: policy `q` is not available to app `shop`"}};
        try (LogLines log = new LogLines()) {
            for (String[] fault : faults) {
                answers(Integer.parseInt(fault[1]), "{\"type\":\"urn:sluicegate:problem:" + fault[2] + "\",\"detail\":\"" + fault[3] + "\"}");
                ask(gate.policy(fault[0]));
                ask(gate.policy(fault[0]));
                assertEquals(List.of("WARNING the server at " + address + " has no policy `" + fault[0] + "` for this program: " + fault[3]
                    + "; requests by it get no decision"), log.with("`" + fault[0] + "`"));
            }
            answers(200, DECISION);
            ask(gate.policy("other"));
            assertEquals(2, log.all().size(), log.all().toString());
            for (String policy : List.of("p", "p", "q", "q")) {
                ask(gate.policy(policy));
            }
            assertEquals(4, log.all().size(), log.all().toString());
            for (String policy : List.of("p", "q")) {
                assertEquals(1, log.with("INFO the server at " + address + " decides by policy `" + policy + "` again, after ").size(), log.all().toString());
            }
        }
    }

    @Test
    void the_log_says_of_so_many_policies_that_the_server_lacks_them() {
        answers(404, "{\"type\":\"urn:sluicegate:problem:unknown-policy\",\"detail\":\"policy: unknown policy\"}");
        try (LogLines log = new LogLines()) {
            for (int number = 0; number < ServerWatch.LACKING_MAX + 20; number++) {
                ask(gate.policy("p" + number));
            }
            assertEquals(ServerWatch.LACKING_MAX, log.all().size());
        }
    }

    @Test
    void a_server_that_is_away_or_hangs_is_not_healthy_before_the_first_request() {
        int nobody = TestRedis.freePort();
        try (HttpGate away = HttpGate.remote(URI.create("http://user:secret@127.0.0.1:" + nobody)).build(); LogLines log = new LogLines()) {
            assertEquals(GateHealth.State.DOWN, away.health().state());
            assertEquals("http://127.0.0.1:" + nobody + " connection refused", away.health().address() + " " + away.health().cause());
            assertTrue(log.with("secret").isEmpty() && log.with("connection refused").size() == 1, log.all().toString());
        }
        body = out -> over.await(20, TimeUnit.SECONDS);
        try (HttpGate hung = gate(Duration.ofMillis(100))) {
            assertEquals("it gives no answer within 100 ms", hung.health().cause());
            assertEquals(ErrorCode.PERHAPS_CHARGED, assertThrows(SluicegateException.class, () -> hung.policy("p").check("k")).code());
        }
    }

    @Test
    void a_connection_may_take_the_whole_timeout_and_nothing_is_charged_without_one() throws IOException {
        // Where nobody accepts, the system leaves further connections without an answer.
        List<SocketChannel> waiting = new ArrayList<>();
        try (ServerSocket full = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            for (int number = 0; number < 8; number++) {
                SocketChannel each = SocketChannel.open();
                each.configureBlocking(false);
                each.connect(full.getLocalSocketAddress());
                waiting.add(each);
            }
            URI uri = URI.create("http://127.0.0.1:" + full.getLocalPort());
            for (boolean warmsUp : new boolean[] {false, true}) {
                try (HttpGate away = HttpGate.remote(uri).timeout(Duration.ofMillis(40)).warmUp(warmsUp).build()) {
                    assertEquals(ErrorCode.NOT_CHARGED, assertThrows(SluicegateException.class, () -> away.policy("p").check("k")).code());
                    assertEquals("there is no connection within " + (warmsUp ? 500 : 40) + " ms", away.health().cause());
                    Throwable late = assertThrows(ExecutionException.class, () -> away.policy("p").checkAsync("k").get()).getCause();
                    assertEquals(ErrorCode.NOT_CHARGED, ((SluicegateException) late).code());
                }
            }
        } finally {
            for (SocketChannel each : waiting) {
                each.close();
            }
        }
    }

    @Test
    void a_gate_asks_whether_the_server_lives_before_the_first_request_and_not_longer_than_it_is_worth() {
        AtomicInteger requests = new AtomicInteger();
        server.createContext("/livez", exchange -> {
            requests.incrementAndGet();
            exchange.sendResponseHeaders(200, -1);
            exchange.close();
        });
        URI uri = URI.create("http://127.0.0.1:" + server.getAddress().getPort());
        try (HttpGate warm = HttpGate.remote(uri).build()) {
            assertTrue(requests.get() > 1, requests + " were asked");
            assertEquals(4, warm.policy("p").check("k").remaining());
        }
        server.removeContext("/livez");
        body = out -> over.await(20, TimeUnit.SECONDS);
        long began = System.nanoTime();
        HttpGate.remote(uri).build().close();
        long ms = (System.nanoTime() - began) / 1_000_000;
        assertTrue(ms < 2000, "a server that hangs holds up a start for " + ms + " ms");
    }
}
