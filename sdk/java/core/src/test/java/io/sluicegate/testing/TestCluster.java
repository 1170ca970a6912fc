package io.sluicegate.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/** Three masters that share the slots of a cluster. */
public final class TestCluster implements AutoCloseable {
    private static final int MASTERS = 3;
    private static final int SLOTS = 16_384;
    private static final int EACH = SLOTS / MASTERS + 1;
    private static final Pattern WRITTEN = Pattern.compile("master_repl_offset:([0-9]+)");
    private static final Pattern REPLICATED = Pattern.compile("slave0:.*state=online,offset=([0-9]+)");

    private final List<TestRedis> nodes = new ArrayList<>();
    private final List<LossyProxy> proxies = new ArrayList<>();
    private final List<Path> folders = new ArrayList<>();

    private TestCluster() {}

    /** Starts it; its nodes send clients to each other directly. */
    public static TestCluster start() {
        return start(false);
    }

    /** Starts it; its nodes send clients to a proxy before each node. */
    public static TestCluster startBehindProxies() {
        return start(true);
    }

    private static TestCluster start(boolean proxied) {
        TestCluster cluster = new TestCluster();
        try {
            for (int i = 0; i < MASTERS; i++) {
                TestRedis node = cluster.startNode(proxied);
                is("OK", node.command(slots(i * EACH, Math.min((i + 1) * EACH, SLOTS))));
            }
            for (TestRedis node : cluster.nodes) {
                cluster.meet(node);
            }
            cluster.awaitAgreement();
            return cluster;
        } catch (IOException e) {
            cluster.close();
            throw new UncheckedIOException(e);
        } catch (RuntimeException | AssertionError e) {
            cluster.close();
            throw e;
        }
    }

    private static void is(Object wanted, Object reply) {
        if (!wanted.equals(reply)) {
            throw new AssertionError(reply);
        }
    }

    private TestRedis startNode(boolean proxied) throws IOException {
        // They talk to each other 10,000 ports above.
        int port = TestRedis.freePort();
        while (port > 55_000) {
            port = TestRedis.freePort();
        }
        if (proxied) {
            proxies.add(new LossyProxy(port));
        }
        int announced = proxied ? proxies.get(proxies.size() - 1).port() : port;
        Path folder = Files.createTempDirectory("node");
        folders.add(folder);
        TestRedis node = TestRedis.startAt(port, "--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--dir", folder.toString(),
            "--cluster-announce-port", Integer.toString(announced), "--cluster-announce-bus-port", Integer.toString(port + 10_000),
            "--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no", "--cluster-replica-validity-factor", "0",
            "--repl-diskless-sync-delay", "0");
        nodes.add(node);
        return node;
    }

    private static String[] slots(int from, int to) {
        List<String> command = new ArrayList<>(List.of("CLUSTER", "ADDSLOTS"));
        for (int slot = from; slot < to; slot++) {
            command.add(Integer.toString(slot));
        }
        return command.toArray(String[]::new);
    }

    private void meet(TestRedis node) {
        TestRedis first = nodes.get(0);
        is("OK", node.command("CLUSTER", "MEET", "127.0.0.1", Integer.toString(first.port()), Integer.toString(first.port() + 10_000)));
    }

    private void awaitAgreement() {
        for (TestRedis node : nodes) {
            TestRedis.await("a cluster", () -> {
                String reply = String.valueOf(node.command("CLUSTER", "INFO"));
                return reply.contains("cluster_state:ok") && reply.contains("cluster_known_nodes:" + nodes.size())
                    && reply.contains("cluster_slots_ok:" + SLOTS);
            });
        }
    }

    /** The address of a node that clients get. */
    public String uri(int node) {
        return "redis://127.0.0.1:" + (proxies.isEmpty() ? nodes.get(node).port() : proxies.get(node).port());
    }

    public TestRedis node(int place) {
        return nodes.get(place);
    }

    public LossyProxy proxy(int place) {
        return proxies.get(place);
    }

    /** The number of masters. */
    public int size() {
        return MASTERS;
    }

    /** The slot of a key. */
    public int slotOf(String key) {
        return ((Long) nodes.get(0).command("CLUSTER", "KEYSLOT", key)).intValue();
    }

    /** The master that has the slot of a key, before any moved. */
    public int masterOf(String key) {
        return slotOf(key) / EACH;
    }

    private String id(int node) {
        return (String) nodes.get(node).command("CLUSTER", "MYID");
    }

    /** Moves a slot with a key as {@code redis-cli --cluster reshard} does; {@code between} runs while it is at both. */
    public void move(int slot, String key, int from, int to, Runnable between) {
        String number = Integer.toString(slot);
        is("OK", nodes.get(to).command("CLUSTER", "SETSLOT", number, "IMPORTING", id(from)));
        is("OK", nodes.get(from).command("CLUSTER", "SETSLOT", number, "MIGRATING", id(to)));
        is("OK", nodes.get(from).command("MIGRATE", "127.0.0.1", Integer.toString(nodes.get(to).port()), key, "0", "5000"));
        between.run();
        for (int node : new int[] {to, from, MASTERS - from - to}) {
            is("OK", nodes.get(node).command("CLUSTER", "SETSLOT", number, "NODE", id(to)));
        }
    }

    /** Starts a replica of a master, and waits until it has all. */
    public TestRedis startReplica(int master) throws IOException {
        TestRedis replica = startNode(false);
        meet(replica);
        TestRedis.await("the master", () -> "OK".equals(replica.command("CLUSTER", "REPLICATE", id(master))));
        TestRedis.await("a replica", () -> String.valueOf(replica.command("INFO", "replication")).contains("master_link_status:up"));
        awaitAgreement();
        return replica;
    }

    /** Waits until the replica of a master has all that was written. */
    public void awaitReplica(int master) {
        TestRedis.await("the replica", () -> {
            String reply = String.valueOf(nodes.get(master).command("INFO", "replication"));
            Matcher written = WRITTEN.matcher(reply);
            Matcher replicated = REPLICATED.matcher(reply);
            return written.find() && replicated.find() && written.group(1).equals(replicated.group(1));
        });
    }

    @Override
    public void close() {
        nodes.forEach(TestRedis::close);
        for (LossyProxy proxy : proxies) {
            try {
                proxy.close();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
        for (Path folder : folders) {
            try (Stream<Path> all = Files.walk(folder)) {
                for (Path each : all.sorted(Comparator.reverseOrder()).toList()) {
                    Files.delete(each);
                }
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }
}
