package io.sluicegate.testing;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.Decision;
import io.sluicegate.DirectGate;
import io.sluicegate.ErrorCode;
import io.sluicegate.GateHealth;
import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import io.sluicegate.Mode;
import io.sluicegate.OnStoreFailure;
import io.sluicegate.RedisPort;
import io.sluicegate.Sluicegate;
import io.sluicegate.SluicegateException;
import java.io.IOException;
import java.net.InetAddress;
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
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.junit.jupiter.api.Test;

/** The tests with faults that every port must pass. {@code SLUICEGATE_LONG=1} runs the long versions. */
public abstract class FaultContract {
    private static final Duration LONG = RedisContract.LONG;

    /** Opens the port under test, at {@code redis://[USER:PASSWORD@]HOST:PORT[/DATABASE]}. */
    protected abstract RedisPort open(String uri);

    private DirectGate gate(String uri) {
        return RedisContract.ready(Sluicegate.direct(open(uri)).deadline(LONG).build());
    }

    @Test
    void a_reply_that_is_cut_anywhere_is_charged_once() throws Exception {
        long seed = System.nanoTime() % 1_000_000;
        System.out.println("a_reply_that_is_cut_anywhere_is_charged_once: SEED=" + seed);
        Random random = new Random(seed);
        int tries = TestRedis.isLong() ? 200 : 20;
        Limit limit = Limit.fixedWindow(1000, Duration.ofDays(366)).onStoreFailure(OnStoreFailure.DENY);
        try (TestRedis redis = TestRedis.start(); LossyProxy proxy = new LossyProxy(redis.port());
             DirectGate gate = gate("redis://127.0.0.1:" + proxy.port()); DirectGate other = gate(redis.uri())) {
            Limiter cut = gate.limit("cut", limit);
            Limiter whole = other.limit("cut", limit);
            for (int i = 0; i < tries; i++) {
                TestRedis.await("a connection", () -> cut.peek("k", 1).mode() == Mode.STORE);
                long before = whole.peek("k", 1).remaining();
                int part = random.nextInt(1000);
                proxy.cutNextReply(part);
                boolean refund = i % 4 == 3;
                if (refund) {
                    // No policy decides a refund, so there is an error.
                    SluicegateException lost = assertThrows(SluicegateException.class, () -> cut.refund("k", 1));
                    assertEquals(ErrorCode.PERHAPS_CHARGED, lost.code());
                } else {
                    assertEquals(Mode.DENY, cut.check("k").mode());
                }
                assertTrue(proxy.hasSwallowed());
                TestRedis.await("a connection", () -> cut.peek("k", 1).mode() == Mode.STORE);
                assertEquals(before + (refund ? 1 : -1), whole.peek("k", 1).remaining(), "try " + i + ", cut at " + part + "/1000");
            }
        }
    }

    private record Seen(long startedNanos, long tookNanos, Decision decision) {}

    @Test
    void after_a_reply_that_is_lost_on_a_line_that_stays_no_caller_gets_the_reply_of_another() throws Exception {
        Duration deadline = Duration.ofMillis(500);
        try (TestRedis redis = TestRedis.start(); LossyProxy proxy = new LossyProxy(redis.port());
             DirectGate gate = RedisContract.ready(Sluicegate.direct(open("redis://127.0.0.1:" + proxy.port())).deadline(deadline).build())) {
            Limiter few = gate.limit("few", Limit.fixedWindow(1, Duration.ofDays(366)).onStoreFailure(OnStoreFailure.DENY));
            TestRedis.await("a decision of Redis", () -> few.peek("used", 1).mode() == Mode.STORE);
            few.check("used");
            proxy.dropNextReply();
            few.check("used");
            TestRedis.await("Redis decides again", () -> few.peek("other", 1).mode() == Mode.STORE);
            for (int turn = 0; turn < 50; turn++) {
                Decision used = few.check("used");
                Decision fresh = few.check("fresh-" + turn);
                assertEquals(Mode.STORE, fresh.mode());
                assertFalse(used.allowed());
                assertTrue(fresh.allowed());
            }
        }
    }

