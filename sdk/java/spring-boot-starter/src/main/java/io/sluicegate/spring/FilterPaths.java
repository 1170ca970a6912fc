package io.sluicegate.spring;

import io.sluicegate.ClientAddress;
import io.sluicegate.Decision;
import io.sluicegate.Gate;
import io.sluicegate.HttpAnswer;
import io.sluicegate.Limiter;
import io.sluicegate.Observer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.function.BiFunction;
import java.util.function.Function;
import org.springframework.expression.Expression;
import org.springframework.http.server.PathContainer;
import org.springframework.web.util.UriUtils;
import org.springframework.web.util.pattern.PathPattern;
import org.springframework.web.util.pattern.PathPatternParser;

/** The filters {@code F} of {@code sluicegate.filters}: which requests {@code R} each is for, and by which key. */
final class FilterPaths<F, R> {
    /** Before filters that authenticate a client: what is refused costs nothing more. */
    static final int ORDER = -200;
    /** After those of Spring Security, whose order is -100: the key may be the principal. */
    static final int PRINCIPAL_ORDER = -90;
    private static final String HEADER = "header:";
    private static final String PRINCIPAL = "principal";
    /** A path that is decoded already, and has no parameters. */
    private static final PathContainer.Options PLAIN = PathContainer.Options.create('/', false);

    /** Makers of filters {@code K} of one kind. */
    record Kind<K, R>(BiFunction<Limiter, ClientAddress, K> byAddress, BiFunction<Limiter, String, K> byHeader,
                      BiFunction<Limiter, Function<R, String>, K> byKey, BiFunction<K, Function<Decision, HttpAnswer>, K> answering,
                      BiFunction<K, Duration, K> waiting) {}

    /**
     * The filters of one kind of web application, and what is read of a request.
     *
     * @param principal the name of the user who is logged in; null if nobody is
     * @param request what expressions call {@code #request}
     */
    record Kinds<F, R>(Kind<? extends F, R> rate, Kind<? extends F, R> concurrency, Function<R, String> principal, Function<R, Object> request) {}

    /** The filter of some paths, unless a condition holds. */
    private record Guard<F>(List<PathPattern> paths, Expression unless, F filter) {}

    private final Kinds<F, R> kinds;
    private final Expressions expressions;
    private final List<Guard<F>> guards = new ArrayList<>();

    /** Makes the filters of the application: those by the principal, or the others. */
    FilterPaths(Kinds<F, R> kinds, Gate gate, Observer[] observers, List<SluicegateProperties.Filter> filters, Expressions expressions,
                boolean byPrincipal) {
        this.kinds = kinds;
        this.expressions = expressions;
        for (int place = 0; place < filters.size(); place++) {
            SluicegateProperties.Filter filter = filters.get(place);
            String property = "sluicegate.filters[" + place + "]";
            check(property, filter);
            if (filter.key().equals(PRINCIPAL) == byPrincipal) {
                guards.add(guard(property, filter, gate, observers));
            }
        }
    }

    private Guard<F> guard(String property, SluicegateProperties.Filter settings, Gate gate, Observer[] observers) {
        Limiter limiter = observers.length == 0 ? gate.policy(settings.policy()) : gate.policy(settings.policy()).observedBy(observers);
        Kind<? extends F, R> kind = settings.concurrency() ? kinds.concurrency : kinds.rate;
        F filter = filter(kind, property, settings, settings.shared() ? limiter.shared() : limiter);
        Expression unless = settings.unless() == null ? null : expressions.parse(property + ".unless", settings.unless());
        return new Guard<>(settings.paths().stream().map(PathPatternParser.defaultInstance::parse).toList(), unless, filter);
    }

    private <K extends F> F filter(Kind<K, R> kind, String property, SluicegateProperties.Filter settings, Limiter limiter) {
        K filter = byItsKey(kind, property, settings, limiter);
        OwnAnswer answer = answer(settings);
        if (answer.isOwn()) {
            filter = kind.answering.apply(filter, answer::to);
        }
        return settings.maxWait() == null ? filter : kind.waiting.apply(filter, settings.maxWait());
    }

    private <K> K byItsKey(Kind<K, R> kind, String property, SluicegateProperties.Filter settings, Limiter limiter) {
        if (settings.key().equals("address")) {
            return kind.byAddress.apply(limiter, address(property, settings));
        }
        if (settings.key().equals(PRINCIPAL)) {
            return kind.byKey.apply(limiter, kinds.principal);
        }
        if (settings.key().startsWith(HEADER)) {
            return kind.byHeader.apply(limiter, settings.key().substring(HEADER.length()));
        }
        Expression key = expressions.parse(property + ".key", settings.key());
        return kind.byKey.apply(limiter, request -> {
            Object value = expressions.value(key, kinds.request.apply(request));
            return value == null ? null : value.toString();
        });
    }

