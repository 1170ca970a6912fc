package io.sluicegate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.net.httpserver.HttpServer;
import io.micrometer.core.instrument.MeterRegistry;
import io.micrometer.core.instrument.Timer;
import io.micrometer.core.instrument.simple.SimpleMeterRegistry;
import io.sluicegate.micrometer.DecisionMeters;
import io.sluicegate.testing.Checkout;
import io.sluicegate.testing.LogLines;
import io.sluicegate.testing.LossyProxy;
import io.sluicegate.testing.Records;
import io.sluicegate.testing.TestRedis;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.springframework.boot.WebApplicationType;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.boot.builder.SpringApplicationBuilder;
import org.springframework.context.ConfigurableApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** Plays each row of the page of faults with an application of Spring Boot, and compares what the row promises. */
class FaultPageTest {
    private static final String PAGE = "docs/sdk-faults.md";
    private static final int ASKS = 20;
    private static final Map<String, Row> ROWS = new TreeMap<>();
    private static final Set<String> PLAYED = new TreeSet<>();
    /** A server's answer that lets a request pass. */
    private static final String PASSED = "{\"allowed\":true,\"code\":1,\"granted\":1,\"wait_us\":0,\"limit\":5,\"remaining\":4,\"retry_after_us\":0,"
        + "\"reset_after_us\":1,\"rule\":\"r\",\"quotas\":[{\"name\":\"r\",\"limit\":5,\"remaining\":4,\"reset_after_us\":1,\"window_us\":60000000}]}";

    /** The promises of the page about a fault: the code of each cell. */
    private record Row(List<String> answer, List<String> log, List<String> health, List<String> metric, List<String> after) {}

    /** The answer of a service to a client. */
    private record Answer(String status, String left, String retry, String body) {}

    @RestController
    static class Orders {
        @GetMapping("/orders")
        String orders() {
            return "ok";
        }
    }

    @Configuration(proxyBeanMethods = false)
    @EnableAutoConfiguration
    static class Application {
        @Bean
        Orders orders() {
            return new Orders();
        }

        @Bean
        MeterRegistry registry() {
            return new SimpleMeterRegistry();
        }
    }

    @BeforeAll
    static void read() {
        // Boot would take away the handler that collects lines.
        System.setProperty("org.springframework.boot.logging.LoggingSystem", "none");
        String section = new String(Checkout.bytes(PAGE), StandardCharsets.UTF_8).split("\n## Java\n", 2)[1].split("\n## ", 2)[0];
        for (String line : section.lines().toList()) {
            String[] cells = line.split(" \\| ");
            if (cells.length == 6 && !cells[0].equals("| Fault")) {
                ROWS.put(cells[0].substring(2), new Row(code(cells[1]), code(cells[2]), code(cells[3]), code(cells[4]), code(cells[5])));
            }
        }
        assertFalse(ROWS.isEmpty());
    }

    @AfterAll
    static void all_rows_were_played() {
        System.clearProperty("org.springframework.boot.logging.LoggingSystem");
        assertEquals(ROWS.keySet(), PLAYED);
    }

    private static List<String> code(String cell) {
        List<String> found = new ArrayList<>();
        Matcher code = Pattern.compile("`([^`]+)`").matcher(cell);
        while (code.find()) {
            found.add(code.group(1));
        }
        return found;
    }

    private static void publish(TestRedis redis, String name, String record, long version) {
        // In one step: a program that reads in between finds nothing published.
        String replace = "redis.call('del', KEYS[1]) return redis.call('hset', KEYS[1], unpack(ARGV))";
        redis.command("EVAL", replace, "1", "sg:{policies}", "#format", "1", "#revision", Long.toString(version), name, Records.of(record, "version", version));
        redis.command("PUBLISH", "sg:policies", Long.toString(version));
    }

    private static void publish(TestRedis redis) {
        publish(redis, "orders", "fixed-20", 1);
    }