    @Test
    void a_redis_that_stops_holds_up_no_caller_and_admits_the_share_alone() throws Exception {
        int nodes = 2;
        try (TestRedis redis = TestRedis.start();
             DirectGate gate = Sluicegate.direct(open(redis.uri())).nodes(nodes).deadline(Duration.ofMillis(50)).warmUp(false).build()) {
            Limiter limit = gate.limit("stopped", Limit.tokenBucket(200, Duration.ofSeconds(1)).burst(100));
            TestRedis.await("a connection", () -> limit.peek("k", 1).mode() == Mode.STORE);
            ConcurrentLinkedQueue<Seen> seen = new ConcurrentLinkedQueue<>();
            AtomicLong end = new AtomicLong(Long.MAX_VALUE);
            // How late the machine is by itself.
            AtomicLong late = new AtomicLong();
            ExecutorService callers = Executors.newFixedThreadPool(50);
            for (int i = 0; i < 50; i++) {
                callers.execute(() -> {
                    while (System.nanoTime() < end.get()) {
                        long began = System.nanoTime();
                        Decision decision = limit.check("k");
                        long ended = System.nanoTime();
                        seen.add(new Seen(began, ended - began, decision));
                        TestRedis.pause(10);
                        late.accumulateAndGet(System.nanoTime() - ended - 10_000_000L, Math::max);
                    }
                });
            }
            TestRedis.pause(500);
            redis.signal("STOP");
            long stopped = System.nanoTime();
            TestRedis.pause(2500);
            long admittedUntil = System.nanoTime();
            List<Seen> without = seen.stream().filter(each -> each.startedNanos > stopped).toList();
            assertEquals(GateHealth.State.DEGRADED, state(gate));
            redis.signal("CONT");
            TestRedis.await("a decision of Redis", () -> limit.peek("other", 1).mode() == Mode.STORE);
            long back = System.nanoTime() - admittedUntil;
            end.set(0);
            callers.shutdown();
            assertTrue(callers.awaitTermination(20, TimeUnit.SECONDS));

            List<Long> took = seen.stream().map(Seen::tookNanos).sorted().toList();
            long slow = without.stream().filter(each -> each.startedNanos > stopped + 1_000_000_000L && each.tookNanos > 45_000_000L).count();
            long after = without.stream().filter(each -> each.startedNanos > stopped + 1_000_000_000L).count();
            long admitted = without.stream().filter(each -> each.decision.allowed() && each.decision.mode() == Mode.LOCAL).count();
            double most = (100 + 200 * (admittedUntil - stopped) / 1e9) / nodes + 1;
            System.out.printf("stopped: the longest of %d calls took %.1f ms; the breaker lets %d of %d calls wait after a second;"
                    + " %d of %.0f were admitted; back after %.0f ms%n",
                took.size(), took.get(took.size() - 1) / 1e6, slow, after, admitted, most, back / 1e6);
            // A machine with much to do may hold up one in two hundred by itself.
            long most200 = took.get(took.size() - 1 - took.size() / 200);
            assertTrue(most200 < 300_000_000L + late.get(), "a call took " + most200 / 1e6 + " ms, and a pause " + late.get() / 1e6 + " ms too long");
            assertTrue(slow * 10 < after, slow + " of " + after + " calls wait though the breaker should be open");
            assertTrue(admitted > 0 && admitted <= most, admitted + " were admitted, " + most + " may be; each tenth of a second:"
                + without.stream().filter(each -> each.decision.allowed()).collect(Collectors.groupingBy(
                    each -> (each.startedNanos - stopped) / 100_000_000L + " " + each.decision.mode(), TreeMap::new, Collectors.counting())));
            assertTrue(back < 5_000_000_000L, "back after " + back / 1e6 + " ms");
        }
    }

