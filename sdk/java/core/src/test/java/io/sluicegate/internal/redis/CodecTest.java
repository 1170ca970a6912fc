package io.sluicegate.internal.redis;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.Carry;
import io.sluicegate.Verb;
import io.sluicegate.internal.kernel.PermitId;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.kernel.Rules;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import org.junit.jupiter.api.Test;

class CodecTest {
    private static final RuleSet ORDERS = new RuleSet(Carry.USAGE, List.of(Rules.fixedWindow("minute", 10, 60_000_000, false)));

    @Test
    void the_example_of_the_specification_is_equal_to_the_byte() {
        assertEquals("sg:{WYSeHag-hqRckSRns0jV-w}", new String(Keys.state("orders", "alice"), StandardCharsets.US_ASCII));
        assertEquals("sg:{z2q2E-OUI5H4jtaYVX4WgA}", new String(Keys.state("a", "b"), StandardCharsets.US_ASCII));
        Head head = Head.of(ORDERS, 1_767_225_600_000L + 60_000);
        assertEquals("060b0002000105050128cdd20eaf134a050000000000002440000000000000000000000000389c8c41000000000000000000000000"
            + "000000009e5667e13a8860ea000000", HexFormat.of().formatHex(head.blob(ORDERS)));
        assertEquals("sg:rules:amVe8lwjHh50SFePmz7I3w:9e5667e13a88",
            new String(Keys.rules("orders", ORDERS.generationHex()), StandardCharsets.US_ASCII));
        Request.End end = new Request.End(Request.Clock.SERVER, 0, ORDERS.windowsAround(0), null);
        assertEquals("010001000000", HexFormat.of().formatHex(Request.of(Verb.CHECK, 1, 0, null, end)));
    }

    @Test
    void rules_survive_their_bytes() {
        List<Rule> rules = List.of(
            Rules.tokenBucket("a", new Rules.Rate(7, 3_000_000), 100, 3, false),
            Rules.smoothWarmup("b", new Rules.Rate(5, 1_000_000), 3_000_000, 2.5),
            Rules.concurrency("c", 5, 1_000_000));
        RuleSet set = new RuleSet(Carry.PROPORTIONAL, rules);
        assertArrayEquals(set.bytes(), RuleSet.read(set.bytes()).bytes());
    }

    @Test
    void a_permit_is_named_by_the_big_endian_hash_of_its_id() {
        assertEquals("d228cb696f1a8caf78912b704e4a8964", HexFormat.of().formatHex(PermitId.of("a").bytes()));
    }

    @Test
    void a_later_head_is_the_one_taken_over_later() {
        Head early = Head.of(ORDERS, 1_767_225_600_000L + 5);
        Head late = Head.of(ORDERS, 1_767_225_600_000L + 300);
        assertTrue(late.isLaterThan(early));
        assertFalse(early.isLaterThan(late));
        assertFalse(early.isLaterThan(early));
        assertArrayEquals(early.bytes(), Head.ofState(early.bytes()).bytes());
    }

    @Test
    void a_reply_of_another_length_is_none() {
        assertInstanceOf(Result.ThisKey.class, Result.read(new byte[26], ORDERS, Verb.CHECK, false));
        assertInstanceOf(Result.ThisKey.class, Result.read(new byte[28], ORDERS, Verb.CHECK, false));
        assertInstanceOf(Result.ThisKey.class, Result.read(new byte[0], ORDERS, Verb.CHECK, false));
        assertInstanceOf(Result.Decided.class, Result.read(new byte[27], ORDERS, Verb.CHECK, false));
        assertInstanceOf(Result.Unsupported.class, Result.read(new byte[] {2}, ORDERS, Verb.ACQUIRE, false));
        byte[] otherRule = new byte[27];
        otherRule[1] = 1;
        assertInstanceOf(Result.ThisKey.class, Result.read(otherRule, ORDERS, Verb.CHECK, false));
    }

    @Test
    void what_is_left_is_below_0_where_more_than_the_limit_is_in_use() {
        byte[] bytes = new byte[27];
        System.arraycopy(left(-2950), 0, bytes, 13, 7);
        Result.Decided decided = (Result.Decided) Result.read(bytes, ORDERS, Verb.CHECK, false);
        assertEquals(0, decided.answer().remaining());
        assertArrayEquals(new long[] {ORDERS.rules().get(0).limit() + 2950}, decided.inUse());
        RuleSet two = new RuleSet(Carry.USAGE, List.of(Rules.fixedWindow("day", 50, 1, false), Rules.fixedWindow("log", 9, 1, false)));
        bytes = Arrays.copyOf(bytes, 27 + 14);
        System.arraycopy(left(-2950), 0, bytes, 27, 7);
        System.arraycopy(left(-(1L << 53)), 0, bytes, 34, 7);
        decided = (Result.Decided) Result.read(bytes, two, Verb.CHECK, false);
        assertEquals(0, decided.answer().remaining());
        assertArrayEquals(new long[] {3000, 9 + (1L << 53)}, decided.inUse());
    }

    private static byte[] left(long permits) {
        byte[] bytes = new byte[7];
        for (int i = 0; i < bytes.length; i++) {
            bytes[i] = (byte) (permits >> 8 * i);
        }
        return bytes;
    }

    @Test
    void a_reply_under_several_rules_says_of_each_what_is_in_use_and_then_what_was_charged() {
        RuleSet two = new RuleSet(Carry.USAGE,
            List.of(Rules.fixedWindow("day", 1000, 86_400_000_000L, false), Rules.fixedWindow("second", 50, 1_000_000, false)));
        byte[] bytes = new byte[27 + 14 + 8];
        bytes[0] = 1;
        bytes[1] = 1;
        bytes[27] = 100;
        bytes[34] = 3;
        bytes[41] = 7;
        bytes[46] = 1;
        Result.Decided decided = (Result.Decided) Result.read(bytes, two, Verb.CHECK, true);
        assertArrayEquals(new long[] {900, 47}, decided.inUse());
        assertArrayEquals(new long[] {7, 256}, decided.charged());
        decided = (Result.Decided) Result.read(Arrays.copyOf(bytes, 41), two, Verb.CHECK, false);
        assertArrayEquals(new long[] {900, 47}, decided.inUse());
        assertArrayEquals(new long[0], decided.charged());
        for (int length : new int[] {27, 35, 40, 42, 48, 50}) {
            assertInstanceOf(Result.ThisKey.class, Result.read(Arrays.copyOf(bytes, length), two, Verb.CHECK, false));
            assertInstanceOf(Result.ThisKey.class, Result.read(Arrays.copyOf(bytes, length), two, Verb.CHECK, true));
        }
    }
}