    /** An application, with its log, its metrics and its health. */
    private static final class Program implements AutoCloseable {
        private final Row row;
        private final String name;
        private final LogLines log = new LogLines();
        private final ConfigurableApplicationContext context;
        private final String address;
        private final AtomicInteger tenants = new AtomicInteger();
        private final HttpClient client = HttpClient.newHttpClient();
        private Map<String, Long> before = new TreeMap<>();

        Program(String name, String address, String... properties) {
            this.name = name;
            this.address = address;
            assertTrue(ROWS.containsKey(name), PAGE + " has no row `" + name + "`");
            PLAYED.add(name);
            row = ROWS.get(name);
            context = new SpringApplicationBuilder(Application.class).web(WebApplicationType.SERVLET).logStartupInfo(false)
                .properties("spring.main.banner-mode=off", "server.port=0", "server.address=127.0.0.1", "sluicegate.app=shop", "sluicegate.nodes=2",
                    "sluicegate.warm-up=false", "sluicegate.filters[0].policy=orders", "sluicegate.filters[0].paths=/orders").properties(properties).run();
        }

        Answer ask(String... fields) throws Exception {
            String port = context.getEnvironment().getProperty("local.server.port");
            HttpRequest.Builder request = HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + "/orders")).timeout(Duration.ofSeconds(20));
            request.header("X-Tenant", "t" + tenants.incrementAndGet()); // of which each has a budget
            for (int place = 0; place < fields.length; place += 2) {
                request.header(fields[place], fields[place + 1]);
            }
            HttpResponse<String> got = client.send(request.build(), HttpResponse.BodyHandlers.ofString());
            return new Answer(Integer.toString(got.statusCode()), got.headers().firstValue("RateLimit").orElse(""),
                got.headers().firstValue("Retry-After").orElse(""), got.body());
        }

        /** {@return how often each result was counted since the last call} */
        private Map<String, Long> counted() {
            Map<String, Long> now = new TreeMap<>();
            for (Timer timer : context.getBean(MeterRegistry.class).find(DecisionMeters.NAME).timers()) {
                String error = timer.getId().getTag("error");
                now.merge(error.equals("none") ? "mode=" + timer.getId().getTag("mode") : "error=" + error, timer.count(), Long::sum);
            }
            Map<String, Long> since = new TreeMap<>();
            now.forEach((result, count) -> {
                long more = count - before.getOrDefault(result, 0L);
                if (more > 0) {
                    since.put(result, more);
                }
            });
            before = now;
            return since;
        }

        private void until(String result) throws Exception {
            counted();
            long ends = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
            Map<String, Long> seen;
            do {
                assertTrue(System.nanoTime() < ends, "no " + result);
                ask();
                seen = counted();
            } while (!seen.containsKey(result));
        }

        private String health() {
            return StarterTest.health(context);
        }

        void decides() throws Exception {
            until("mode=store");
            log.all().clear();
        }

        /** Compares a row while its fault lasts. */
        void isAsThePageSays() throws Exception {
            until(row.metric.get(0));
            for (int asked = 0; asked < ASKS; ) {
                Answer answer = ask();
                Map<String, Long> counted = counted();
                if (counted.containsKey("mode=shed")) { // a process that is late itself, on a busy machine
                    continue;
                }
                asked++;
                assertEquals(Map.of(row.metric.get(0), 1L), counted, name);
                assertEquals(row.answer, shown(answer), name);
                assertFalse(answer.body.contains("orders") || answer.body.contains("127.0.0.1"), answer.body);
            }
            // The reason of a connection that is lost comes with the next attempt at one.
            List<String> words = new ArrayList<>(row.log);
            words.add(address);
            long ends = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
            while (!row.log.isEmpty() && log.with("WARNING ").stream().noneMatch(line -> words.stream().allMatch(line::contains))) {
                assertTrue(System.nanoTime() < ends, name + ": no line has " + words + ": " + log.all());
                ask();
            }
            List<String> warnings = log.with("WARNING ");
            assertTrue(warnings.size() <= 4 && (warnings.isEmpty() || !row.log.isEmpty()), name + ": " + warnings);
            TestRedis.await(name + ": " + row.health + " is not " + health(), () -> row.health.stream().allMatch(health()::contains));
            assertTrue(health().startsWith(row.health.get(0) + " {") && health().contains("address=" + address), health());
            assertTrue(log.with("s3cret").isEmpty() && !health().contains("s3cret"), log.all().toString());
        }

        /** Waits until a fault is over, and compares what the row says of that. */
        void isOver() throws Exception {
            long began = System.nanoTime();
            until("mode=store");
            System.out.printf("%s: decided by Redis again after %d ms%n", name, (System.nanoTime() - began) / 1_000_000);
            TestRedis.await("its health", () -> health().startsWith("UP "));
            assertEquals(List.of("200", "RateLimit"), shown(ask()));
            if (!row.after.isEmpty()) {
                hasAll(log.with("INFO "), row.after);
            }
        }

        private static List<String> shown(Answer answer) {
            List<String> shown = new ArrayList<>(List.of(answer.status));
            if (!answer.left.isEmpty()) {
                shown.add("RateLimit");
            }
            if (!answer.retry.isEmpty()) {
                shown.add("Retry-After");
            }
            return shown;
        }

        private void hasAll(List<String> lines, List<String> words) {
            assertTrue(lines.stream().anyMatch(line -> words.stream().allMatch(line::contains)), name + ": no line has " + words + ": " + lines);
        }

        @Override
        public void close() {
            context.close();
            log.close();
        }
    }

    private static Program direct(String name, String port, String... more) {
        List<String> properties = new ArrayList<>(List.of("sluicegate.redis.url=redis://127.0.0.1:" + port, "sluicegate.filters[0].key=header:X-Tenant"));
        properties.addAll(List.of(more));
        return new Program(name, "127.0.0.1:" + port, properties.toArray(String[]::new));
    }

    private interface Step {
        void run(TestRedis redis, LossyProxy proxy) throws Exception;
    }

    private static void running(String name, Step begin, Step end) throws Exception {
        try (TestRedis redis = TestRedis.start(); LossyProxy proxy = new LossyProxy(redis.port())) {
            publish(redis);
            try (Program program = direct(name, Integer.toString(proxy.port()))) {
                program.decides();
                begin.run(redis, proxy);
                if (program.row.metric.equals(List.of("mode=store"))) {
                    TestRedis.await("a look", () -> !program.health().startsWith("UP "));
                }
                program.isAsThePageSays();
                end.run(redis, proxy);
                program.isOver();
            }
        }
    }

    @Test
    void faults_of_a_redis_that_decided_are_as_the_page_says() throws Exception {
        running("Redis is killed", (redis, proxy) -> redis.stop(), (redis, proxy) -> {
            redis.restart();
            publish(redis);
        });
        running("Redis is frozen", (redis, proxy) -> redis.signal("STOP"), (redis, proxy) -> redis.signal("CONT"));
        running("Redis is slow by 70 ms", (redis, proxy) -> proxy.delayReplies(70), (redis, proxy) -> proxy.delayReplies(0));
        running("Redis is full", (redis, proxy) -> redis.command("CONFIG", "SET", "maxmemory", "1"),
            (redis, proxy) -> redis.command("CONFIG", "SET", "maxmemory", "0"));
        running("Redis comes back empty", (redis, proxy) -> {
            redis.stop();
            redis.restart();
            redis.command("PUBLISH", "sg:policies", "2");
        }, (redis, proxy) -> publish(redis, "orders", "fixed-20", 3));
        running("the policy cannot be read", (redis, proxy) -> {
            redis.command("HSET", "sg:{policies}", "#revision", "2", "orders", "{");
            redis.command("PUBLISH", "sg:policies", "2");
        }, (redis, proxy) -> publish(redis, "orders", "fixed-20", 3));
    }

    @Test
    void a_password_that_is_changed_is_as_the_page_says() throws Exception {
        // The file of users has none for the user of tests, who ends the fault.
        running("the password is changed", (redis, proxy) -> {
            redis.command("ACL", "SETUSER", "test", "on", "nopass", "~*", "&*", "+@all");
            redis.command("CONFIG", "SET", "requirepass", "s3cret");
            command(redis, "test", "CLIENT", "KILL", "USER", "default");
        }, (redis, proxy) -> command(redis, "test", "CONFIG", "SET", "requirepass", ""));
    }

    /** Sends a command as a user without a password. */
    private static void command(TestRedis redis, String user, String... parts) throws IOException {
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), redis.port())) {
            OutputStream out = socket.getOutputStream();
            out.write(("AUTH " + user + " none\r\n").getBytes(StandardCharsets.US_ASCII));
            StringBuilder text = new StringBuilder("*" + parts.length + "\r\n");
            for (String part : parts) {
                text.append('$').append(part.length()).append("\r\n").append(part).append("\r\n");
            }
            out.write(text.toString().getBytes(StandardCharsets.US_ASCII));
            String replies = new String(socket.getInputStream().readNBytes("+OK\r\n+".length()), StandardCharsets.US_ASCII);
            assertTrue(replies.startsWith("+OK"), replies);
        }
    }

    @Test
    void faults_of_the_start_are_as_the_page_says() throws Exception {
        int port = TestRedis.freePort();
        try (Program program = direct("Redis is away at the start", Integer.toString(port))) {
            program.isAsThePageSays();
            try (TestRedis redis = TestRedis.startAt(port)) {
                publish(redis);
                program.isOver();
            }
        }
        try (TestRedis redis = TestRedis.start()) {
            try (Program program = direct("nothing is published", Integer.toString(redis.port()))) {
                program.isAsThePageSays();
                publish(redis);
                program.isOver();
            }
            redis.command("CONFIG", "SET", "requirepass", "right");
            try (Program program = new Program("the password is wrong", "127.0.0.1:" + redis.port(),
                "sluicegate.redis.url=redis://:wrong-s3cret@127.0.0.1:" + redis.port(), "sluicegate.filters[0].key=header:X-Tenant")) {
                program.isAsThePageSays();
            }
        }
        answers("Redis expects TLS", new byte[] {0x15, 3, 1, 0, 2, 2, 0x46});
        answers("something else answers", "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
    }

    private static void answers(String name, byte[] text) throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool();
        try (ServerSocket other = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            threads.execute(() -> {
                while (!other.isClosed()) {
                    try (Socket client = other.accept()) {
                        client.getInputStream().read(new byte[4096]);
                        client.getOutputStream().write(text);
                    } catch (IOException e) {
                        // It is over, or the client ended the line.
                    }
                }
            });
            try (Program program = direct(name, Integer.toString(other.getLocalPort()))) {
                program.isAsThePageSays();
            }
        } finally {
            threads.shutdownNow();
        }
    }

    @Test
    void edits_of_a_policy_are_as_the_page_says() throws Exception {
        for (String name : List.of("the policy is edited", "the policy is removed", "the policy is renamed")) {
            try (TestRedis redis = TestRedis.start()) {
                publish(redis);
                try (Program program = direct(name, Integer.toString(redis.port()))) {
                    program.decides();
                    Answer first = program.ask();
                    boolean isEdited = name.equals("the policy is edited");
                    publish(redis, isEdited ? "orders" : name.equals("the policy is removed") ? "others" : "purchases", isEdited ? "fixed-8" : "fixed-20", 2);
                    TestRedis.await("the edit", () -> {
                        try {
                            return !program.ask().left.equals(first.left);
                        } catch (Exception e) {
                            throw new IllegalStateException(e);
                        }
                    });
                    program.isAsThePageSays();
                    if (!isEdited) {
                        publish(redis, "orders", "fixed-20", 3);
                        program.isOver();
                    }
                }
            }
        }
    }

    @Test
    void requests_that_try_to_be_others_are_as_the_page_says() throws Exception {
        for (String name : List.of("a request has 200 header fields", "addresses are forged")) {
            try (TestRedis redis = TestRedis.start()) {
                publish(redis);
                try (Program program = new Program(name, "127.0.0.1:" + redis.port(), "sluicegate.redis.url=" + redis.uri(), "sluicegate.filters[0].key=address")) {
                    program.decides();
                    Answer before = program.ask();
                    program.counted();
                    for (int number = 0; number < 3; number++) {
                        Answer answer = program.ask(name.startsWith("a ") ? many() : forged(number));
                        assertEquals(program.row.answer, Program.shown(answer), name);
                        assertEquals(program.row.metric, List.copyOf(program.counted().keySet()), name);
                        // Those that are decided are decided for the address of the peer.
                        assertTrue(program.row.metric.isEmpty() || !answer.left.equals(before.left), answer + " after " + before);
                        before = answer;
                    }
                    assertTrue(program.log.with("WARNING ").isEmpty(), program.log.all().toString());
                    assertTrue(program.health().startsWith(program.row.health.get(0)), program.health());
                }
            }
        }
    }

    private static String[] many() {
        String[] fields = new String[400];
        for (int place = 0; place < 200; place++) {
            fields[2 * place] = "X-Name-" + place;
            fields[2 * place + 1] = "value";
        }
        return fields;
    }

    private static String[] forged(int number) {
        return new String[] {"X-Forwarded-For", "203.0.113.7, ".repeat(200) + "198.51.100." + number, "X-Real-IP", "198.51.100." + number,
            "Forwarded", "for=198.51.100." + number};
    }

    @Test
    void a_program_stops_in_time_while_redis_hangs() throws Exception {
        try (TestRedis redis = TestRedis.start()) {
            publish(redis);
            Program program = direct("the program stops while Redis hangs", Integer.toString(redis.port()));
            program.decides();
            redis.signal("STOP");
            program.isAsThePageSays(); // and it owes now
            long began = System.nanoTime();
            program.close();
            long ms = (System.nanoTime() - began) / 1_000_000;
            System.out.println("stopped after " + ms + " ms");
            redis.signal("CONT");
            assertTrue(ms < 10_000, "it took " + ms + " ms"); // one second for debts, and those of the server
        }
    }

    @Test
    void faults_of_a_server_are_as_the_page_says() throws Exception {
        Map<String, Integer> statuses = Map.of("the server is away", 0, "the server hangs", -1, "the server answers 500", 500, "the token is wrong", 401);
        for (Map.Entry<String, Integer> each : statuses.entrySet()) {
            AtomicInteger status = new AtomicInteger(each.getValue());
            CountDownLatch over = new CountDownLatch(1);
            InetSocketAddress at = new InetSocketAddress(InetAddress.getLoopbackAddress(), TestRedis.freePort());
            ExecutorService threads = Executors.newCachedThreadPool();
            HttpServer server = status.get() == 0 ? null : serve(at, status, over, threads);
            String url = "http://127.0.0.1:" + at.getPort();
            try (Program program = new Program(each.getKey(), url, "sluicegate.mode=remote", "sluicegate.server.url=" + url, "sluicegate.server.token=s3cret",
                "sluicegate.filters[0].key=header:X-Tenant")) {
                program.isAsThePageSays();
                status.set(200);
                over.countDown();
                server = server == null ? serve(at, status, over, threads) : server;
                program.isOver();
            } finally {
                server.stop(0);
                threads.shutdownNow();
            }
        }
    }

    private static HttpServer serve(InetSocketAddress at, AtomicInteger status, CountDownLatch over, ExecutorService threads) throws IOException {
        HttpServer server = HttpServer.create(at, 0);
        server.setExecutor(threads);
        server.createContext("/", exchange -> {
            exchange.getRequestBody().readAllBytes();
            try {
                if (status.get() < 0) {
                    over.await(20, TimeUnit.SECONDS);
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
            byte[] body = (status.get() == 401 ? "{\"type\":\"urn:sluicegate:problem:bad-token\",\"detail\":\"authorization: invalid token\"}"
                : status.get() == 500 ? "oh" : PASSED).getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(Math.max(status.get(), 200), body.length);
            try (OutputStream out = exchange.getResponseBody()) {
                out.write(body);
            }
        });
        server.start();
        return server;
    }
}