    private static final Limit OWED = Limit.fixedWindow(200, Duration.ofDays(366));
    private static final Duration SHORT = Duration.ofMillis(50);

    private interface Step {
        void run() throws Exception;
    }

    /** A gate that owes nothing, as Redis decided ten checks; the caller closes it. */
    private DirectGate askedTenTimes(TestRedis redis) {
        DirectGate gate = RedisContract.ready(Sluicegate.direct(open(redis.uri())).nodes(4).deadline(SHORT).warmUp(false).build());
        for (int i = 0; i < 10; i++) {
            assertEquals(Mode.STORE, gate.limit("owed", OWED).check("k").mode());
        }
        return gate;
    }

    /** Uses the share up, which is owed then. */
    private static long useShare(DirectGate gate) {
        long admitted = 0;
        Decision decision;
        do {
            decision = gate.limit("owed", OWED).check("k");
            admitted += decision.granted();
            // A Redis that was heard of just now counts as busy, and nothing is decided by the share yet.
        } while (decision.allowed() || decision.mode() != Mode.LOCAL);
        assertEquals(47, admitted);
        return admitted;
    }

    private long inUse(TestRedis redis) {
        try (DirectGate other = gate(redis.uri())) {
            return 200 - other.limit("owed", OWED).peek("k", 1).remaining();
        }
    }

