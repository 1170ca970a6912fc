package io.sluicegate.internal.kernel;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.testing.Checkout;
import io.sluicegate.testing.Vector;
import java.nio.charset.StandardCharsets;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestFactory;

class VectorsTest {
    @Test
    void all_lives_are_there() {
        assertTrue(Checkout.lives().size() >= 119, "lives: " + Checkout.lives().size());
    }

    @TestFactory
    Stream<DynamicTest> the_kernel_answers_as_every_other() {
        return Checkout.lives().stream().map(Vector::load).map(life -> DynamicTest.dynamicTest(life.name(), () -> live(life)));
    }

    private static void live(Vector life) {
        Usage usage = new Usage();
        RuleSet rules = life.rules();
        int place = 0;
        for (Vector.Step step : life.steps()) {
            if (step.verb() == null) {
                rules = step.rules();
            } else {
                assertEquals(step.expected(), ask(usage, rules, step), "step " + place);
            }
            place++;
        }
    }

    private static String ask(Usage usage, RuleSet rules, Vector.Step step) {
        if (step.cost() < 1 || step.cost() > Numbers.COST_MAX) {
            return "error range";
        }
        if (!step.verb().isSupportedBy(rules)) {
            return "error unsupported";
        }
        long[][] own = rules.windowsAround(step.at());
        if (step.windows() != null) {
            assertArrayEquals(step.windows(), own, "windows");
        }
        long maxWait = step.verb() == Verb.RESERVE ? step.maxWait() : Numbers.NO_WAIT_GIVEN;
        PermitId permit = step.id() == null ? null : PermitId.of(step.id().getBytes(StandardCharsets.UTF_8));
        return Vector.text(usage.decide(rules, new Usage.Ask(step.verb(), step.cost(), maxWait, permit, step.at(), own)), rules);
    }
}
