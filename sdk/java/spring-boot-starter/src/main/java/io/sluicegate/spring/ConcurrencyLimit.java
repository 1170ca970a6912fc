package io.sluicegate.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Repeatable;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Limits how many calls of a method of a bean are under way at once, by a policy with a {@code concurrency} rule. A call that goes on holds a permit
 * until it ends: until the method returns or throws; the {@code CompletionStage} that it returns completes; a {@code Publisher}
 * or a {@code Flow} completes, fails or is cancelled; a function that suspends is over. The permit is renewed meanwhile, so a call may take longer than
 * the ttl of the rule. If the caller cancels a {@code CompletableFuture}, that of the method is cancelled, too.
 *
 * <p>Everything else is as of {@link RateLimit}. Several on one method are asked for in their order; if a later one is refused, the earlier
 * ones are given back, also before a fallback. They come before any {@link RateLimit}, whose permits are not given back.
 */
@Documented
@Repeatable(ConcurrencyLimit.All.class)
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.METHOD)
public @interface ConcurrencyLimit {
    /** {@return the name of the policy} */
    String policy();

    /** {@return the key, as {@link RateLimit#key}} */
    String key() default "";

    /** {@return whether calls whose key is null or an empty text share one budget} */
    boolean shared() default false;

    /** {@return when a call is not limited, as {@link RateLimit#unless}} */
    String unless() default "";

    /** {@return how many permits a call holds: an expression likewise} */
    String cost() default "1";

    /**
     * {@return the longest wait for a permit, such as {@code 2s} or {@code 500ms}, where the rule has a {@code queue}; empty: as long as the policy
     * lets a request wait}
     */
    String maxWait() default "";

    /** {@return the name of a method that answers in place of a call that is refused, as {@link RateLimit#fallback}; it holds no permit} */
    String fallback() default "";

    /** {@return the status of the answer of a web application to a call over the limit, 400 to 599; 0: 429} The response of a policy comes first. */
    int status() default 0;

    /** {@return the body of that answer; empty: a problem (RFC 9457)} */
    String body() default "";

    /** {@return the type of that body} */
    String contentType() default "text/plain;charset=UTF-8";

    /** Several on one method. */
    @Documented
    @Retention(RetentionPolicy.RUNTIME)
    @Target(ElementType.METHOD)
    @interface All {
        /** {@return them in their order} */
        ConcurrencyLimit[] value();
    }
}
