package io.sluicegate.testing;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.util.concurrent.atomic.AtomicBoolean;

/** Stands before a Redis; when told, it swallows the next reply and cuts the line. */
public final class LossyProxy implements AutoCloseable {
    private final ServerSocket server;
    private final int target;
    private final AtomicBoolean swallow = new AtomicBoolean();

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
        swallow.set(true);
    }

    public boolean hasSwallowed() {
        return !swallow.get();
    }

    private static void daemon(Runnable task) {
        Thread thread = new Thread(task, "lossy-proxy");
        thread.setDaemon(true);
        thread.start();
    }

    private void accept() {
        while (true) {
            try {
                Socket client = server.accept();
                Socket redis = new Socket(InetAddress.getLoopbackAddress(), target);
                daemon(() -> copy(client, redis, false));
                daemon(() -> copy(redis, client, true));
            } catch (IOException e) {
                return;
            }
        }
    }

    private void copy(Socket from, Socket to, boolean replies) {
        try (from; to) {
            InputStream in = from.getInputStream();
            OutputStream out = to.getOutputStream();
            byte[] buffer = new byte[65_536];
            int read;
            while ((read = in.read(buffer)) > 0) {
                if (replies && swallow.compareAndSet(true, false)) {
                    return;
                }
                out.write(buffer, 0, read);
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
