package io.sluicegate.internal.engine;

import io.sluicegate.internal.Deadline;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.sluicegate.RedisPort;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.PermitId;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.redis.Head;
import io.sluicegate.internal.redis.Request.Clock;
import io.sluicegate.internal.redis.Result;
import io.sluicegate.testing.Vector;

/** Runs a life through Redis by given time. */
public final class RedisVectors {
    private final RedisStore store;

    public RedisVectors(RedisPort port) {
        this.store = new RedisStore(port, null, new Deadline(2_000_000_000L, false));
    }

    public void live(Vector life) throws InterruptedException {
        RuleSet rules = life.rules();
        long version = 1;
        int place = 0;
        for (Vector.Step step : life.steps()) {
            if (step.verb() == null) {
                rules = step.rules();
                version++;
            } else {
                assertEquals(step.expected(), decide(life.name(), rules, version, step), "step " + place);
            }
            place++;
        }
    }

    private String decide(String life, RuleSet rules, long version, Vector.Step step) throws InterruptedException {
        if (step.cost() < 1 || step.cost() > Numbers.COST_MAX) {
            return "error range";
        }
        PermitId permit = PermitId.of(step.id());
        Head head = Head.of(rules, 1_767_225_600_000L + version);
        Result result = store.run(store.decideSteps(new StoreRequest(life.replace('/', '.'), rules, head, "key", step.verb(), step.cost(), step.maxWait(),
            permit, Clock.GIVEN, step.at(), null)));
        if (result instanceof Result.Unsupported) {
            return "error unsupported";
        }
        return result instanceof Result.Decided decided ? Vector.text(decided.answer(), rules) : result.toString();
    }
}
