package io.sluicegate.spring;

import java.util.List;
import org.springframework.core.env.Environment;

/** Finds a setting of Boot by which every client chooses its own address. */
final class ForwardedHeaders {
    private static final String STRATEGY = "server.forward-headers-strategy";

    private ForwardedHeaders() {}

    /** Logs it where a filter limits by the address: Spring takes the address from the header before any filter sees who sent it. */
    static void warn(Environment environment, List<SluicegateProperties.Filter> filters) {
        if (isUnsafe(environment, filters)) {
            System.getLogger("io.sluicegate").log(System.Logger.Level.WARNING, STRATEGY + "=framework: every client can choose its address by"
                + " `X-Forwarded-For`, so it can avoid the filters of sluicegate.filters by `address`; leave it out, and name the proxies in"
                + " `trusted-proxies`");
        }
    }

    static boolean isUnsafe(Environment environment, List<SluicegateProperties.Filter> filters) {
        return "framework".equalsIgnoreCase(environment.getProperty(STRATEGY)) && filters.stream().anyMatch(filter -> filter.key().equals("address"));
    }
}
