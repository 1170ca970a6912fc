package io.sluicegate.testing;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Assumptions;

/** A Redis of a test's own, and the simplest client for it. */
public final class TestRedis implements AutoCloseable {
    private Process process;
    private final int port;
    private final String[] options;

    private TestRedis(int port, String... options) {
        this.port = port;
        this.options = options;
    }

    /** Returns whether tests run their long versions: {@code SLUICEGATE_LONG=1}. */
    public static boolean isLong() {
        return "1".equals(System.getenv("SLUICEGATE_LONG"));
    }

    /** A free port of this machine. */
    public static int freePort() {
        try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            return socket.getLocalPort();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Starts one; skips the test where there is no redis-server, but not in CI. */
    public static TestRedis start(String... options) {
        return startAt(freePort(), options);
    }

    /** Starts one at a port; skips the test if there is no redis-server, but not in CI. */
    public static TestRedis startAt(int port, String... options) {
        TestRedis redis = new TestRedis(port, options);
        try {
            redis.restart();
            return redis;
        } catch (IOException e) {
            String reason = "skipped: redis-server cannot be started: " + e.getMessage();
            System.out.println(reason);
            if ("true".equals(System.getenv("CI"))) {
                throw new UncheckedIOException(e);
            }
            Assumptions.abort(reason);
            throw new IllegalStateException(e);
        }
    }

    /** Starts it on the same port, empty. */
    public void restart() throws IOException {
        String program = System.getenv().getOrDefault("SLUICEGATE_REDIS_SERVER", "redis-server");
        List<String> command = new ArrayList<>(List.of(program));
        // A Sentinel is started with the file that it writes.
        if (options.length == 0 || options[0].startsWith("--")) {
            command.addAll(List.of("--save", ""));
        }
        command.addAll(List.of(options));
        command.addAll(List.of("--port", Integer.toString(port), "--bind", "127.0.0.1"));
        process = new ProcessBuilder(command).redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start();
        for (int tries = 0; ; tries++) {
            try {
                command("PING");
                return;
            } catch (UncheckedIOException e) {
                if (tries > 1000 || !process.isAlive()) {
                    throw e.getCause();
                }
                pause(20);
            }
        }
    }

    /** Waits until something has happened, for 20 s at most: longer than any machine is late. */
    public static void await(String what, BooleanSupplier happened) {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
        while (!happened.getAsBoolean()) {
            if (System.nanoTime() > until) {
                throw new AssertionError(what + ": not within 20 s");
            }
            pause(20);
        }
    }

    public static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    public int port() {
        return port;
    }

    public String uri() {
        return "redis://127.0.0.1:" + port;
    }

    /** Sends a command of texts and returns the reply: a text, a number, a list or null; errors as texts. */
    public Object command(String... parts) {
        byte[][] bytes = new byte[parts.length][];
        for (int place = 0; place < parts.length; place++) {
            bytes[place] = parts[place].getBytes(StandardCharsets.UTF_8);
        }
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            ByteArrayOutputStream out = new ByteArrayOutputStream();
            out.writeBytes(("*" + bytes.length + "\r\n").getBytes(StandardCharsets.US_ASCII));
            for (byte[] part : bytes) {
                out.writeBytes(("$" + part.length + "\r\n").getBytes(StandardCharsets.US_ASCII));
                out.writeBytes(part);
                out.writeBytes("\r\n".getBytes(StandardCharsets.US_ASCII));
            }
            socket.getOutputStream().write(out.toByteArray());
            return reply(socket.getInputStream());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static Object reply(InputStream in) throws IOException {
        String line = line(in);
        String rest = line.substring(1);
        switch (line.charAt(0)) {
            case ':':
                return Long.parseLong(rest);
            case '$': {
                int length = Integer.parseInt(rest);
                if (length < 0) {
                    return null;
                }
                byte[] bytes = in.readNBytes(length);
                in.readNBytes(2);
                return new String(bytes, StandardCharsets.ISO_8859_1);
            }
            case '*': {
                List<Object> list = new ArrayList<>();
                for (int place = Integer.parseInt(rest); place > 0; place--) {
                    list.add(reply(in));
                }
                return list;
            }
            default:
                return rest;
        }
    }

    private static String line(InputStream in) throws IOException {
        StringBuilder line = new StringBuilder();
        int c;
        while ((c = in.read()) != '\n') {
            if (c < 0) {
                throw new IOException("the connection ended");
            }
            if (c != '\r') {
                line.append((char) c);
            }
        }
        return line.toString();
    }

    /** Sends it a signal, such as STOP. */
    public void signal(String name) throws IOException, InterruptedException {
        new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).start().waitFor();
    }

    /** Ends it, and waits for that. */
    public void stop() {
        process.destroyForcibly();
        try {
            process.waitFor();
        } catch (InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @Override
    public void close() {
        stop();
    }
}
