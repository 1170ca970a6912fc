package io.sluicegate.spring;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.sluicegate.testing.Checkout;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.regex.Pattern;
import java.util.spi.ToolProvider;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

/** The public API of all modules is in sdk/java/api.txt; {@code -Dsluicegate.write=true} writes it anew. */
class ApiTest {
    private static final List<String> MODULES =
        List.of("core", "lettuce", "jedis", "http", "servlet", "webflux", "ktor", "test", "micrometer", "spring-boot-starter");
    /** Names that the compiler of Kotlin adds, and those that are internal to a module, with its name in them. */
    private static final Pattern OF_KOTLIN = Pattern.compile("access\\$|\\$sluicegate_");

    @Test
    void every_change_of_what_users_see_is_seen_in_api_txt() throws IOException {
        Path java = Checkout.root().resolve("sdk/java");
        List<String> lines = new ArrayList<>();
        for (String module : MODULES) {
            lines.add("# " + module);
            lines.addAll(publicTypes(java.resolve(module).resolve("target/classes")));
        }
        String now = String.join("\n", lines) + "\n";
        Path file = java.resolve("api.txt");
        if (Boolean.getBoolean("sluicegate.write")) {
            Files.writeString(file, now);
        }
        assertEquals(Files.readString(file), now, "write it with -Dsluicegate.write=true, and look at the difference");
    }

    private static List<String> publicTypes(Path classes) throws IOException {
        List<String> command = new ArrayList<>(List.of("-public", "-cp", classes.toString()));
        try (Stream<Path> all = Files.walk(classes)) {
            all.map(Path::toString).filter(name -> name.endsWith(".class") && !name.contains("/internal/") && !name.endsWith("-info.class"))
                .sorted().forEach(command::add);
        }
        StringWriter out = new StringWriter();
        PrintWriter printer = new PrintWriter(out);
        assertEquals(0, ToolProvider.findFirst("javap").orElseThrow().run(printer, printer, command.toArray(String[]::new)), out::toString);
        List<String> types = new ArrayList<>();
        for (String text : out.toString().split("Compiled from .*\n")) {
            if (text.startsWith("public ")) {
                List<String> parts = text.lines().toList();
                types.add(parts.get(0).replace(" {", ""));
                parts.subList(1, parts.size() - 1).stream().filter(member -> !OF_KOTLIN.matcher(member).find()).sorted().forEach(types::add);
            }
        }
        return types;
    }
}
