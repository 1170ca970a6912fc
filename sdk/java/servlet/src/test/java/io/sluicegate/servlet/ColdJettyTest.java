package io.sluicegate.servlet;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.sluicegate.Decision;
import io.sluicegate.DirectGate;
import io.sluicegate.Mode;
import io.sluicegate.Observer;
import io.sluicegate.Sluicegate;
import io.sluicegate.SluicegateException;
import io.sluicegate.lettuce.LettucePort;
import io.sluicegate.testing.Records;
import io.sluicegate.testing.TestRedis;
import jakarta.servlet.DispatcherType;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.eclipse.jetty.ee10.servlet.FilterHolder;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.junit.jupiter.api.Test;

/** The first 50 requests of a server of Jetty, all at once: a program of its own, as a process is cold once. */
class ColdJettyTest {
    private static final int REQUESTS = 50;

    @Test
    void the_first_requests_of_a_process_admit_the_limit() throws Exception {
        for (int start = 0; start < (TestRedis.isLong() ? 20 : 2); start++) {
            try (TestRedis redis = TestRedis.start()) {
                redis.command("HSET", "sg:{policies}", "#format", "1", "#revision", "1", "fixed-20", Records.of("fixed-20"));
                String output = run(redis.uri());
                System.out.println("cold Jetty: " + output);
                assertEquals("{200=20, 429=30} {STORE=50}", output);
            }
        }
    }

    private static String run(String uri) throws Exception {
        String classPath = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        Process process = new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "-Xmx256m", "-cp", classPath, Cold.class.getName(), uri)
            .redirectError(ProcessBuilder.Redirect.DISCARD).start();
        try {
            return new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8).strip();
        } finally {
            process.destroyForcibly();
        }
    }

    /** Counts the modes of decisions. */
    private record Modes(Map<String, Integer> counts) implements Observer {
        @Override
        public synchronized void decided(String verb, Decision decision, long nanos) {
            // Redis refused what is remembered.
            counts.merge((decision.mode() == Mode.REMEMBERED ? Mode.STORE : decision.mode()).name(), 1, Integer::sum);
        }

        @Override
        public synchronized void failed(String policy, String verb, SluicegateException failure, long nanos) {
            counts.merge(failure.code().name(), 1, Integer::sum);
        }
    }

    /** Serves with a limit of 20, asks 50 times at once, and prints how many had which status, and which mode. */
    public static final class Cold {
        private Cold() {}

        /** Runs it with the address of Redis. */
        public static void main(String[] args) throws Exception {
            Modes modes = new Modes(new TreeMap<>());
            Server server = new Server();
            try (DirectGate gate = Sluicegate.direct(LettucePort.connect(args[0])).build()) {
                ServerConnector connector = new ServerConnector(server);
                connector.setHost("127.0.0.1");
                server.addConnector(connector);
                ServletContextHandler context = new ServletContextHandler();
                context.addServlet(new ServletHolder(new RateLimitFilterTest.Hello()), "/*");
                RateLimitFilter filter = RateLimitFilter.byHeader(gate.policy("fixed-20").observedBy(modes), "X-Tenant");
                context.addFilter(new FilterHolder(filter), "/*", EnumSet.of(DispatcherType.REQUEST));
                server.setHandler(context);
                server.start();
                System.out.println(ask(URI.create("http://127.0.0.1:" + connector.getLocalPort() + "/")) + " " + modes.counts());
            } finally {
                server.stop();
            }
        }

        private static Map<Integer, Integer> ask(URI uri) throws Exception {
            HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
            HttpRequest request = HttpRequest.newBuilder(uri).header("X-Tenant", "a").timeout(Duration.ofSeconds(20)).build();
            ExecutorService threads = Executors.newFixedThreadPool(REQUESTS);
            CountDownLatch begin = new CountDownLatch(1);
            List<Future<Integer>> all = new ArrayList<>();
            for (int each = 0; each < REQUESTS; each++) {
                all.add(threads.submit(() -> {
                    begin.await();
                    return client.send(request, HttpResponse.BodyHandlers.discarding()).statusCode();
                }));
            }
            begin.countDown();
            Map<Integer, Integer> statuses = new TreeMap<>();
            for (Future<Integer> each : all) {
                statuses.merge(each.get(), 1, Integer::sum);
            }
            threads.shutdown();
            return statuses;
        }
    }
}
