package io.sluicegate.lettuce;

import io.lettuce.core.RedisURI;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** Addresses of Redis as texts. Lettuce ignores unknown parameters, and its errors may contain the password. */
final class Addresses {
    private static final Set<String> PARAMETERS =
        Set.of("timeout", "database", "db", "clientName", "libraryName", "libraryVersion", "sentinelMasterId", "verifyPeer");

    /** The host and the port of one server; its user and password are before the last {@code @}. */
    private static final Pattern ONE = Pattern.compile("rediss?://(?:.*@)?([^/?#@]*)(?:[/?#].*)?");
    private static final Pattern HOST = Pattern.compile("(?:[^:\\[\\],\\s]+|\\[[0-9a-fA-F:.%]+])(?::[0-9]{1,5})?");
    private static final String EXPECTED = "expected `redis://HOST:PORT/DATABASE`, `rediss://..` or `redis-sentinel://..`";

    private Addresses() {}

    /** {@return the address, or throws what is wrong with it} */
    static RedisURI parse(String text) {
        int query = text.indexOf('?');
        String parameters = query < 0 ? "" : text.substring(query + 1).replaceFirst("#.*", "");
        for (String each : parameters.isEmpty() ? new String[0] : parameters.split("&")) {
            check(each.substring(0, Math.max(each.indexOf('='), 0)), each.substring(each.indexOf('=') + 1));
        }
        Matcher one = ONE.matcher(text);
        if (one.matches() && !HOST.matcher(one.group(1)).matches()) {
            throw new IllegalArgumentException(EXPECTED + ": `" + one.group(1) + "` is not a host and a port");
        }
        try {
            return RedisURI.create(text);
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException(EXPECTED + ": " + (text.isEmpty() ? "it is empty" : String.valueOf(e.getMessage()).replace(text, "it")).replaceAll("//.*@", "//***@"));
        }
    }

    private static void check(String name, String value) {
        if (!PARAMETERS.contains(name)) {
            // What looks like one may be the end of a password.
            throw new IllegalArgumentException((name + value).contains("@") ? "a `?` in a password is written as `%3F`"
                : "unknown parameter `" + name + "`; known are " + PARAMETERS.stream().sorted().toList());
        }
        if (name.equals("timeout") && !value.matches("[0-9]{1,9}(ns|us|ms|s|m|h|d)?")) {
            throw new IllegalArgumentException("timeout: `" + value + "` is not a time; expected such as `5s`");
        }
    }
}
