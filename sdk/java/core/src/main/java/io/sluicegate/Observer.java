package io.sluicegate;

/**
 * A limiter calls its observer after each decision, on the thread of the caller, or on that which completes the future of an asynchronous
 * call. An observer must not block. An exception of it is logged and changes nothing: the request is charged already.
 */
public interface Observer {
    /**
     * There is a decision.
     *
     * @param verb the verb of the request, such as {@code check} or {@code at_most}
     * @param decision the decision
     * @param nanos how long it took, with the time that a request was held back
     */
    void decided(String verb, Decision decision, long nanos);

    /**
     * There is no decision.
     *
     * @param policy the policy's name
     * @param verb the verb of the request
     * @param failure why not
     * @param nanos how long it took
     */
    void failed(String policy, String verb, SluicegateException failure, long nanos);
}
