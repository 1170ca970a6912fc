package io.sluicegate.spring;

import java.net.URI;
import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationProperties;
import org.springframework.boot.context.properties.bind.DefaultValue;

/**
 * What an application says of its gate.
 *
 * @param mode who decides
 * @param app the application's name, which policies name in {@code apps}; null: none
 * @param nodes among how many servers and processes limits are shared without Redis; null: as published, or 1
 * @param deadline of a decision in Redis, 1 ms to 10 s
 * @param redis where Redis is
 * @param server where a server is
 */
@ConfigurationProperties("sluicegate")
public record SluicegateProperties(@DefaultValue("direct") Mode mode, String app, Long nodes, @DefaultValue("50ms") Duration deadline,
                                   @DefaultValue Redis redis, @DefaultValue Server server) {
    /** Who decides. */
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
     */
    public record Redis(@DefaultValue("redis://localhost") String url) {}

    /**
     * Where a server is.
     *
     * @param url its address
     * @param token by which it knows the application; null: none
     * @param timeout of an answer
     */
    public record Server(@DefaultValue("http://localhost:8080") URI url, String token, @DefaultValue("200ms") Duration timeout) {}
}
