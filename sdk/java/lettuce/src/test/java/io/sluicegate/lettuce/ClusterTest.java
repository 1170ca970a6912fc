package io.sluicegate.lettuce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.lettuce.core.cluster.SlotHash;
import io.sluicegate.Decision;
import io.sluicegate.DirectGate;
import io.sluicegate.ErrorCode;
import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import io.sluicegate.Mode;
import io.sluicegate.OnStoreFailure;
import io.sluicegate.RedisPort;
import io.sluicegate.Sluicegate;
import io.sluicegate.SluicegateException;
import io.sluicegate.internal.engine.RandomLives;
import io.sluicegate.internal.redis.Keys;
import io.sluicegate.testing.LossyProxy;
import io.sluicegate.testing.Records;
import io.sluicegate.testing.TestCluster;
import io.sluicegate.testing.TestRedis;
import io.sluicegate.testing.TestServer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

class ClusterTest {
    /** The deadline of tests that are not about deadlines. */
    private static final Duration LONG = Duration.ofSeconds(10);
    private static final Limit YEARLY = Limit.fixedWindow(1_000_000, Duration.ofDays(366)).onStoreFailure(OnStoreFailure.DENY);

    private static DirectGate gate(TestCluster cluster) {
        return Sluicegate.direct(LettuceClusterPort.connect(cluster.uri(0))).deadline(LONG).build();
    }

    private static String state(String policy, String key) {
        return new String(Keys.state(policy, key), StandardCharsets.US_ASCII);
    }

    /** A key whose state is at a master. */
    private static String keyAt(TestCluster cluster, String policy, int master) {
        for (int i = 0;; i++) {
            if (cluster.masterOf(state(policy, "k" + i)) == master) {
                return "k" + i;
            }
        }
    }

    private static boolean isDecided(Limiter limiter, String key) {
        return limiter.peek(key, 1).mode() == Mode.STORE;
    }

    @Test
    void a_key_is_decided_at_its_master_and_policies_are_followed() throws Exception {
        try (TestCluster cluster = TestCluster.start(); DirectGate gate = gate(cluster)) {
            Limiter mail = gate.limit("mail", YEARLY);
            for (int i = 0; i < 60; i++) {
                assertEquals(999_999, mail.check("k" + i).remaining());
                assertEquals(999_998, mail.check("k" + i).remaining());
            }
            for (int i = 0; i < cluster.size(); i++) {
                assertTrue((Long) cluster.node(i).command("DBSIZE") > 5);
            }
            TestRedis home = cluster.node(cluster.masterOf("sg:{policies}"));
            for (int limit = 5; limit < 8; limit++) {
                String revision = Integer.toString(limit);
                home.command("HSET", "sg:{policies}", "#format", "1", "#revision", revision, "p",
                    Records.of("fixed-" + limit, "version", (long) limit));
                // A program receives it from any node.
                cluster.node(limit % cluster.size()).command("PUBLISH", "sg:policies", revision);
                int wanted = limit;
                TestRedis.await("the edit", () -> isLimit(gate.policy("p"), wanted));
            }
            try (RedisPort port = LettuceClusterPort.connect(cluster.uri(1))) {
                new RandomLives(port).live(TestRedis.isLong() ? 150 : 30);
            }
        }
    }

    private static boolean isLimit(Limiter limiter, long limit) {
        try {
            return limiter.peek("k", 1).limit() == limit;
        } catch (SluicegateException e) {
            return false;
        }
    }

