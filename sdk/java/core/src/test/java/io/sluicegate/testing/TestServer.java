package io.sluicegate.testing;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Assumptions;

/** A server of a test's own. */
public final class TestServer implements AutoCloseable {
    private final Process process;
    private final String http;
    private final Path file;

    private TestServer(Process process, String http, Path file) {
        this.process = process;
        this.http = http;
        this.file = file;
    }

    /** Starts one with these policies; {@code store} may be null. Skips the test where there is no program, but not in CI. */
    public static TestServer start(String policies, String store) {
        Path program = program();
        try {
            Path file = Files.createTempFile("policies", ".json");
            Files.writeString(file, policies);
            ProcessBuilder builder = new ProcessBuilder(program.toString(), "serve", "--policies", file.toString(), "--listen", "127.0.0.1:0");
            if (store != null) {
                builder.command().add("--store");
                builder.command().add(store);
            }
            for (String listener : new String[] {"RESP", "RLS", "ADMIN"}) {
                builder.environment().put("SLUICEGATE__" + listener + "__LISTEN", "127.0.0.1:0");
            }
            Process process = builder.redirectErrorStream(true).start();
            BufferedReader out = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
            StringBuilder output = new StringBuilder();
            for (String line = out.readLine(); line != null; line = out.readLine()) {
                output.append(line).append('\n');
                int at = line.indexOf("http://");
                if (line.contains("listening") && at >= 0) {
                    drain(out);
                    return new TestServer(process, line.substring(at).trim(), file);
                }
            }
            throw new IllegalStateException("the server did not start:\n" + output);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static Path program() {
        String given = System.getenv("SLUICEGATE_BIN");
        Path program = given != null ? Path.of(given) : Checkout.root().resolve("target/debug/sluicegate");
        if (!Files.isExecutable(program)) {
            String reason = "skipped: there is no server at " + program + "; set SLUICEGATE_BIN";
            System.out.println(reason);
            if ("true".equals(System.getenv("CI"))) {
                throw new IllegalStateException(reason);
            }
            Assumptions.abort(reason);
        }
        return program;
    }

    /** Runs the program with these arguments, and returns its output. */
    public static String run(String... arguments) {
        List<String> command = new ArrayList<>(List.of(program().toString()));
        command.addAll(List.of(arguments));
        try {
            Process process = new ProcessBuilder(command).start();
            return new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    private static void drain(BufferedReader out) {
        Thread thread = new Thread(() -> {
            try {
                while (out.readLine() != null) {
                    // The output of the server is not used.
                }
            } catch (IOException e) {
                // It ended.
            }
        }, "server-output");
        thread.setDaemon(true);
        thread.start();
    }

    /** Where it listens for HTTP. */
    public String http() {
        return http;
    }

    @Override
    public void close() {
        process.destroyForcibly();
        try {
            process.waitFor();
            Files.deleteIfExists(file);
        } catch (InterruptedException | IOException e) {
            throw new IllegalStateException(e);
        }
    }
}
