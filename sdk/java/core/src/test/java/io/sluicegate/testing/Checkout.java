package io.sluicegate.testing;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;

/** Files of the specification. */
public final class Checkout {
    private Checkout() {}

    /** The root of the checkout. */
    public static Path root() {
        return Path.of(System.getProperty("checkout", "../../..")).toAbsolutePath().normalize();
    }

    public static byte[] bytes(String path) {
        try {
            return Files.readAllBytes(root().resolve(path));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** The files of all lives, in order. */
    public static List<Path> lives() {
        try (Stream<Path> files = Files.walk(root().resolve("spec/vectors"), 2)) {
            return files.filter(file -> file.getNameCount() == root().getNameCount() + 4)
                .filter(file -> file.toString().endsWith(".json")).sorted().toList();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
