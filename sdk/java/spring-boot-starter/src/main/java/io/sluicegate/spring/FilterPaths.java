package io.sluicegate.spring;

import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import org.springframework.http.server.PathContainer;
import org.springframework.web.util.UriUtils;
import org.springframework.web.util.pattern.PathPattern;
import org.springframework.web.util.pattern.PathPatternParser;

/** Which requests a filter is for, and by which key. */
final class FilterPaths {
    /** Before filters that ask who a client is: what is refused costs nothing more. */
    static final int ORDER = -200;
    private static final String HEADER = "header:";
    /** A path that is decoded already, and has no parameters. */
    private static final PathContainer.Options PLAIN = PathContainer.Options.create('/', false);

    private FilterPaths() {}

    static List<PathPattern> patterns(SluicegateProperties.Filter filter) {
        return filter.paths().stream().map(PathPatternParser.defaultInstance::parse).toList();
    }

    /** Whether a path fits as it was sent, or as the handlers of static files read it, with or without a slash at its end. */
    static boolean match(List<PathPattern> patterns, String sent) {
        String plain = plain(sent);
        List<PathContainer> paths = List.of(PathContainer.parsePath(sent), PathContainer.parsePath(plain, PLAIN),
            PathContainer.parsePath(plain + "/", PLAIN));
        return patterns.stream().anyMatch(pattern -> paths.stream().anyMatch(pattern::matches));
    }

    /** {@return a path without parameters, decoded, without dot segments, empty segments and a slash at its end} */
    private static String plain(String sent) {
        Deque<String> segments = new ArrayDeque<>();
        for (String segment : decoded(sent.replaceAll(";[^/]*", "")).replace('\\', '/').split("/")) {
            if (segment.equals("..")) {
                segments.pollLast();
            } else if (!segment.isEmpty() && !segment.equals(".")) {
                segments.add(segment);
            }
        }
        return segments.isEmpty() ? "" : "/" + String.join("/", segments);
    }

    private static String decoded(String path) {
        try {
            return UriUtils.decode(path, StandardCharsets.UTF_8);
        } catch (IllegalArgumentException e) {
            // No handler can decode it either.
            return path;
        }
    }

    /** {@return the field of the request that is the key; null for the client's address} */
    static String header(SluicegateProperties.Filter filter) {
        if (filter.policy() == null) {
            throw new IllegalArgumentException("sluicegate.filters: a filter has no policy");
        }
        if (filter.key().equals("address")) {
            return null;
        }
        if (filter.key().startsWith(HEADER) && filter.key().length() > HEADER.length()) {
            return filter.key().substring(HEADER.length());
        }
        throw new IllegalArgumentException("sluicegate.filters: key: `" + filter.key() + "` is not a key; expected `address` or `header:NAME`");
    }
}
