package io.sluicegate.spring;

import java.net.URI;
import java.time.Duration;
import java.util.List;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * The settings of an application for its gate.
 *
 * @param mode who decides
 * @param app the application's name, which policies name in {@code apps}; null: none
 * @param nodes among how many servers and processes limits are shared without Redis; null: as published, or 1
 * @param deadline of a decision in Redis, 1 ms to 10 s
 * @param redis where Redis is
 * @param server where a server is
 * @param warmUp whether the start runs the path of a decision, so that first requests are as fast as others
 * @param requiredPolicies names of policies without which the application does not start
 * @param filters which requests are limited; all that match a request apply in their order
 * @param health the statuses of the health of the application
 */
@ConfigurationProperties("sluicegate")
public record SluicegateProperties(@DefaultValue("direct") Mode mode, String app, Long nodes, @DefaultValue("50ms") Duration deadline,
                                   @DefaultValue Redis redis, @DefaultValue Server server, @DefaultValue("true") boolean warmUp,
                                   @DefaultValue List<String> requiredPolicies, @DefaultValue List<Filter> filters,
                                   @DefaultValue Health health) {
    /** {@return an address without its credentials} */
    static String masked(Object url) {
        return url.toString().replaceAll("//.*@", "//***@");
    }

    /** The side that decides. */
    public enum Mode {
        /** Redis. */
        DIRECT,
        /** A server. */
        REMOTE
    }

    /**
     * Where Redis is.
     *
     * @param url its address, with what it needs to be let in
     * @param cluster addresses of some nodes of a cluster; if there are any, they are used and not {@code url}
     */
    public record Redis(@DefaultValue("redis://localhost") String url, @DefaultValue List<String> cluster) {
        /** {@return the settings, without credentials} */
        @Override
        public String toString() {
            return "Redis[url=" + masked(url) + ", cluster=" + cluster.stream().map(SluicegateProperties::masked).toList() + "]";
        }
    }

    /**
     * Where a server is.
     *
     * @param url its address
     * @param token the token of the application; null: none
     * @param timeout of an answer
     */
    public record Server(@DefaultValue("http://localhost:8080") URI url, String token, @DefaultValue("200ms") Duration timeout) {
        /** {@return the settings, without the token} */
        @Override
        public String toString() {
            return "Server[url=" + masked(url) + ", token=" + (token == null ? "null" : "***") + ", timeout=" + timeout + "]";
        }
    }

    /**
     * Requests that a policy limits.
     *
     * @param policy the policy's name
     * @param paths their paths, as patterns of Spring
     * @param key the key of the budget: {@code address}, {@code principal}, {@code header:NAME}, or an expression (SpEL) over {@code #request} and
     *     beans that begins with {@code @} or {@code #}
     * @param trustedProxies networks whose {@code X-Forwarded-For} is believed
     * @param addressHeader the field that is believed in its place, such as {@code CF-Connecting-IP}; null: none
     * @param shared whether requests without a key share one budget; else they are answered with 400
     * @param unless when a request is not limited: an expression (SpEL) over {@code #request} and beans; null: never
     * @param status of the answer to a request over the limit; null: 429, or that of the policy
     * @param body of that answer; null: a problem (RFC 9457), or that of the policy
     * @param contentType of that body
     * @param concurrency whether a request holds a permit of the policy, which has a {@code concurrency} rule, until it ends
     * @param maxWait the longest wait for that permit; null: as long as the policy lets a request wait
     */
    public record Filter(String policy, @DefaultValue("/**") List<String> paths, @DefaultValue("address") String key,
                         @DefaultValue List<String> trustedProxies, String addressHeader, @DefaultValue("false") boolean shared, String unless,
                         Integer status, String body, @DefaultValue("text/plain;charset=UTF-8") String contentType,
                         @DefaultValue("false") boolean concurrency, Duration maxWait) {}

    /**
     * The settings of the health of the application.
     *
     * @param degradedStatus the status while Redis does not answer, and what is known decides. It is no reason to take the application out of
     *     service, so it is one that Boot answers with 200
     * @param downStatus the status while requests by policies get no decision: no policy was ever read, or the server is away
     */
    public record Health(@DefaultValue("DEGRADED") String degradedStatus, @DefaultValue("DOWN") String downStatus) {}
}
