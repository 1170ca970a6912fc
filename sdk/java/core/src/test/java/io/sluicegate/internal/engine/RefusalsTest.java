package io.sluicegate.internal.engine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import io.sluicegate.Carry;
import io.sluicegate.internal.kernel.Answer;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.kernel.Rules;
import java.util.List;
import org.junit.jupiter.api.Test;

class RefusalsTest {
    private static final RuleSet RULES =
        new RuleSet(Carry.USAGE, List.of(Rules.tokenBucket("r", new Rules.Rate(10, 1_000_000), 20, 20, false)));
    private static final Place PLACE = new Place("p", "k");

    private final Refusals refusals = new Refusals();

    private void refused(long retryUs, long atUs) {
        refusals.remember(PLACE, new Answer(false, 0, 0, 20, 0, retryUs, 2_000_000, 0), 1, RULES, 1, atUs);
    }

    @Test
    void a_refusal_holds_until_its_retry() {
        refused(100_000, 1_000_000);
        assertEquals(new Answer(false, 0, 0, 20, 0, 60_000, 1_960_000, 0), refusals.find(PLACE, 1, RULES, 1, 1_040_000));
        assertNull(refusals.find(PLACE, 2, RULES, 1, 1_040_000));
        assertNull(refusals.find(PLACE, 1, RULES, 2, 1_040_000));
        assertNull(refusals.find(PLACE, 1, RULES, 1, 1_100_000));
        assertNull(refusals.find(PLACE, 1, RULES, 1, 999_999));
    }

    @Test
    void after_a_second_one_asks_again() {
        refused(-1, 1_000_000);
        assertEquals(-1, refusals.find(PLACE, 1, RULES, 1, 1_999_999).retryAfterUs());
        assertNull(refusals.find(PLACE, 1, RULES, 1, 2_000_000));
        assertEquals(-1, refusals.find(PLACE, 1, RULES, 1, 2_049_999).retryAfterUs());
        assertNull(refusals.find(PLACE, 1, RULES, 1, 2_050_000));
    }

    @Test
    void an_answer_that_allows_drops_it() {
        refused(-1, 1_000_000);
        refusals.allowed(PLACE, 2, RULES);
        assertEquals(-1, refusals.find(PLACE, 1, RULES, 1, 1_000_000).retryAfterUs());
        refusals.allowed(PLACE, 1, RULES);
        assertNull(refusals.find(PLACE, 1, RULES, 1, 1_000_000));
    }
}
