package io.sluicegate.spring;

import java.util.List;
import org.springframework.http.server.PathContainer;
import org.springframework.web.util.pattern.PathPattern;
import org.springframework.web.util.pattern.PathPatternParser;

/** Which requests a filter is for, and by which key. */
final class FilterPaths {
    /** Before filters that ask who a client is: what is refused costs nothing more. */
    static final int ORDER = -200;
    private static final String HEADER = "header:";

    private FilterPaths() {}

    static List<PathPattern> patterns(SluicegateProperties.Filter filter) {
        return filter.paths().stream().map(PathPatternParser.defaultInstance::parse).toList();
    }

    static boolean match(List<PathPattern> patterns, PathContainer path) {
        return patterns.stream().anyMatch(pattern -> pattern.matches(path));
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
