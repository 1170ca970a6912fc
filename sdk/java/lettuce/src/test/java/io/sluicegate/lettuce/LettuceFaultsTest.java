package io.sluicegate.lettuce;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.sluicegate.DirectGate;
import io.sluicegate.Limit;
import io.sluicegate.Limiter;
import io.sluicegate.Mode;
import io.sluicegate.RedisPort;
import io.sluicegate.Sluicegate;
import io.sluicegate.testing.FaultContract;
import io.sluicegate.testing.TestRedis;
import io.sluicegate.testing.TestSentinels;
import java.time.Duration;
import org.junit.jupiter.api.Test;

class LettuceFaultsTest extends FaultContract {
    @Override
    protected RedisPort open(String uri) {
        return LettucePort.connect(uri);
    }

    @Test
    void after_a_failover_the_new_master_decides() {
        try (TestSentinels sentinels = TestSentinels.start();
             DirectGate gate = Sluicegate.direct(LettucePort.connect(sentinels.uri())).deadline(Duration.ofSeconds(2)).build()) {
            Limiter mail = gate.limit("mail", Limit.fixedWindow(10, Duration.ofDays(366)));
            TestRedis.await("a decision of the first master", () -> mail.peek("k", 1).mode() == Mode.STORE);
            assertEquals(9, mail.check("k").remaining());
            sentinels.awaitReplica();
            sentinels.stopMaster();
            TestRedis.await("a decision of the new master", () -> mail.peek("k", 1).mode() == Mode.STORE);
            assertEquals(8, mail.check("k").remaining());
        }
    }
}
