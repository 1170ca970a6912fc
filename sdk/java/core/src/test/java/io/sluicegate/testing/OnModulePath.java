package io.sluicegate.testing;

import io.sluicegate.DirectGate;
import io.sluicegate.Limit;
import io.sluicegate.RedisPort;
import io.sluicegate.Sluicegate;
import java.io.File;
import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.function.Predicate;
import java.util.stream.Collectors;

/** A program that finds this SDK on the module path. */
public final class OnModulePath {
    private static final Predicate<String> OF_TESTS = entry -> entry.matches(".*(test-classes|-tests\\.jar|junit|opentest4j|apiguardian|surefire|slf4j-nop).*");

    private OnModulePath() {}

    /** Runs it with the module of a port; returns what the program says. */
    public static String run(Class<? extends RedisPort> port, int redis) throws IOException {
        List<String> all = Arrays.asList(System.getProperty("surefire.test.class.path", System.getProperty("java.class.path")).split(File.pathSeparator));
        String modules = all.stream().filter(OF_TESTS.negate()).collect(Collectors.joining(File.pathSeparator));
        String others = all.stream().filter(OF_TESTS).collect(Collectors.joining(File.pathSeparator));
        Process process = new ProcessBuilder(System.getProperty("java.home") + "/bin/java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
            "--module-path", modules, "--add-modules", port.getPackageName(), "-cp", others, OnModulePath.class.getName(), port.getName(),
            Integer.toString(redis)).redirectErrorStream(true).start();
        try {
            return new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        } finally {
            process.destroyForcibly();
        }
    }

    /** Decides once through a port of a class, at a Redis of this machine. */
    public static void main(String[] args) throws Exception {
        Class<?> port = Class.forName(args[0]);
        Method connect = Arrays.stream(port.getMethods()).filter(each -> each.getName().equals("connect")
            && each.getParameterTypes()[0] == String.class).findFirst().orElseThrow();
        Object made = connect.getParameterCount() == 1 ? connect.invoke(null, "redis://127.0.0.1:" + args[1])
            : connect.invoke(null, "127.0.0.1", Integer.parseInt(args[1]));
        try (DirectGate gate = Sluicegate.direct((RedisPort) made).deadline(Duration.ofSeconds(10)).build()) {
            System.out.println(port.getModule().getName() + " and " + DirectGate.class.getModule().getName() + ": "
                + gate.limit("mail", Limit.fixedWindow(10, Duration.ofDays(1))).check("k").mode());
        }
    }
}
