package example;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.sluicegate.Decision;
import io.sluicegate.DirectGate;
import io.sluicegate.HttpAnswer;
import io.sluicegate.HttpFields;
import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import io.sluicegate.Sluicegate;
import io.sluicegate.SluicegateException;
import io.sluicegate.lettuce.LettucePort;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.Executors;

/** Sends mail for users: ten a minute each, and twenty at once. All processes with this limit share it. */
public final class Plain implements AutoCloseable {
    private final DirectGate gate;
    private final HttpServer server;

    Plain(String redis, int port, Duration deadline) throws IOException {
        gate = Sluicegate.direct(LettucePort.connect(redis)).app("shop").nodes(2).deadline(deadline).build();
        Limiter mail = gate.limit("mail", Limit.tokenBucket(10, Duration.ofMinutes(1)).burst(20));
        server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.setExecutor(Executors.newCachedThreadPool());
        server.createContext("/mail/", exchange -> {
            String user = exchange.getRequestURI().getPath().substring("/mail/".length());
            answer(exchange, user.isEmpty() ? HttpAnswer.BAD_REQUEST : send(mail, user));
        });
        server.start();
    }

    private static HttpAnswer send(Limiter mail, String user) {
        try {
            Decision said = mail.check(user);
            return said.allowed() ? new HttpAnswer(200, HttpFields.of(said.sleep()), "sent\n") : HttpAnswer.of(said);
        } catch (SluicegateException e) {
            return HttpAnswer.of(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new IllegalStateException(e);
        }
    }

    private static void answer(HttpExchange exchange, HttpAnswer answer) throws IOException {
        byte[] bytes = answer.body().getBytes(StandardCharsets.UTF_8);
        answer.fields().forEach(exchange.getResponseHeaders()::set);
        exchange.sendResponseHeaders(answer.status(), bytes.length == 0 ? -1 : bytes.length);
        exchange.getResponseBody().write(bytes);
        exchange.close();
    }

    int port() {
        return server.getAddress().getPort();
    }

    @Override
    public void close() {
        server.stop(0);
        gate.close();
    }

    /**
     * Serves until it is ended.
     *
     * @param arguments where Redis is, such as {@code redis://localhost}
     */
    public static void main(String[] arguments) throws IOException {
        Plain plain = new Plain(arguments.length > 0 ? arguments[0] : "redis://localhost", 8081, Duration.ofMillis(50));
        System.out.println("curl -i http://127.0.0.1:" + plain.port() + "/mail/alice");
    }
}
