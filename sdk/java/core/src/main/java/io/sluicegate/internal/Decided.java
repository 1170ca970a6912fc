package io.sluicegate.internal;

import io.sluicegate.Decision;
import io.sluicegate.Mode;
import io.sluicegate.Overflow;
import io.sluicegate.Quota;
import java.util.List;

/** The decisions of all gates. */
public record Decided(boolean allowed, long granted, long waitUs, long limit, long remaining, long retryAfterUs, long resetAfterUs,
                      String policy, String rule, List<Quota> quotas, Mode mode, Overflow overflow, long heldUs) implements Decision {
    /** {@return a decision whose wait is over, and which took so long} */
    public static Decided held(Decision decision, long heldUs) {
        return new Decided(decision.allowed(), decision.granted(), 0, decision.limit(), decision.remaining(), decision.retryAfterUs(),
            decision.resetAfterUs(), decision.policy(), decision.rule(), decision.quotas(), decision.mode(), decision.overflow(), heldUs);
    }
}
