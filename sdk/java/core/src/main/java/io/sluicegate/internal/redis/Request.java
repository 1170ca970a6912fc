package io.sluicegate.internal.redis;

import io.sluicegate.Verb;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.PermitId;
import java.io.ByteArrayOutputStream;
import java.util.Objects;

/** Writes the requests to the script. */
public final class Request {
    /** By which clock a decision is made; the ordinal is the byte of a request. */
    public enum Clock {
        /** The clock of Redis. */
        SERVER,
        /** The instant of the request alone. */
        GIVEN,
        /** The later of the request's and what the state has seen. */
        CLIENT
    }

    /**
     * The ticket of an acquire that waits for a permit of a rule with a queue.
     *
     * @param process the process that waits, a random number
     * @param isGivenBack whether it waits no longer
     */
    public record Ticket(long process, boolean isGivenBack) {}

    private static final int WAIT = 14;
    private static final int LEAVE = 15;
    private static final int DEBIT = 11;
    private static final int AND_THEN = 12;

    private Request() {}

    /**
     * The end of every request.
     *
     * @param clock the clock by which Redis decides
     * @param nowUs the instant, in µs since 1970
     * @param windows of each rule, null for a rule without a calendar
     * @param before the blob of the rules that wrote the state, empty if they are lost, null if they are not needed
     */
    public record End(Clock clock, long nowUs, long[][] windows, byte[] before) {
        void write(ByteArrayOutputStream out) {
            if (clock != Clock.SERVER) {
                integer(out, nowUs, 7);
            }
            for (long[] window : windows) {
                if (window != null) {
                    integer(out, window[0], 7);
                    integer(out, window[1], 7);
                }
            }
            if (before != null) {
                out.write(before.length > 0 ? 1 : 2);
                out.writeBytes(before);
            }
        }
    }

    /**
     * {@return the bytes of a request}
     *
     * @param verb the verb of the request
     * @param cost 1 to 2^31
     * @param maxWaitUs of a reserve, in µs; above 2^53 - 1 is unlimited
     * @param permit of the verbs that name one; else null
     * @param end what it ends with
     */
    public static byte[] of(Verb verb, long cost, long maxWaitUs, PermitId permit, End end) {
        ByteArrayOutputStream out = new ByteArrayOutputStream(32);
        out.write(verb.ordinal() + 1);
        out.write(end.clock.ordinal());
        integer(out, cost, 4);
        if (verb == Verb.RESERVE) {
            integer(out, Math.min(maxWaitUs, Numbers.SPAN_MAX_US), 7);
        }
        if (verb.namesPermit()) {
            out.writeBytes(Objects.requireNonNull(permit).bytes());
        }
        end.write(out);
        return out.toByteArray();
    }

    /** {@return the bytes of an acquire that waits for its permit, or waits no longer} */
    public static byte[] of(Ticket ticket, long cost, PermitId permit, End end) {
        ByteArrayOutputStream out = new ByteArrayOutputStream(48);
        out.write(ticket.isGivenBack ? LEAVE : WAIT);
        out.write(end.clock.ordinal());
        integer(out, ticket.isGivenBack ? 1 : cost, 4);
        out.writeBytes(permit.bytes());
        integer(out, ticket.process, 8);
        end.write(out);
        return out.toByteArray();
    }

    /** {@return a request that is decided after a debt of so many permits of each rule was charged} */
    public static byte[] afterDebt(long[] permits, byte[] request, End end) {
        ByteArrayOutputStream debit = new ByteArrayOutputStream(32);
        debit.write(DEBIT);
        debit.write(end.clock.ordinal());
        integer(debit, 1, 4);
        for (long owed : permits) {
            integer(debit, owed, 4);
        }
        end.write(debit);
        ByteArrayOutputStream out = new ByteArrayOutputStream(debit.size() + request.length + 3);
        out.write(AND_THEN);
        integer(out, debit.size(), 2);
        out.writeBytes(debit.toByteArray());
        out.writeBytes(request);
        return out.toByteArray();
    }

    private static void integer(ByteArrayOutputStream out, long value, int bytes) {
        for (int i = 0; i < bytes; i++) {
            out.write((int) (value >>> 8 * i));
        }
    }
}
