package io.sluicegate.spring;

import java.lang.annotation.Documented;
import java.lang.annotation.ElementType;
import java.lang.annotation.Repeatable;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;

/**
 * Limits the calls of a method of a bean, from outside of the bean; at a private, final or static method it is refused at
 * the start. A call that is refused throws a
 * {@link io.sluicegate.RateLimitExceededException}, or goes to the fallback. A method that returns a {@code CompletionStage}
 * or a {@code Publisher}, such as a {@code Mono} or {@code Flux}, does not block its caller. Of a {@code Publisher} each
 * subscription is limited, and the method is called by those that pass.
 *
 * <p>Several on one method are checked in their order; what one has taken stays taken if a later one refuses.
 */
@Documented
@Repeatable(RateLimit.All.class)
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.METHOD)
public @interface RateLimit {
    /** {@return the name of the policy} */
    String policy();

    /**
     * {@return the key: an expression of Spring (SpEL) over the parameters and beans, such as {@code #user.id} or
     * {@code @tenants.of(#user)}; without one it is the budget that all calls of the program share. A value that is null or an empty text fails
     * with {@link io.sluicegate.ErrorCode#KEY_EMPTY}, unless such calls are {@link #shared}}
     */
    String key() default "";

    /** {@return whether calls whose key is null or an empty text share one budget} */
    boolean shared() default false;

    /** {@return when a call is not limited: an expression likewise, such as {@code #user.isAdmin()}; empty: never} */
    String unless() default "";

    /** {@return how many permits a call costs: an expression likewise} */
    String cost() default "1";

    /**
     * {@return the name of a method of the bean that answers in place of a call that is refused, with the same parameters
     * and, if it likes, a {@code RateLimitExceededException} behind them; empty: none}
     */
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
        RateLimit[] value();
    }
}