    private static long msOf(Step step) throws Exception {
        long began = System.nanoTime();
        step.run();
        return TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - began);
    }

    private static CompletableFuture<Void> soon(Step step) {
        return CompletableFuture.runAsync(() -> {
            try {
                step.run();
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }, CompletableFuture.delayedExecutor(400, TimeUnit.MILLISECONDS));
    }

    // The first check that got no answer may be charged by Redis too, and so may probes.
    private static void assertPaid(long admitted, long inUse, long tookMs) {
        System.out.printf("closed: %d were admitted, %d are in use, after %d ms%n", admitted, inUse, tookMs);
        assertTrue(inUse >= admitted, inUse + " are in use of " + admitted);
        assertTrue(inUse <= admitted + 10, inUse + " are in use of " + admitted);
    }

    @Test
    void a_gate_that_is_closed_pays_all_that_it_owes_to_a_redis_that_is_back() throws Exception {
        try (TestRedis redis = TestRedis.start(); DirectGate gate = askedTenTimes(redis)) {
            redis.signal("STOP");
            long admitted = 10 + useShare(gate);
            redis.signal("CONT");
            long took = msOf(gate::close);
            assertPaid(admitted, inUse(redis), took);
        }
    }

    @Test
    void a_gate_that_is_closed_pays_all_that_it_owes_to_a_redis_that_comes_back_meanwhile() throws Exception {
        try (TestRedis redis = TestRedis.start(); DirectGate gate = askedTenTimes(redis)) {
            redis.signal("STOP");
            long admitted = 10 + useShare(gate);
            CompletableFuture<Void> back = soon(() -> redis.signal("CONT"));
            long took = msOf(gate::close);
            back.join();
            assertPaid(admitted, inUse(redis), took);
        }
    }

    @Test
    void a_gate_that_is_closed_pays_over_a_connection_that_is_made_again() throws Exception {
        try (TestRedis redis = TestRedis.start(); DirectGate gate = askedTenTimes(redis)) {
            redis.stop();
            long admitted = useShare(gate);
            CompletableFuture<Void> back = soon(redis::restart);
            long took = msOf(gate::close);
            back.join();
            assertPaid(admitted, inUse(redis), took);
        }
    }

    @Test
    void a_gate_that_is_closed_waits_a_second_and_a_deadline_for_a_redis_that_stays_away() throws Exception {
        try (TestRedis redis = TestRedis.start(); DirectGate gate = askedTenTimes(redis)) {
            redis.signal("STOP");
            useShare(gate);
            long took = msOf(gate::close);
            System.out.printf("closed: without Redis after %d ms%n", took);
            // Beside that the connections are ended, which takes a machine with much to do longer.
            assertTrue(took >= 1000 && took < 1050 + 900, "it took " + took + " ms");
            assertTrue(msOf(gate::close) < 500, "it is closed only once");
        }
    }

    @Test
    void a_gate_that_owes_nothing_is_closed_at_once() throws Exception {
        try (TestRedis redis = TestRedis.start(); DirectGate gate = askedTenTimes(redis)) {
            redis.signal("STOP");
            long took = msOf(gate::close);
            System.out.printf("closed: without debts after %d ms%n", took);
            assertTrue(took < 900, "it took " + took + " ms");
        }
    }

    private static long redisUs(TestRedis redis) {
        List<?> time = (List<?>) redis.command("TIME");
        return Long.parseLong((String) time.get(0)) * 1_000_000 + Long.parseLong((String) time.get(1));
    }

    @Test
    void threads_and_a_server_share_one_budget_and_use_it_up() throws Exception {
        int burst = 200;
        int rate = 200;
        String policy = "{\"policies\":[{\"name\":\"hot\",\"rules\":[{\"token_bucket\":{\"rate\":\"" + rate + "/s\",\"burst\":" + burst + "}}]}]}";
        try (TestRedis redis = TestRedis.start(); TestServer server = TestServer.start(policy, redis.uri());
             DirectGate gate = gate(redis.uri())) {
            Limiter hot = gate.policy("hot");
            TestRedis.await("a policy", () -> isKnown(hot));
            // The bucket stays full until the first call, so all is made before.
            ExecutorService pool = Executors.newFixedThreadPool(17);
            HttpClient client = HttpClient.newHttpClient();
            client.send(ask(server, "other"), HttpResponse.BodyHandlers.ofString());
            HttpRequest check = ask(server, "k");
            long began = redisUs(redis);
            long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(TestRedis.isLong() ? 30 : 2);
            List<Callable<Long>> callers = new ArrayList<>();
            for (int i = 0; i < 16; i++) {
                callers.add(() -> spend(until, () -> hot.check("k").allowed()));
            }
            callers.add(() -> spend(until, () -> client.send(check, HttpResponse.BodyHandlers.ofString()).body().contains("\"allowed\":true")));
            long admitted = 0;
            for (Future<Long> each : pool.invokeAll(callers)) {
                admitted += each.get();
            }
            pool.shutdown();
            double most = burst + rate * (redisUs(redis) - began) / 1e6;
            System.out.printf("shared: %d of %.1f were admitted, %.1f %%%n", admitted, most, 100 * admitted / most);
            assertTrue(admitted <= most, admitted + " were admitted, " + most + " may be");
            assertTrue(admitted >= most * (TestRedis.isLong() ? 0.99 : 0.9), admitted + " of " + most + " were admitted");
        }
    }

    private static HttpRequest ask(TestServer server, String key) {
        return HttpRequest.newBuilder(URI.create(server.http() + "/v1/check")).header("content-type", "application/json")
            .POST(HttpRequest.BodyPublishers.ofString("{\"policy\":\"hot\",\"key\":\"" + key + "\"}")).build();
    }

    private static boolean isKnown(Limiter limiter) {
        try {
            return limiter.peek("other", 1).mode() == Mode.STORE;
        } catch (SluicegateException e) {
            return false;
        }
    }

    private static long spend(long untilNanos, Callable<Boolean> check) throws Exception {
        long admitted = 0;
        while (System.nanoTime() < untilNanos) {
            if (check.call()) {
                admitted++;
            } else {
                TestRedis.pause(5);
            }
        }
        return admitted;
    }

    @Test
    void a_thousand_virtual_threads_at_one_gate_pin_no_carrier() throws Exception {
        try (TestRedis redis = TestRedis.start()) {
            String output = VirtualCallers.run(getClass(), redis.uri());
            System.out.print(output);
            assertTrue(output.contains("5000 of 5000 passed, 0 pinned"), output);
        }
    }

    @Test
    void it_decides_on_the_module_path() throws Exception {
        try (TestRedis redis = TestRedis.start(); RedisPort port = open(redis.uri())) {
            String module = port.getClass().getPackageName();
            String output = OnModulePath.run(port.getClass(), redis.port());
            assertTrue(output.contains(module + " and io.sluicegate: STORE"), output);
        }
    }

    @Test
    void decisions_leave_nothing_in_the_memory_of_the_program() {
        try (TestRedis redis = TestRedis.start(); DirectGate gate = gate(redis.uri())) {
            Limiter mail = gate.limit("mail", Limit.fixedWindow(10, Duration.ofDays(366)).named("year")
                .and(Limit.tokenBucket(100, Duration.ofSeconds(1)).named("bucket")));
            Heap.assertStays(TestRedis.isLong() ? 100_000 : 4000, call -> mail.check("k" + call % 50));
        }
    }

    @Test
    void the_rights_that_servers_print_are_enough() throws Exception {
        try (TestRedis redis = TestRedis.start()) {
            String line = TestServer.run("redis-acl").lines().filter(each -> each.startsWith("user sluicegate-program ")).findFirst().orElseThrow();
            List<String> command = new ArrayList<>(List.of("ACL", "SETUSER"));
            command.addAll(List.of(line.replace("PASSWORD", "secret").substring("user ".length()).split(" ")));
            assertEquals("OK", redis.command(command.toArray(String[]::new)));
            redis.command("HSET", "sg:{policies}", "#format", "1", "#revision", "1", "orders", Records.of("fixed-5"));
            try (DirectGate gate = gate("redis://sluicegate-program:secret@127.0.0.1:" + redis.port())) {
                Limiter orders = gate.policy("orders");
                assertEquals(4, orders.check("k").remaining());
                redis.command("HSET", "sg:{policies}", "#revision", "2", "orders", Records.of("fixed-8", "version", 2L));
                redis.command("PUBLISH", "sg:policies", "2");
                TestRedis.await("the edit", () -> orders.peek("k", 1).limit() == 8);
                Limiter mail = gate.limit("mail", Limit.fixedWindow(3, Duration.ofDays(1)));
                assertEquals(2, mail.check("k").remaining());
                assertEquals(1, mail.refund("k", 1).granted());
                assertTrue(mail.reset("k").allowed());
                // What clients say of themselves (CLIENT SETINFO) need not be permitted.
                List<?> denied = (List<?>) redis.command("ACL", "LOG");
                assertEquals(List.of(), denied.stream().filter(entry -> !isOfClient((List<?>) entry)).toList());
            }
        }
    }

    // Valkey names the subcommand too.
    private static boolean isOfClient(List<?> entry) {
        return entry.stream().anyMatch(each -> each instanceof String text && text.matches("client(\\|setinfo)?"));
    }

    @Test
    void a_redis_without_room_is_decided_by_the_policy_until_it_has_some() {
        try (TestRedis redis = TestRedis.start(); DirectGate gate = gate(redis.uri())) {
            Limiter local = gate.limit("local", Limit.fixedWindow(5, Duration.ofDays(366)));
            Limiter allow = gate.limit("allow", Limit.fixedWindow(5, Duration.ofDays(366)).onStoreFailure(OnStoreFailure.ALLOW));
            assertEquals(4, local.check("k").remaining());
            assertEquals(4, allow.check("k").remaining());
            redis.command("CONFIG", "SET", "maxmemory-policy", "noeviction");
            redis.command("CONFIG", "SET", "maxmemory", "1");
            // It can charge nothing, so it is a store that fails: see "What a call comes to".
            for (int i = 0; i < 10; i++) {
                assertEquals(Mode.LOCAL, local.check("new" + i).mode());
                assertEquals(Mode.ALLOW, allow.check("new" + i).mode());
            }
            assertEquals(GateHealth.State.DEGRADED, state(gate));
            assertEquals("redis answers OOM", gate.health().cause());
            int passed = 0;
            for (int i = 0; i < 10; i++) {
                passed += local.check("all").allowed() ? 1 : 0;
            }
            assertEquals(5, passed);
            redis.command("CONFIG", "SET", "maxmemory", "0");
            TestRedis.await("Redis decides again", () -> local.peek("other", 1).mode() == Mode.STORE);
            assertEquals(3, local.check("k").remaining());
            assertFalse(local.check("all").allowed());
            assertEquals(Mode.STORE, allow.check("new1").mode());
        }
    }

    @Test
    void the_number_of_the_database_holds() {
        try (TestRedis redis = TestRedis.start(); DirectGate third = gate(redis.uri() + "/3"); DirectGate first = gate(redis.uri())) {
            Limit limit = Limit.fixedWindow(5, Duration.ofDays(366));
            assertEquals(4, third.limit("mail", limit).check("k").remaining());
            assertEquals(4, first.limit("mail", limit).check("k").remaining());
            assertEquals(3, third.limit("mail", limit).check("k").remaining());
        }
    }

    @Test
    void the_first_calls_of_a_process_admit_the_limit() throws Exception {
        for (int start = 0; start < (TestRedis.isLong() ? 20 : 2); start++) {
            try (TestRedis redis = TestRedis.start()) {
                redis.command("HSET", "sg:{policies}", "#format", "1", "#revision", "1", "fixed-20", Records.of("fixed-20"));
                String output = ColdCallers.run(getClass(), redis.uri(), start % 2 == 0 ? "" : "fixed-20");
                System.out.print("cold: " + output);
                assertTrue(output.startsWith("admitted 20 of 20, ") && !output.contains("LOCAL"), output);
            }
        }
    }

    @Test
    void one_late_reply_fails_no_other_call() throws Exception {
        try (TestRedis redis = TestRedis.start(); LossyProxy proxy = new LossyProxy(redis.port());
             DirectGate gate = RedisContract.ready(Sluicegate.direct(open("redis://127.0.0.1:" + proxy.port()))
                 .deadline(Duration.ofMillis(400)).warmUp(false).build())) {
            Limiter mail = gate.limit("mail", Limit.fixedWindow(1000, Duration.ofDays(366)).onStoreFailure(OnStoreFailure.DENY));
            assertTrue(mail.check("k").allowed());
            proxy.delayNextReply(460);
            CompletableFuture<Decision> late = mail.checkAsync("late");
            TestRedis.pause(410);
            List<CompletableFuture<Decision>> others = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                others.add(mail.checkAsync("k" + i));
            }
            for (CompletableFuture<Decision> each : others) {
                assertEquals(Mode.STORE, each.get(20, TimeUnit.SECONDS).mode());
            }
            assertFalse(late.get(20, TimeUnit.SECONDS).allowed());
            assertFalse(gate.isDegraded());
        }
    }

    private static GateHealth.State state(DirectGate gate) {
        return gate.health().state();
    }

    @Test
    void a_redis_that_is_too_slow_is_a_redis_that_does_not_answer_until_it_is_faster() throws Exception {
        try (TestRedis redis = TestRedis.start(); LossyProxy proxy = new LossyProxy(redis.port()); LogLines log = new LogLines();
             DirectGate gate = RedisContract.ready(Sluicegate.direct(open("redis://127.0.0.1:" + proxy.port())).deadline(SHORT).warmUp(false).build())) {
            Limiter mail = gate.limit("mail", Limit.fixedWindow(20, Duration.ofDays(366)));
            proxy.delayReplies(70);
            // Calls that overlap: at first Redis may be busy.
            List<CompletableFuture<Decision>> first = new ArrayList<>();
            for (int i = 0; i < 50; i++) {
                first.add(mail.checkAsync("k"));
            }
            int admitted = 0;
            for (CompletableFuture<Decision> each : first) {
                admitted += each.get(20, TimeUnit.SECONDS).allowed() ? 1 : 0;
            }
            TestRedis.await("a decision by the share", () -> mail.check("other").mode() == Mode.LOCAL && state(gate) == GateHealth.State.DEGRADED);
            assertTrue(admitted <= 20, admitted + " were admitted by the share of one node");
            assertEquals("127.0.0.1:" + proxy.port(), gate.health().address());
            assertFalse(gate.health().decisions().isEmpty());
            proxy.delayReplies(0);
            TestRedis.await("Redis decides again", () -> mail.peek("k", 1).mode() == Mode.STORE && state(gate) == GateHealth.State.UP);
            String where = "the Redis at 127.0.0.1:" + proxy.port();
            assertTrue(log.with("WARNING " + where + " does not decide: ").size() >= 1, log.all().toString());
            assertTrue(log.with("INFO " + where + " decides again").size() >= 1, log.all().toString());
        }
    }

    @Test
    void a_redis_that_is_killed_is_in_the_log_once_and_in_the_health() throws Exception {
        try (TestRedis redis = TestRedis.start(); LogLines log = new LogLines(); DirectGate gate = gate(redis.uri())) {
            Limiter mail = gate.limit("mail", Limit.fixedWindow(1000, Duration.ofDays(366)));
            assertEquals(Mode.STORE, mail.check("k").mode());
            assertEquals(GateHealth.up("127.0.0.1:" + redis.port()), gate.health());
            redis.stop();
            for (int i = 0; i < 200; i++) {
                mail.check("k");
            }
            assertEquals(GateHealth.State.DEGRADED, state(gate));
            List<String> lines = log.with("does not decide");
            // One for each cause: the connection was lost, and there is none.
            assertTrue(lines.size() >= 1 && lines.size() <= 4, lines.toString());
            assertTrue(lines.get(0).contains("127.0.0.1:" + redis.port()) && lines.get(0).contains("by a share of 1/1"), lines.toString());
            redis.restart();
            TestRedis.await("Redis is back", () -> mail.peek("k", 1).mode() == Mode.STORE && state(gate) == GateHealth.State.UP);
            assertEquals(1, log.with("INFO the Redis at 127.0.0.1:" + redis.port() + " decides again, after ").size(), log.all().toString());
        }
    }

    @Test
    void where_nothing_is_published_the_error_says_so_and_what_is_held_still_decides() throws Exception {
        try (TestRedis redis = TestRedis.start(); LogLines log = new LogLines(); DirectGate gate = gate(redis.uri())) {
            Limiter five = gate.policy("fixed-5");
            SluicegateException none = assertThrows(SluicegateException.class, () -> five.check("k"));
            assertEquals(ErrorCode.NOTHING_PUBLISHED, none.code());
            assertEquals("policy: no policies are published in the Redis at 127.0.0.1:" + redis.port()
                + "; start a server on it (its `store.publish` is `true` unless set)", none.getMessage());
            assertEquals(new GateHealth(GateHealth.State.DOWN, "127.0.0.1:" + redis.port(), none.getMessage(),
                "no policy was read yet: requests by policies get no decision (filters answer 503); Redis decides by limits made in code"), gate.health());
            assertThrows(SluicegateException.class, () -> five.check("k"));
            assertEquals(1, log.with(none.getMessage()).size(), log.all().toString());

            redis.command("HSET", "sg:{policies}", "#format", "1", "#revision", "1", "fixed-5", Records.of("fixed-5"));
            redis.command("PUBLISH", "sg:policies", "1");
            TestRedis.await("the policy", () -> isKnown(five));
            assertEquals(ErrorCode.UNKNOWN_POLICY, assertThrows(SluicegateException.class, () -> gate.policy("other").check("k")).code());
            assertEquals(GateHealth.State.UP, state(gate));

            redis.command("FLUSHALL");
            redis.command("PUBLISH", "sg:policies", "2");
            TestRedis.await("a look", () -> state(gate) == GateHealth.State.DEGRADED);
            assertEquals(new GateHealth(GateHealth.State.DEGRADED, "127.0.0.1:" + redis.port(), none.getMessage(),
                "Redis decides by the policies that were read before"), gate.health());
            Decision held = five.check("k");
            assertEquals(4, held.remaining());
            assertEquals(Mode.STORE, held.mode());
        }
    }

    @Test
    void a_wrong_password_is_named_and_takes_no_time() throws Exception {
        try (TestRedis redis = TestRedis.start(); LogLines log = new LogLines()) {
            redis.command("CONFIG", "SET", "requirepass", "right-one");
            for (String user : List.of("", "default:wrong-one@")) {
                long began = System.nanoTime();
                try (DirectGate gate = Sluicegate.direct(open("redis://" + user + "127.0.0.1:" + redis.port())).build()) {
                    long ms = (System.nanoTime() - began) / 1_000_000;
                    assertTrue(ms < 4000, "a start takes " + ms + " ms");
                    SluicegateException none = assertThrows(SluicegateException.class, () -> gate.policy("orders").check("k"));
                    assertEquals(ErrorCode.NOT_CHARGED, none.code());
                    String cause = user.isEmpty() ? "NOAUTH" : "WRONGPASS";
                    assertTrue(none.getMessage().contains(cause), none.getMessage());
                    TestRedis.await("the health", () -> state(gate) == GateHealth.State.DOWN);
                    assertTrue(gate.health().cause().contains(cause) && gate.health().address().equals("127.0.0.1:" + redis.port()), gate.health().toString());
                    assertEquals(Mode.LOCAL, gate.limit("mail", Limit.fixedWindow(5, Duration.ofDays(366))).check("k").mode());
                    assertFalse(log.with(cause).isEmpty(), log.all().toString());
                    assertTrue(log.with("policies and limits decide").isEmpty(), log.all().toString());
                    assertFalse(log.with("; no policy was read yet: requests by policies get no decision").isEmpty(), log.all().toString());
                    assertTrue(log.with("-one").isEmpty() && !gate.health().toString().contains("-one"), log.all().toString());
                }
            }
        }
    }

    @Test
    void what_is_no_redis_is_no_redis_that_answers() throws Exception {
        try (ServerSocket web = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            Thread thread = new Thread(() -> {
                while (!web.isClosed()) {
                    try (Socket client = web.accept()) {
                        client.getInputStream().read(new byte[1024]);
                        client.getOutputStream().write("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
                    } catch (IOException e) {
                        // It is over, or the client ended the line.
                    }
                }
            }, "no-redis");
            thread.setDaemon(true);
            thread.start();
            try (DirectGate gate = Sluicegate.direct(open("redis://127.0.0.1:" + web.getLocalPort())).build()) {
                SluicegateException none = assertThrows(SluicegateException.class, () -> gate.policy("orders").check("k"));
                assertEquals(ErrorCode.NOT_CHARGED, none.code());
                assertEquals(GateHealth.State.DOWN, state(gate));
                assertEquals("127.0.0.1:" + web.getLocalPort(), gate.health().address());
            }
        }
    }

    @Test
    void policies_are_required_by_name() {
        try (TestRedis redis = TestRedis.start(); DirectGate gate = gate(redis.uri())) {
            redis.command("HSET", "sg:{policies}", "#format", "1", "#revision", "1", "fixed-5", Records.of("fixed-5"));
            gate.require(List.of("fixed-5"));
            SluicegateException missing = assertThrows(SluicegateException.class, () -> gate.require(List.of("ordres", "fixed-5", "none")));
            assertEquals("policy: unknown policy `ordres`; policy: unknown policy `none`", missing.getMessage());
            assertEquals(5, gate.policy("fixed-5").shared().peek("", 1).remaining());
        }
    }
}
