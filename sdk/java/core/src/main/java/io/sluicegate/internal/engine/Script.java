package io.sluicegate.internal.engine;

import static io.sluicegate.internal.redis.Keys.ascii;

import io.sluicegate.internal.kernel.Rule;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.HexFormat;

/** The script that decides in Redis, and its name. */
final class Script {
    /** Its text. */
    static final byte[] TEXT = load();
    /** Its SHA-1 in hex, by which Redis finds it. */
    static final byte[] SHA1 = ascii(HexFormat.of().formatHex(Rule.digest("SHA-1", TEXT)));

    private Script() {}

    private static byte[] load() {
        try (InputStream in = Script.class.getResourceAsStream("/io/sluicegate/decide.lua")) {
            return in.readAllBytes();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
