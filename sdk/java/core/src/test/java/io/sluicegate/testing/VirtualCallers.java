package io.sluicegate.testing;

import io.sluicegate.DirectGate;
import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import io.sluicegate.Mode;
import io.sluicegate.Sluicegate;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.Stream;
import jdk.jfr.Recording;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.Assumptions;

/** A thousand virtual threads at one gate, in a Java that has them: a program of its own, as the tests may run in an older one. */
public final class VirtualCallers {
    private static final int THREADS = 1000;
    private static final int CALLS = 5;
    private static final int FIRST_WITH_THREADS = 21;
    private static final String PINNED = "jdk.VirtualThreadPinned";

    private VirtualCallers() {}

    /** Runs them with the port of a contract; returns what the program says. */
    static String run(Class<? extends FaultContract> contract, String uri) throws IOException {
        String classPath = System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"));
        Process process = new ProcessBuilder(java().toString(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", classPath,
            VirtualCallers.class.getName(), contract.getName(), uri).redirectError(ProcessBuilder.Redirect.DISCARD).start();
        try {
            return new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        } finally {
            process.destroyForcibly();
        }
    }

    /** A Java with virtual threads: this one, that of SLUICEGATE_JAVA_HOME, or one of the system's. Skips the test where there is none. */
    private static Path java() throws IOException {
        List<Path> homes = new ArrayList<>();
        if (Runtime.version().feature() >= FIRST_WITH_THREADS) {
            homes.add(Path.of(System.getProperty("java.home")));
        }
        if (System.getenv("SLUICEGATE_JAVA_HOME") != null) {
            homes.add(Path.of(System.getenv("SLUICEGATE_JAVA_HOME")));
        }
        Path installed = Path.of("/usr/lib/jvm");
        if (Files.isDirectory(installed)) {
            try (Stream<Path> all = Files.list(installed)) {
                all.sorted().forEach(homes::add);
            }
        }
        for (Path home : homes) {
            if (feature(home) >= FIRST_WITH_THREADS) {
                return home.resolve("bin/java");
            }
        }
        String reason = "skipped: there is no Java " + FIRST_WITH_THREADS + " with virtual threads; set SLUICEGATE_JAVA_HOME";
        System.out.println(reason);
        if ("true".equals(System.getenv("CI"))) {
            throw new IllegalStateException(reason);
        }
        Assumptions.abort(reason);
        throw new IllegalStateException(reason);
    }

    private static int feature(Path home) throws IOException {
        Path release = home.resolve("release");
        if (!Files.isReadable(release) || !Files.isExecutable(home.resolve("bin/java"))) {
            return 0;
        }
        return Files.readAllLines(release).stream().filter(line -> line.startsWith("JAVA_VERSION="))
            .mapToInt(line -> Integer.parseInt(line.replaceAll("[^0-9]*([0-9]+).*", "$1"))).findFirst().orElse(0);
    }

    /** Asks through the port of the contract whose class is given, and prints what became of it. */
    public static void main(String[] args) throws Exception {
        var maker = Class.forName(args[0]).getDeclaredConstructor();
        maker.setAccessible(true);
        FaultContract contract = (FaultContract) maker.newInstance();
        AtomicInteger passed = new AtomicInteger();
        Path file = Files.createTempFile("pinned", ".jfr");
        try (DirectGate gate = Sluicegate.direct(contract.open(args[1])).deadline(Duration.ofSeconds(10)).build(); Recording recording = new Recording()) {
            Limiter hot = gate.limit("hot", Limit.fixedWindow(1_000_000, Duration.ofDays(366)));
            TestRedis.await("a decision", () -> hot.check("k").mode() == Mode.STORE);
            // What is loaded and begun once is not counted.
            callAll(hot, new AtomicInteger());
            recording.enable(PINNED).withoutThreshold().withStackTrace();
            recording.start();
            long began = System.nanoTime();
            callAll(hot, passed);
            long ms = (System.nanoTime() - began) / 1_000_000;
            recording.stop();
            recording.dump(file);
            List<RecordedEvent> pinned = RecordingFile.readAllEvents(file).stream().filter(each -> each.getEventType().getName().equals(PINNED)).toList();
            pinned.stream().limit(3).forEach(System.out::println);
            System.out.println(passed + " of " + THREADS * CALLS + " passed, " + pinned.size() + " pinned, Java " + Runtime.version().feature());
            System.err.println(ms + " ms");
        } finally {
            Files.delete(file);
        }
    }

    private static void callAll(Limiter limiter, AtomicInteger passed) throws Exception {
        ExecutorService threads = (ExecutorService) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
        for (int i = 0; i < THREADS; i++) {
            threads.execute(() -> {
                for (int call = 0; call < CALLS; call++) {
                    passed.addAndGet(limiter.check("k").mode() == Mode.STORE ? 1 : 0);
                }
            });
        }
        threads.shutdown();
        if (!threads.awaitTermination(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("they do not end");
        }
    }
}
