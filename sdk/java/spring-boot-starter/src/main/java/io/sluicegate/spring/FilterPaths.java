package io.sluicegate.spring;

import io.sluicegate.ClientAddress;
import io.sluicegate.Gate;
import io.sluicegate.Limiter;
import io.sluicegate.Observer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.function.BiFunction;
import org.springframework.http.server.PathContainer;
import org.springframework.web.util.UriUtils;
import org.springframework.web.util.pattern.PathPattern;
import org.springframework.web.util.pattern.PathPatternParser;

/** The filters of {@code sluicegate.filters}: which requests each is for, and by which key. */
final class FilterPaths<F> {
    /** Before filters that ask who a client is: what is refused costs nothing more. */
    static final int ORDER = -200;
    private static final String HEADER = "header:";
    /** A path that is decoded already, and has no parameters. */
    private static final PathContainer.Options PLAIN = PathContainer.Options.create('/', false);

    /** The filter of some paths. */
    private record Guard<F>(List<PathPattern> paths, F filter) {}

    private final List<Guard<F>> guards;

    /** Makes the filters of the application, by the client's address or by a field. */
    FilterPaths(Gate gate, Observer[] observers, List<SluicegateProperties.Filter> filters, BiFunction<Limiter, ClientAddress, F> byAddress,
                BiFunction<Limiter, String, F> byHeader) {
        guards = filters.stream().map(filter -> {
            String header = header(filter);
            Limiter limiter = observers.length == 0 ? gate.policy(filter.policy()) : gate.policy(filter.policy()).observedBy(observers);
            return new Guard<>(filter.paths().stream().map(PathPatternParser.defaultInstance::parse).toList(), header != null
                ? byHeader.apply(limiter, header)
                : byAddress.apply(limiter, ClientAddress.behind(filter.trustedProxies().toArray(String[]::new))));
        }).toList();
    }

    /** {@return the filters of a path, in their order} */
    List<F> of(String path) {
        return guards.stream().filter(guard -> match(guard.paths, path)).map(Guard::filter).toList();
    }

    /** Tests whether a path fits as it was sent, or as the handlers of static files read it, with or without a slash at its end. */
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