    @Test
    void a_reply_of_a_node_that_is_cut_anywhere_is_charged_once() {
        long seed = System.nanoTime() % 1_000_000;
        System.out.println("a_reply_of_a_node_that_is_cut_anywhere_is_charged_once: SEED=" + seed);
        Random random = new Random(seed);
        try (TestCluster cluster = TestCluster.startBehindProxies(); DirectGate gate = gate(cluster)) {
            Limiter cut = gate.limit("cut", YEARLY);
            List<String> keys = new ArrayList<>();
            for (int i = 0; i < cluster.size(); i++) {
                keys.add(keyAt(cluster, "limit:cut", i));
            }
            for (int i = 0; i < (TestRedis.isLong() ? 200 : 20); i++) {
                int master = i % cluster.size();
                String key = keys.get(master);
                LossyProxy proxy = cluster.proxy(master);
                TestRedis.await("a connection", () -> isDecided(cut, key));
                long before = cut.peek(key, 1).remaining();
                int part = random.nextInt(1000);
                proxy.cutNextReply(part);
                boolean refund = i % 4 == 3;
                if (refund) {
                    SluicegateException lost = assertThrows(SluicegateException.class, () -> cut.refund(key, 1));
                    assertEquals(ErrorCode.PERHAPS_CHARGED, lost.code());
                } else {
                    assertEquals(Mode.DENY, cut.check(key).mode());
                }
                assertTrue(proxy.hasSwallowed());
                TestRedis.await("a connection", () -> isDecided(cut, key));
                long after = cut.peek(key, 1).remaining();
                assertEquals(Math.min(before + (refund ? 1 : -1), 1_000_000), after, "try " + i + ", cut at " + part + "/1000");
            }
        }
    }

    /** Callers that take from a key, and what became of it. */
    private static final class Callers implements AutoCloseable {
        final AtomicLong passed = new AtomicLong();
        final AtomicLong failed = new AtomicLong();
        final AtomicBoolean ended = new AtomicBoolean();
        private final List<CompletableFuture<Void>> threads = new ArrayList<>();

        Callers(Limiter limiter, String key) {
            for (int i = 0; i < 4; i++) {
                boolean waits = i % 2 == 0;
                threads.add(CompletableFuture.runAsync(() -> {
                    while (!ended.get()) {
                        Decision decision = waits ? limiter.check(key) : limiter.checkAsync(key).join();
                        (decision.allowed() ? passed : failed).incrementAndGet();
                    }
                }, task -> new Thread(task).start()));
            }
        }

        /** Waits until they have got on. */
        void awaitProgress() {
            long before = passed.get() + failed.get();
            TestRedis.await("progress", () -> passed.get() + failed.get() >= before + 20);
        }

        @Override
        public void close() {
            ended.set(true);
            threads.forEach(each -> each.orTimeout(20, TimeUnit.SECONDS).join());
        }
    }

    @Test
    void a_slot_that_moves_while_its_key_is_asked_is_no_failure_and_charges_each_once() throws Exception {
        try (TestCluster cluster = TestCluster.start(); DirectGate gate = gate(cluster)) {
            Limiter hot = gate.limit("hot", YEARLY);
            String key = state("limit:hot", "k");
            int slot = cluster.slotOf(key);
            int at = cluster.masterOf(key);
            Callers callers = new Callers(hot, "k");
            try (callers) {
                for (int i = 0; i < 3; i++) {
                    callers.awaitProgress();
                    int to = (at + 1) % cluster.size();
                    // The node that it moves to has had no request yet, so the script is not there.
                    cluster.node(to).command("SCRIPT", "FLUSH");
                    cluster.move(slot, key, at, to, callers::awaitProgress);
                    at = to;
                }
                callers.awaitProgress();
            }
            assertEquals(0, callers.failed.get(), "a slot that moves is no failure");
            assertEquals(callers.passed.get(), 1_000_000 - hot.peek("k", 1).remaining());
            // A new key of a slot that moves is decided where it moves to; what is owed goes with it.
            int to = (at + 1) % cluster.size();
            cluster.move(slot, key, at, to, () -> assertTrue(hot.check("k").allowed()));
            assertEquals(callers.passed.get() + 1, 1_000_000 - hot.peek("k", 1).remaining());
        }
    }

    @Test
    void after_a_failover_the_new_master_decides_and_others_did_all_the_time() throws Exception {
        try (TestCluster cluster = TestCluster.start();
             DirectGate gate = Sluicegate.direct(LettuceClusterPort.connect(cluster.uri(0), cluster.uri(1))).deadline(Duration.ofSeconds(2)).build()) {
            Limiter mail = gate.limit("mail", YEARLY);
            int gone = 0;
            cluster.startReplica(gone);
            String lost = keyAt(cluster, "limit:mail", gone);
            String other = keyAt(cluster, "limit:mail", 1);
            assertEquals(999_999, mail.check(lost).remaining());
            cluster.awaitReplica(gone);
            cluster.node(gone).stop();
            assertEquals(Mode.DENY, mail.peek(lost, 1).mode());
            assertEquals(Mode.STORE, mail.peek(other, 1).mode());
            TestRedis.await("a decision of the new master", () -> isDecided(mail, lost));
            assertEquals(999_998, mail.check(lost).remaining());
            TestRedis.await("a decision of another", () -> isDecided(mail, other));
        }
    }

