package io.sluicegate;

import java.util.Map;

/** The treatment of a request over the limit of a policy, where that is more than a refusal. */
public sealed interface Overflow {
    /** The request passes, and would not have: it is counted as one that would be refused. */
    record Shadow() implements Overflow {}

    /**
     * The request does not pass; the caller serves what it has for the tag.
     *
     * @param tag the name of the fallback, 1 to 128 bytes
     */
    record Tag(String tag) implements Overflow {}

    /**
     * The request does not pass; the caller answers with this response.
     *
     * @param status 200 to 599
     * @param headers at most 32, with names in small letters
     * @param body 0 to 65,536 bytes of UTF-8
     */
    record Response(int status, Map<String, String> headers, String body) implements Overflow {
        /**
         * Makes a response.
         *
         * @param status its status
         * @param headers its headers, which are copied
         * @param body its body
         */
        public Response {
            headers = Map.copyOf(headers);
        }
    }

    /**
     * The request does not pass; the caller sends it elsewhere.
     *
     * @param target where to, 1 to 4,096 bytes
     */
    record Divert(String target) implements Overflow {}
}
