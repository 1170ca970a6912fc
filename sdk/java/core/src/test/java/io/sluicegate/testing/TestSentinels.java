package io.sluicegate.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** A master, a replica, and three Sentinels that watch them. */
public final class TestSentinels implements AutoCloseable {
    private final TestRedis master;
    private final TestRedis replica;
    private final List<TestRedis> sentinels = new ArrayList<>();
    private final List<Path> files = new ArrayList<>();

    private TestSentinels() throws IOException {
        // The replica writes down what it gets at first.
        Path folder = Files.createTempDirectory("replica");
        files.add(folder);
        master = TestRedis.start("--repl-diskless-sync-delay", "0", "--dir", folder.toString(), "--dbfilename", "none.rdb");
        replica = TestRedis.start("--replicaof", "127.0.0.1", Integer.toString(master.port()), "--dir", folder.toString());
    }

    /** Starts all, and waits until they know each other; skips the test where there is no redis-server. */
    public static TestSentinels start() {
        try {
            TestSentinels all = new TestSentinels();
            all.watch();
            return all;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private void watch() throws IOException {
        TestRedis.await("a replica", () -> String.valueOf(replica.command("INFO", "replication")).contains("master_link_status:up"));
        for (int i = 0; i < 3; i++) {
            Path file = Files.createTempFile("sentinel", ".conf");
            files.add(file);
            Files.writeString(file, "sentinel monitor gate 127.0.0.1 " + master.port() + " 2\nsentinel down-after-milliseconds gate 500\n"
                + "sentinel failover-timeout gate 4000\n");
            sentinels.add(TestRedis.start(file.toString(), "--sentinel"));
        }
        for (TestRedis sentinel : sentinels) {
            TestRedis.await("sentinels that know each other", () -> {
                String reply = String.valueOf(sentinel.command("INFO", "sentinel"));
                return reply.contains("slaves=1") && reply.contains("sentinels=3") && reply.contains("status=ok");
            });
        }
    }

    /** Where they are, for Lettuce. */
    public String uri() {
        return "redis-sentinel://" + sentinels.stream().map(each -> "127.0.0.1:" + each.port()).collect(Collectors.joining(",")) + "/0#gate";
    }

    /** Waits until the replica has all that the master has. */
    public void awaitReplica() {
        master.command("SET", "last", "written");
        TestRedis.await("the replica", () -> "written".equals(replica.command("GET", "last")));
    }

    /** Ends the master; the replica takes its place. */
    public void stopMaster() {
        master.stop();
    }

    @Override
    public void close() {
        sentinels.forEach(TestRedis::close);
        replica.close();
        master.close();
        for (Path file : files) {
            // A folder with what a server left in it.
            try (Stream<Path> all = Files.walk(file)) {
                for (Path each : all.sorted(Comparator.reverseOrder()).toList()) {
                    Files.delete(each);
                }
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }
}
