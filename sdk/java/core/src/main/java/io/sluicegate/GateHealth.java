package io.sluicegate;

/**
 * The state of the Redis or the server that decides, as a gate knows it. No part of it has credentials.
 *
 * @param state whether it decides
 * @param address where Redis or the server is; empty if the gate has none
 * @param cause why it is not {@link State#UP}; null if it is
 * @param decisions what decides meanwhile; null if it is {@link State#UP}
 */
public record GateHealth(State state, String address, String cause, String decisions) {
    /** The states of a gate. */
    public enum State {
        /** Redis or the server answered lately, and the policies that the program uses were read. */
        UP,
        /** Redis or the server does not decide, or has no policies any more, and what is known decides meanwhile; or one of its policies cannot be read. */
        DEGRADED,
        /** Requests by policies get no decision: it does not decide, or no policy was read yet, and nothing else decides. */
        DOWN
    }

    /**
     * The health of a gate that decides.
     *
     * @param address where Redis or the server is
     * @return the health
     */
    public static GateHealth up(String address) {
        return new GateHealth(State.UP, address, null, null);
    }
}