    private static ClientAddress address(String property, SluicegateProperties.Filter settings) {
        ClientAddress address;
        try {
            address = ClientAddress.behind(settings.trustedProxies().toArray(String[]::new));
        } catch (IllegalArgumentException e) {
            throw new IllegalArgumentException(property + ".trusted-proxies: " + e.getMessage());
        }
        if (settings.addressHeader() == null) {
            return address;
        }
        if (settings.trustedProxies().isEmpty()) {
            throw new IllegalArgumentException(property + ".address-header: `" + settings.addressHeader()
                + "` is believed from trusted-proxies only, and there are none");
        }
        return address.from(settings.addressHeader());
    }

    private static OwnAnswer answer(SluicegateProperties.Filter settings) {
        return new OwnAnswer(settings.status(), settings.body(), settings.contentType());
    }

    /** {@return the filters of a request, in their order} */
    List<F> of(String path, R request) {
        return guards.stream().filter(guard -> match(guard.paths, path) && !isExempt(guard, request)).map(Guard::filter).toList();
    }

    private boolean isExempt(Guard<F> guard, R request) {
        return guard.unless != null && expressions.isTrue(guard.unless, kinds.request.apply(request));
    }

    /**
     * Tests whether a path fits as it was sent, or as the handlers of static files read it. These handlers ignore a slash at its end, and
     * applications can be configured to. Nothing adds a slash: {@code /a/*} matches {@code /a/} and not {@code /a}.
     */
    static boolean match(List<PathPattern> patterns, String sent) {
        List<PathContainer> paths = new ArrayList<>(List.of(PathContainer.parsePath(sent)));
        plain(sent).forEach(plain -> paths.add(PathContainer.parsePath(plain, PLAIN)));
        return patterns.stream().anyMatch(pattern -> paths.stream().anyMatch(pattern::matches));
    }

    /** {@return a path without parameters, decoded, without dot segments and empty segments; if it ends with a slash, without and with it} */
    private static List<String> plain(String sent) {
        Deque<String> segments = new ArrayDeque<>();
        boolean isFolder = false;
        for (String segment : decoded(sent.replaceAll(";[^/]*", "")).replace('\\', '/').split("/", -1)) {
            isFolder = segment.isEmpty() || segment.equals(".") || segment.equals("..");
            if (segment.equals("..")) {
                segments.pollLast();
            } else if (!isFolder) {
                segments.add(segment);
            }
        }
        if (segments.isEmpty()) {
            return List.of("", "/");
        }
        String plain = "/" + String.join("/", segments);
        return isFolder ? List.of(plain, plain + "/") : List.of(plain);
    }

    private static String decoded(String path) {
        try {
            return UriUtils.decode(path, StandardCharsets.UTF_8);
        } catch (IllegalArgumentException e) {
            // No handler can decode it either.
            return path;
        }
    }

    /** Refuses a filter without a policy, paths that no request has, a key that is none, and a wait that is none. */
    static void check(String property, SluicegateProperties.Filter filter) {
        if (filter.policy() == null) {
            throw new IllegalArgumentException(property + ".policy: is missing");
        }
        for (String path : filter.paths()) {
            if (!path.startsWith("/")) {
                throw new IllegalArgumentException(property + ".paths: `" + path + "` does not begin with `/`");
            }
        }
        String key = filter.key();
        boolean isHeader = key.startsWith(HEADER) && key.length() > HEADER.length();
        if (!key.equals("address") && !key.equals(PRINCIPAL) && !isHeader && !key.startsWith("@") && !key.startsWith("#")) {
            throw new IllegalArgumentException(property + ".key: `" + key
                + "` is not a key; expected `address`, `principal`, `header:NAME`, or an expression that begins with `@` or `#`");
        }
        if (filter.maxWait() != null && (!filter.concurrency() || filter.maxWait().isNegative())) {
            throw new IllegalArgumentException(property + ".max-wait: `" + filter.maxWait() + "` "
                + (filter.concurrency() ? "is negative" : "is for a filter with `concurrency=true`"));
        }
        String mistake = answer(filter).mistake("content-type");
        if (mistake != null) {
            throw new IllegalArgumentException(property + "." + mistake);
        }
    }
}
