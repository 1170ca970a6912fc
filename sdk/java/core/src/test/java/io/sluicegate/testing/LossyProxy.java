package io.sluicegate.testing;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;

/** A proxy before a Redis. On request it passes a part of the next reply to a call of the script, and cuts the line. */
public final class LossyProxy implements AutoCloseable {
    private static final int NOT = -1;

    private final ServerSocket server;
    private final int target;
    /** The part of the next reply that is passed, in thousandths; {@link #NOT}: all. */
    private final AtomicInteger cut = new AtomicInteger(NOT);

    private volatile boolean keepsLine;
    /** Time that replies are on their way; the next one alone, or all. */
    private volatile long lateMs;
    private volatile boolean isNextLate;

    public LossyProxy(int target) throws IOException {
        this.target = target;
        this.server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        daemon(this::accept);
    }

    public int port() {
        return server.getLocalPort();
    }

    /** The next reply is lost. */
    public void swallowNextReply() {
        cutNextReply(0);
    }

    /** The next reply is lost, and the line stays. */
    public void dropNextReply() {
        keepsLine = true;
        cut.set(0);
    }

    /** Passes only so many thousandths of the next reply's bytes, 0 to 999. */
    public void cutNextReply(int thousandths) {
        cut.set(thousandths);
    }

    /** All replies are so late from now on. */
    public void delayReplies(long ms) {
        isNextLate = false;
        lateMs = ms;
    }

    /** The next reply to a call of the script is so late, and what comes behind it. */
    public void delayNextReply(long ms) {
        lateMs = ms;
        isNextLate = true;
    }

    public boolean hasSwallowed() {
        return cut.get() == NOT;
    }

    private static void daemon(Runnable task) {
        Thread thread = new Thread(task, "lossy-proxy");
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() {
        while (true) {
            try {
                pass(server.accept());
            } catch (IOException e) {
                return;
            }
        }
    }

    private void pass(Socket client) throws IOException {
        try {
            Socket redis = new Socket(InetAddress.getLoopbackAddress(), target);
            AtomicBoolean requested = new AtomicBoolean();
            daemon(() -> copy(client, redis, requested, false));
            daemon(() -> copy(redis, client, requested, true));
        } catch (IOException e) {
            client.close(); // as Redis is away
        }
    }

    private void copy(Socket from, Socket to, AtomicBoolean requested, boolean replies) {
        try (from; to) {
            InputStream in = from.getInputStream();
            OutputStream out = to.getOutputStream();
            byte[] buffer = new byte[65_536];
            int read;
            while ((read = in.read(buffer)) > 0) {
                if (!replies && new String(buffer, 0, read, StandardCharsets.ISO_8859_1).contains("EVALSHA")) {
                    requested.set(true);
                }
                boolean isReply = replies && requested.getAndSet(false);
                if (replies && lateMs > 0 && (isReply || !isNextLate)) {
                    long late = lateMs;
                    lateMs = isNextLate ? 0 : late;
                    TestRedis.pause(late);
                }
                int part = isReply ? cut.getAndSet(NOT) : NOT;
                out.write(buffer, 0, part == NOT ? read : read * part / 1000);
                if (part != NOT && !keepsLine) {
                    return;
                }
            }
        } catch (IOException e) {
            // The other side ended the line.
        }
    }

    @Override
    public void close() throws IOException {
        server.close();
    }
}