    @Test
    void a_master_that_says_nothing_is_silent_though_others_answer() throws Exception {
        try (TestCluster cluster = TestCluster.start();
             DirectGate gate = Sluicegate.direct(LettuceClusterPort.connect(cluster.uri(0))).deadline(Duration.ofMillis(300)).warmUp(false).build()) {
            Limiter mail = gate.limit("mail", YEARLY);
            String silent = keyAt(cluster, "limit:mail", 1);
            String other = keyAt(cluster, "limit:mail", 2);
            TestRedis.await("a decision", () -> isDecided(mail, silent) && isDecided(mail, other));
            try (Callers callers = new Callers(mail, other)) {
                callers.awaitProgress();
                cluster.node(1).signal("STOP");
                // Not shed, as by one that has much to do.
                assertEquals(Mode.DENY, mail.peek(silent, 1).mode());
                cluster.node(1).signal("CONT");
                TestRedis.await("a decision", () -> isDecided(mail, silent));
            }
        }
    }

    @Test
    void the_rights_that_servers_print_are_enough_for_a_cluster() throws Exception {
        String line = TestServer.run("redis-acl", "redis+cluster://host").lines().filter(each -> each.startsWith("user sluicegate-program ")).findFirst().orElseThrow();
        List<String> command = new ArrayList<>(List.of("ACL", "SETUSER"));
        command.addAll(List.of(line.replace("PASSWORD", "secret").substring("user ".length()).split(" ")));
        try (TestCluster cluster = TestCluster.start()) {
            for (int i = 0; i < cluster.size(); i++) {
                assertEquals("OK", cluster.node(i).command(command.toArray(String[]::new)));
            }
            String uri = cluster.uri(0).replace("redis://", "redis://sluicegate-program:secret@");
            try (DirectGate gate = Sluicegate.direct(LettuceClusterPort.connect(uri)).deadline(LONG).build()) {
                Limiter mail = gate.limit("mail", YEARLY);
                for (int i = 0; i < cluster.size(); i++) {
                    assertEquals(999_999, mail.check(keyAt(cluster, "limit:mail", i)).remaining());
                }
                String key = state("limit:mail", keyAt(cluster, "limit:mail", 0));
                cluster.move(cluster.slotOf(key), key, 0, 1, () -> assertTrue(mail.check(keyAt(cluster, "limit:mail", 0)).allowed()));
                assertEquals(999_998, mail.peek(keyAt(cluster, "limit:mail", 0), 1).remaining());
            }
        }
    }

    @Test
    void a_redis_that_is_no_cluster_is_said_at_once_and_one_that_is_not_there_is_awaited() {
        try (TestRedis redis = TestRedis.start()) {
            String message = assertThrows(IllegalStateException.class, () -> LettuceClusterPort.connect(redis.uri())).getMessage();
            assertEquals("127.0.0.1:" + redis.port() + " is no node of a cluster", message);
        }
        try (DirectGate gate = Sluicegate.direct(LettuceClusterPort.connect("redis://127.0.0.1:" + TestRedis.freePort())).build()) {
            Decision decision = gate.limit("mail", YEARLY).check("k");
            assertFalse(decision.allowed());
            assertEquals(Mode.DENY, decision.mode());
        }
    }

    @Test
    void keys_have_the_slots_that_redis_gives_them() {
        for (String[] each : new String[][] {{"123456789", "12739"}, {"foo{}{bar}", "8363"}, {"foo{{bar}}zap", "4015"}, {"foo{bar}{zap}", "5061"}, {"", "0"}}) {
            assertEquals(Integer.parseInt(each[1]), SlotHash.getSlot(each[0].getBytes(StandardCharsets.UTF_8)), each[0]);
        }
    }
}
