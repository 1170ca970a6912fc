package io.sluicegate.lettuce;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.RedisPort;
import io.sluicegate.testing.TestRedis;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Set;
import org.junit.jupiter.api.Test;

class ConnectTest {
    private static final byte[] PING = "PING".getBytes(StandardCharsets.US_ASCII);
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    /** Asks with no time at all. A reply may come nevertheless, if the machine is busy. */
    private static String ask(RedisPort port) throws InterruptedException {
        try {
            port.call(1, PING);
            return "a reply";
        } catch (RedisPort.Failure failure) {
            return failure.getMessage();
        }
    }

    private static void daemon(Runnable task) {
        Thread thread = new Thread(task, "late-redis");
        thread.setDaemon(true);
        thread.start();
    }

    /** Accepts connections of which the first bytes go to Redis late, or never. */
    private static void forward(ServerSocket server, int target, long lateMs) {
        try {
            while (true) {
                Socket client = server.accept();
                daemon(() -> {
                    TestRedis.pause(lateMs);
                    try {
                        Socket redis = new Socket(InetAddress.getLoopbackAddress(), target);
                        daemon(() -> copy(redis, client));
                        copy(client, redis);
                    } catch (IOException e) {
                        throw new IllegalStateException(e);
                    }
                });
            }
        } catch (IOException e) {
            // The test is over.
        }
    }

    private static void copy(Socket from, Socket to) {
        try (from; to; InputStream in = from.getInputStream(); OutputStream out = to.getOutputStream()) {
            in.transferTo(out);
        } catch (IOException e) {
            // The line ended.
        }
    }

    @Test
    void what_is_opened_is_connected() throws Exception {
        try (TestRedis redis = TestRedis.start(); ServerSocket late = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            daemon(() -> forward(late, redis.port(), 700));
            try (RedisPort port = LettucePort.connect("redis://127.0.0.1:" + late.getLocalPort())) {
                assertTrue(Set.of("a reply", "the deadline passed").contains(ask(port)));
            }
        }
    }

    @Test
    void where_nobody_is_it_says_where_without_the_password() {
        int nobody = TestRedis.freePort();
        assertTimeoutPreemptively(PATIENCE, () -> {
            try (RedisPort port = LettucePort.connect("redis://user:secret@127.0.0.1:" + nobody + "/3")) {
                assertEquals("there is no connection to 127.0.0.1:" + nobody + ": connection refused", ask(port));
            }
        });
    }

    @Test
    void a_redis_that_takes_connections_and_does_not_answer_is_awaited_for_five_seconds() {
        assertTimeoutPreemptively(PATIENCE, () -> {
            try (ServerSocket silent = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
                 RedisPort port = LettucePort.connect("redis://127.0.0.1:" + silent.getLocalPort())) {
                String message = ask(port);
                assertTrue(message.startsWith("there is no connection to 127.0.0.1:" + silent.getLocalPort() + ": "), message);
            }
        });
    }

    @Test
    void a_redis_without_tls_says_nothing_to_tls_and_one_that_expects_it_ends_the_connection() throws Exception {
        try (TestRedis redis = TestRedis.start(); RedisPort port = LettucePort.connect("rediss://user:secret@127.0.0.1:" + redis.port())) {
            assertEquals("there is no connection to 127.0.0.1:" + redis.port() + ": what listens there does not answer to TLS", ask(port));
        }
        // A Redis that expects TLS ends the connection.
        try (ServerSocket tls = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            daemon(() -> endAll(tls));
            try (RedisPort port = LettucePort.connect("redis://user:secret@127.0.0.1:" + tls.getLocalPort())) {
                String message = ask(port);
                assertEquals("there is no connection to 127.0.0.1:" + tls.getLocalPort()
                    + ": it ends the connection at once, as a Redis that expects TLS does", message);
            }
        }
    }

    private static void endAll(ServerSocket server) {
        while (!server.isClosed()) {
            try (Socket client = server.accept()) {
                client.getInputStream().read();
            } catch (IOException e) {
                // The test is over, or the client ended the line.
            }
        }
    }

    @Test
    void an_address_has_known_parameters_and_no_password_in_its_errors() {
        assertEquals("shop", Addresses.parse("redis://h:1/2?clientName=shop&timeout=5s").getClientName());
        assertEquals(2, Addresses.parse("redis://:secret@h:1/2").getDatabase());
        assertEquals(Duration.ofSeconds(5), Addresses.parse("redis://h?timeout=5s").getTimeout());
        for (String[] wrong : new String[][] {
            {"redis://a:secret@h?timeut=5", "unknown parameter `timeut`"}, {"redis://a:secret@h?secret", "unknown parameter ``"},
            {"redis://a:very?secret@h", "a `?` in a password is written as `%3F`"},
            {"redis://a:secret@h?timeout=soon", "timeout: `soon` is not a time"}, {"http://a:secret@h", "expected `redis://HOST:PORT/DATABASE`"},
            {"a:secret@h", "expected"}, {"", "expected"}, {"redis://a:secret@h:x", "expected"}}) {
            String message = assertThrows(IllegalArgumentException.class, () -> LettucePort.connect(wrong[0]), wrong[0]).getMessage();
            assertTrue(message.contains(wrong[1]), message);
            assertFalse(message.contains("secret"), message);
        }
    }
}
