package io.sluicegate.testing;

import io.sluicegate.Decision;
import io.sluicegate.DirectGate;
import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import io.sluicegate.Sluicegate;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/** The first 50 calls of a process, all at once: a program of its own, as a process is cold once. */
public final class ColdCallers {
    private static final int CALLERS = 50;

    private ColdCallers() {}

    /** Runs it with the port of a contract; returns what the program says. */
    static String run(Class<? extends FaultContract> contract, String uri, String policy) throws IOException {
        String classPath = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        Process process = new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "-Xmx256m", "-cp", classPath,
            ColdCallers.class.getName(), contract.getName(), uri, policy).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try {
            return new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        } finally {
            process.destroyForcibly();
        }
    }

    /** Asks 50 times at once for a budget of 20, and prints what was admitted in which mode. */
    public static void main(String[] args) throws Exception {
        var maker = Class.forName(args[0]).getDeclaredConstructor();
        maker.setAccessible(true);
        FaultContract contract = (FaultContract) maker.newInstance();
        try (DirectGate gate = Sluicegate.direct(contract.open(args[1])).build()) {
            Limiter limiter = args[2].isEmpty() ? gate.limit("cold", Limit.fixedWindow(20, Duration.ofDays(366))) : gate.policy(args[2]);
            ExecutorService threads = Executors.newFixedThreadPool(CALLERS, task -> {
                Thread thread = new Thread(task);
                thread.setDaemon(true);
                return thread;
            });
            CountDownLatch start = new CountDownLatch(1);
            List<Future<Decision>> all = new ArrayList<>();
            for (int caller = 0; caller < CALLERS; caller++) {
                all.add(threads.submit(() -> {
                    start.await();
                    return limiter.check("k");
                }));
            }
            start.countDown();
            int admitted = 0;
            Map<io.sluicegate.Mode, Integer> modes = new EnumMap<>(io.sluicegate.Mode.class);
            for (Future<Decision> each : all) {
                Decision decision = each.get();
                admitted += decision.allowed() ? 1 : 0;
                modes.merge(decision.mode(), 1, Integer::sum);
            }
            System.out.println("admitted " + admitted + " of 20, " + modes);
        }
    }
}
