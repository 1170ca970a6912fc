package io.sluicegate.jedis;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.RedisPort;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Something that answers, and is no Redis. */
class FalseRedisTest {
    private static final long LONG = TimeUnit.SECONDS.toNanos(20);
    private static final byte[] PING = ascii("PING");

    private final AtomicInteger connections = new AtomicInteger();
    private ServerSocket server;
    private RedisPort port;
    private volatile String reply;
    private volatile long pauseMs;

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    private static void daemon(Runnable task) {
        Thread thread = new Thread(task, "false-redis");
        thread.setDaemon(true);
        thread.start();
    }

    @BeforeEach
    void start() throws IOException {
        server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        daemon(this::accept);
        port = JedisPort.connect("127.0.0.1", server.getLocalPort());
    }

    @AfterEach
    void stop() throws IOException {
        port.close();
        server.close();
    }

    private void accept() {
        try {
            while (true) {
                Socket client = server.accept();
                connections.incrementAndGet();
                daemon(() -> answer(client));
            }
        } catch (IOException e) {
            // The test is over.
        }
    }

    private void answer(Socket client) {
        byte[] buffer = new byte[4096];
        try (client) {
            OutputStream out = client.getOutputStream();
            while (client.getInputStream().read(buffer) > 0) {
                byte[] bytes = ascii(reply);
                int part = pauseMs > 0 ? 1 : bytes.length;
                for (int place = 0; place < bytes.length; place += part) {
                    out.write(bytes, place, part);
                    Thread.sleep(pauseMs);
                }
            }
        } catch (IOException | InterruptedException e) {
            // The client ended the line.
        }
    }

    private void isPong() throws Exception {
        reply = "$4\r\nPONG\r\n";
        pauseMs = 0;
        assertArrayEquals(ascii("PONG"), (byte[]) port.call(LONG, PING));
    }

    @Test
    void a_reply_that_nobody_can_read_is_perhaps_charged_and_its_connection_ends() throws Exception {
        List<String> replies = List.of("*2147483647\r\n", "$2147483647\r\n", "*1\r\n".repeat(100_000), "$-5\r\n", "*-5\r\n", "$x\r\n",
            "HTTP/1.1 400 Bad Request\r\n\r\n");
        for (String each : replies) {
            isPong();
            int before = connections.get();
            reply = each;
            // A nesting that the stack is large enough for has no end, and is late.
            RedisPort.Failure failure = assertThrows(RedisPort.Failure.class, () -> port.call(TimeUnit.SECONDS.toNanos(2), PING));
            assertTrue(failure.perhapsExecuted());
            isPong();
            assertEquals(before + 1, connections.get());
        }
    }

    @Test
    void a_reply_in_drops_ends_with_the_deadline() throws Exception {
        isPong();
        reply = "$10000\r\n" + "x".repeat(10_000) + "\r\n";
        pauseMs = 20;
        // It drips for more than three minutes.
        RedisPort.Failure failure = assertTimeoutPreemptively(Duration.ofSeconds(40),
            () -> assertThrows(RedisPort.Failure.class, () -> port.call(TimeUnit.MILLISECONDS.toNanos(300), PING)));
        assertTrue(failure.perhapsExecuted());
        assertTrue(failure.timeout());
        isPong();
    }

    @Test
    void a_claimed_length_takes_no_memory() throws Exception {
        isPong();
        reply = "$500000000\r\nx";
        com.sun.management.ThreadMXBean threads = (com.sun.management.ThreadMXBean) ManagementFactory.getThreadMXBean();
        long before = threads.getCurrentThreadAllocatedBytes();
        RedisPort.Failure failure = assertThrows(RedisPort.Failure.class, () -> port.call(TimeUnit.MILLISECONDS.toNanos(300), PING));
        assertTrue(failure.timeout());
        long taken = threads.getCurrentThreadAllocatedBytes() - before;
        assertTrue(taken < 10_000_000, taken + " bytes");
    }

    @Test
    void a_long_reply_is_read_whole() throws Exception {
        isPong();
        String text = "0123456789".repeat(20_000);
        reply = "*3\r\n$" + text.length() + "\r\n" + text + "\r\n$-1\r\n:7\r\n";
        List<?> read = (List<?>) port.call(LONG, PING);
        assertArrayEquals(ascii(text), (byte[]) read.get(0));
        assertEquals(java.util.Arrays.asList(null, 7L), read.subList(1, 3));
        isPong();
    }

    @Test
    void without_a_connection_the_failure_says_to_where() throws IOException {
        int number = server.getLocalPort();
        server.close();
        RedisPort.Failure failure = assertThrows(RedisPort.Failure.class, () -> port.call(LONG, PING));
        assertEquals("there is no connection to 127.0.0.1:" + number + ": connection refused", failure.getMessage());
        assertFalse(failure.perhapsExecuted());
    }
}
