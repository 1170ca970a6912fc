package io.sluicegate.internal.engine;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.sluicegate.Carry;
import io.sluicegate.Limit;
import io.sluicegate.Verb;
import io.sluicegate.internal.kernel.Answer;
import io.sluicegate.internal.kernel.Calendar;
import io.sluicegate.internal.kernel.Numbers;
import io.sluicegate.internal.kernel.Rule;
import io.sluicegate.internal.kernel.RuleSet;
import io.sluicegate.internal.kernel.Rules;
import io.sluicegate.internal.redis.Head;
import io.sluicegate.internal.redis.Request.Clock;
import io.sluicegate.internal.redis.Result;
import java.time.ZoneOffset;
import java.util.List;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;

/** The examples of the page "When Redis does not decide". */
class SharesTest {
    private static final long T = 1_800_000_000_000_000L;
    private static final Place PLACE = new Place("p", "k");

    private final Shares shares = new Shares();

    private static StoreRequest question(RuleSet rules, Verb verb, long cost, long nowUs) {
        return new StoreRequest("p", rules, Head.of(rules, 0), PLACE.key(), verb, cost, 0, null, Clock.SERVER, nowUs, null);
    }

    private static Result.Decided said(Answer answer, long... inUse) {
        return new Result.Decided(answer, inUse.length > 0 ? inUse : new long[] {answer.limit() - answer.remaining()}, new long[0]);
    }

    private static String text(Answer a) {
        return (a.allowed() ? "passes" : "refused") + " limit " + a.limit() + " remaining " + a.remaining() + " retry " + a.retryAfterUs()
            + " reset " + a.resetAfterUs();
    }

    @Test
    void a_share_is_the_nth_part_of_the_limit() {
        RuleSet rules = new RuleSet(Carry.USAGE, List.of(Rules.tokenBucket("r", new Rules.Rate(100, 1_000_000), 50, 50, false)));
        shares.learn(PLACE, rules, said(new Answer(true, 1, 0, 50, 10, 0, 400_000, 0)), T);
        assertEquals("passes limit 12 remaining 1 retry 0 reset 440000", text(decide(rules, 1, T)));
        assertEquals("passes limit 12 remaining 0 retry 0 reset 480000", text(decide(rules, 1, T)));
        assertEquals("refused limit 12 remaining 0 retry 20000 reset 480000", text(decide(rules, 1, T)));
        assertEquals("refused limit 12 remaining 0 retry 1000000 reset 480000", text(decide(rules, 13, T)));
        assertEquals("refused limit 12 remaining 0 retry -1 reset 480000", text(decide(rules, 51, T)));
        assertEquals("passes limit 12 remaining 0 retry 0 reset 500000", text(decide(rules, 1, T + 20_000)));
        assertArrayEquals(new long[] {3}, shares.account(PLACE).owed(rules, T + 20_000));
    }

    private Answer decide(RuleSet rules, long cost, long nowUs) {
        return shares.decide(PLACE, question(rules, Verb.CHECK, cost, nowUs), 4);
    }

    @Test
    void a_share_leaves_room_for_what_redis_is_asked_for() {
        RuleSet rules = new RuleSet(Carry.USAGE, List.of(Rules.tokenBucket("r", new Rules.Rate(1, 1_000_000), 20, 20, false)));
        shares.ask(PLACE, 3);
        for (int check = 0; check < 17; check++) {
            assertTrue(shares.decide(PLACE, question(rules, Verb.CHECK, 1, T), 1).allowed());
        }
        for (Verb verb : List.of(Verb.CHECK, Verb.AT_MOST, Verb.RESERVE)) {
            Answer refused = shares.decide(PLACE, question(rules, verb, 1, T), 1);
            assertFalse(refused.allowed(), verb.text());
            assertEquals(100_000, refused.retryAfterUs());
        }
        assertTrue(shares.decide(PLACE, question(rules, Verb.PEEK, 1, T), 1).allowed());
        // Redis grants the three, and has nothing else: what is owed stays.
        shares.learn(PLACE, rules, said(new Answer(true, 3, 0, 20, 17, 0, 3_000_000, 0)), T);
        shares.answered(PLACE, 3);
        assertFalse(shares.decide(PLACE, question(rules, Verb.CHECK, 1, T), 1).allowed());
        assertArrayEquals(new long[] {17}, shares.account(PLACE).owed(rules, T));
        assertTrue(shares.decide(PLACE, question(rules, Verb.CHECK, 1, T + 1_000_000), 1).allowed());
    }

    @Test
    void what_flows_out_is_not_owed_any_more() {
        RuleSet rules = new RuleSet(Carry.USAGE, List.of(Rules.tokenBucket("r", new Rules.Rate(10, 1_000_000), 20, 20, false)));
        shares.learn(PLACE, rules, said(new Answer(true, 5, 0, 20, 15, 0, 500_000, 0)), T);
        for (int i = 0; i < 10; i++) {
            shares.decide(PLACE, question(rules, Verb.CHECK, 1, T), 1);
        }
        assertArrayEquals(new long[] {10}, shares.account(PLACE).owed(rules, T + 400_000));
        Shares.Account account = shares.account(PLACE);
        account.bill = Bill.of(account.billId, new long[] {10}, account.used);
        account.paid(rules, new long[] {10}, T + 400_000);
        assertArrayEquals(new long[] {0}, account.owed(rules, T + 400_000));
        shares.closeIfSettled(PLACE, account, T + 400_000);
        assertNull(shares.account(PLACE));
    }

    @Test
    void a_bill_of_which_nothing_was_charged_keeps_its_id() {
        RuleSet rules = new RuleSet(Carry.USAGE, List.of(Rules.tokenBucket("r", new Rules.Rate(10, 1_000_000), 20, 20, false)));
        shares.decide(PLACE, question(rules, Verb.CHECK, 10, T), 1);
        Shares.Account account = shares.account(PLACE);
        String first = account.billId;
        account.bill = Bill.of(first, new long[] {10}, account.used);
        account.paid(rules, new long[] {0}, T);
        assertArrayEquals(new long[] {10}, account.owed(rules, T));
        assertEquals(first, account.billId);
        account.bill = Bill.of(first, new long[] {10}, account.used);
        account.paid(rules, new long[] {4}, T);
        assertArrayEquals(new long[] {6}, account.owed(rules, T));
        assertNotEquals(first, account.billId);
    }

    @Test
    void what_redis_charged_late_hides_no_later_debt() {
        RuleSet rules = new RuleSet(Carry.USAGE, List.of(Rules.slidingLog("r", 40, 3_000_000)));
        assertTrue(shares.decide(PLACE, question(rules, Verb.CHECK, 40, T), 1).allowed());
        Shares.Account account = shares.account(PLACE);
        account.bill = Bill.of(account.billId, new long[] {40}, account.used);
        account.paid(rules, new long[] {40}, T + 1_600_000);
        // The share is free again, and Redis has the first 40 in use until 3 s after it charged them.
        assertTrue(shares.decide(PLACE, question(rules, Verb.CHECK, 40, T + 3_400_000), 1).allowed());
        assertArrayEquals(new long[] {40}, account.owed(rules, T + 3_400_000));
    }

    @Test
    void what_counts_from_the_window_before_hides_no_report() {
        long hour = 3_600_000_000L;
        RuleSet hours = new RuleSet(Carry.USAGE, List.of(Rules.fixedWindow("r", 40, hour, false)));
        RuleSet days = new RuleSet(Carry.USAGE, List.of(Rules.calendarWindow("r", 40, new Calendar(Limit.Every.DAY, ZoneOffset.UTC, "UTC"))));
        for (RuleSet rules : List.of(hours, days)) {
            long window = rules == hours ? hour : 24 * hour;
            long begin = T - T % window;
            Shares own = new Shares();
            assertEquals(40, passedOf50(own, rules, begin));
            // Others had the rest: 25 are charged, and 15 stay owed.
            Shares.Account account = own.account(PLACE);
            account.bill = Bill.of(account.billId, new long[] {40}, account.used);
            account.paid(rules, new long[] {25}, begin + window / 10 * 9);
            own.learn(PLACE, rules, said(new Answer(true, 1, 0, 40, 25, 0, 1, 0)), begin + window + window / 20);
            assertEquals(0, passedOf50(own, rules, begin + window + window / 20));
            assertEquals(25, passedOf50(own, rules, begin + window + window / 5));
        }
    }

    private static int passedOf50(Shares shares, RuleSet rules, long nowUs) {
        return (int) IntStream.range(0, 50).filter(check -> shares.decide(PLACE, question(rules, Verb.CHECK, 1, nowUs), 1).allowed()).count();
    }

    @Test
    void an_older_answer_does_not_lower_what_a_bucket_has_in_use() {
        RuleSet rules = new RuleSet(Carry.USAGE, List.of(Rules.fixedWindow("r", 10, 3_600_000_000L, false)));
        shares.learn(PLACE, rules, said(new Answer(true, 5, 0, 10, 5, 0, 1, 0)), T);
        shares.learn(PLACE, rules, said(new Answer(true, 1, 0, 10, 9, 0, 1, 0)), T + 1_000_000);
        assertEquals(4, decide1(rules, T + 1_000_000).remaining());
        Shares fresh = new Shares();
        fresh.learn(PLACE, rules, said(new Answer(true, 5, 0, 10, 5, 0, 1, 0)), T);
        fresh.learn(PLACE, rules, said(new Answer(true, 1, 0, 10, 9, 0, 1, 0)), T + 2_000_000);
        assertEquals(8, fresh.decide(PLACE, question(rules, Verb.CHECK, 1, T + 2_000_000), 1).remaining());
    }

    private Answer decide1(RuleSet rules, long nowUs) {
        return shares.decide(PLACE, question(rules, Verb.CHECK, 1, nowUs), 1);
    }

    private static final RuleSet DAY_AND_BUCKET = new RuleSet(Carry.USAGE, List.of(
        Rules.fixedWindow("day", 1000, 86_400_000_000L, false),
        Rules.tokenBucket("bucket", new Rules.Rate(200, 1_000_000), 50, 50, false)));

    @Test
    void what_redis_said_of_every_rule_holds_in_the_outage() {
        // 900 of a day passed, and the last answer was the bucket's.
        shares.learn(PLACE, DAY_AND_BUCKET, said(new Answer(true, 1, 0, 50, 3, 0, 235_000, 1), 900, 47), T);
        int atOnce = 0;
        while (decide1(DAY_AND_BUCKET, T).allowed()) {
            atOnce++;
        }
        assertEquals(3, atOnce);
        int inAll = atOnce;
        for (long after = 5_000; after <= 2_000_000; after += 5_000) {
            inAll += decide1(DAY_AND_BUCKET, T + after).allowed() ? 1 : 0;
        }
        assertEquals(100, inAll);
        assertEquals(0, decide1(DAY_AND_BUCKET, T + 2_000_000).rule());
    }

    @Test
    void an_older_answer_is_known_by_the_instant_of_each_rule() {
        RuleSet two = new RuleSet(Carry.USAGE, List.of(Rules.fixedWindow("a", 10, 3_600_000_000L, false),
            Rules.fixedWindow("b", 20, 3_600_000_000L, false)));
        Answer any = new Answer(true, 1, 0, 10, 5, 0, 1, 0);
        shares.learn(PLACE, two, said(any, 5, 8), T);
        // Redis reports more of `a` and less of `b`: that is not 2 s away from when `b` was last raised.
        shares.learn(PLACE, two, said(any, 6, 7), T + 1_500_000);
        // It is now, but not from when `a` was.
        shares.learn(PLACE, two, said(any, 1, 2), T + 2_500_000);
        Answer most = shares.decide(PLACE, question(two, Verb.AT_MOST, 20, T + 2_500_000), 1);
        assertEquals("passes limit 10 remaining 0", text(most).replaceAll(" retry.*", ""));
        assertEquals(4, most.granted());
        assertEquals(2 + 4, shares.account(PLACE).used.used(two, T + 2_500_000)[1]);
    }

    @Test
    void an_answer_that_says_more_of_a_rule_raises_what_is_stored_and_used_of_it() {
        shares.learn(PLACE, DAY_AND_BUCKET, said(new Answer(true, 1, 0, 50, 3, 0, 235_000, 1), 900, 47), T);
        assertEquals(true, decide1(DAY_AND_BUCKET, T).allowed());
        Shares.Account account = shares.account(PLACE);
        account.raise(DAY_AND_BUCKET, new long[] {990, 49}, T);
        assertArrayEquals(new long[] {990, 49}, account.stored.used(DAY_AND_BUCKET, T));
        assertArrayEquals(new long[] {991, 50}, account.used.used(DAY_AND_BUCKET, T));
        assertEquals(1, account.owed(DAY_AND_BUCKET, T)[0]);
    }

    @Test
    void an_account_takes_over_what_is_in_use_above_a_lowered_limit_and_owes_what_it_owed() {
        RuleSet full = new RuleSet(Carry.USAGE, List.of(Rules.fixedWindow("day", 4000, 86_400_000_000L, false)));
        RuleSet lowered = new RuleSet(Carry.USAGE, List.of(Rules.fixedWindow("day", 50, 86_400_000_000L, false)));
        for (long charged : new long[] {0, 10}) {
            Shares own = new Shares();
            own.decide(PLACE, question(full, Verb.CHECK, 10, T), 1);
            Shares.Account account = own.account(PLACE);
            account.bill = Bill.of(account.billId, new long[] {10}, account.used);
            account.paid(lowered, new long[] {charged}, T);
            Result.Decided refused = said(new Answer(false, 0, 0, 50, 0, 1, 1, 0), 3000);
            account.raise(lowered, refused.inUse(), T);
            account.raise(lowered, refused.inUse(), T);
            assertArrayEquals(new long[] {10 - charged}, account.owed(lowered, T));
            assertEquals(990 + charged, own.decide(PLACE, question(full, Verb.AT_MOST, 4000, T), 1).granted());
            // Redis charges that as well: it is no debt that stays.
            account.bill = Bill.of(account.billId, account.owed(full, T), account.used);
            account.paid(lowered, new long[] {1000}, T);
            assertArrayEquals(new long[] {0}, account.owed(lowered, T));
        }
    }

    private static Rule day(String name, long limit) {
        return Rules.fixedWindow(name, limit, 86_400_000_000L, false);
    }

    private static RuleSet set(Carry carry, Rule... rules) {
        return new RuleSet(carry, List.of(rules));
    }

    private StoreRequest sentAgain(Shares.Account account, RuleSet rules) {
        return Engine.chooseBill(question(rules, Verb.PEEK, 1, T), account);
    }

    /** A bill that Redis perhaps charged has one number for each rule, by its place and in permits of then. */
    @Test
    void a_bill_does_not_survive_an_edit_by_which_its_numbers_mean_something_else() {
        RuleSet before = set(Carry.USAGE, day("a", 4000), day("b", 9000));
        record Edit(RuleSet rules, boolean isKept, long... owed) {}
        for (Edit edit : List.of(
            new Edit(set(Carry.USAGE, day("b", 9000), day("a", 4000)), false, 100, 100),
            new Edit(set(Carry.USAGE, day("a", 4000), day("c", 9000)), false, 100, 0),
            new Edit(set(Carry.USAGE, day("b", 9000)), false, 100),
            new Edit(set(Carry.PROPORTIONAL, day("a", 8000), day("b", 9000)), false, 200, 100),
            new Edit(set(Carry.USAGE, day("a", 8000), day("b", 9000)), true, 100, 100),
            new Edit(set(Carry.USAGE, day("a", 4000), day("b", 9000)), true, 100, 100))) {
            Shares own = new Shares();
            own.decide(PLACE, question(before, Verb.CHECK, 100, T), 1);
            Shares.Account account = own.account(PLACE);
            Bill first = sentAgain(account, before).bill();
            account.billSent = true;
            Bill next = sentAgain(account, edit.rules).bill();
            assertEquals(edit.isKept, next.id().equals(first.id()), edit.toString());
            assertEquals(edit.isKept, account.billSent, edit.toString());
            assertArrayEquals(edit.owed, next.permits(), edit.toString());
            account.paid(edit.rules, next.permits(), T);
            assertArrayEquals(new long[edit.owed.length], account.owed(edit.rules, T), edit.toString());
            assertArrayEquals(edit.owed, account.stored.used(edit.rules, T), edit.toString());
        }
    }

    /** The edit came and went while Redis was away: the bill was made before it. */
    @Test
    void a_bill_is_dropped_by_whatever_decides_under_other_rules() {
        RuleSet before = set(Carry.USAGE, day("a", 4000), day("b", 9000));
        RuleSet swapped = set(Carry.USAGE, day("b", 9000), day("a", 4000));
        shares.decide(PLACE, question(before, Verb.CHECK, 100, T), 1);
        Shares.Account account = shares.account(PLACE);
        Bill first = sentAgain(account, before).bill();
        account.billSent = true;
        shares.decide(PLACE, question(swapped, Verb.CHECK, 10, T), 1);
        StoreRequest sent = sentAgain(account, before);
        assertNotEquals(first.id(), sent.bill().id());
        assertArrayEquals(new long[] {110, 110}, sent.bill().permits());
    }

    @Test
    void at_most_grants_multiples_and_a_huge_cost_is_refused() {
        RuleSet rules = new RuleSet(Carry.USAGE, List.of(Rules.fixedWindow("r", 10, 3_600_000_000L, false)));
        assertEquals(2, shares.decide(PLACE, question(rules, Verb.AT_MOST, 5, T), 4).granted());
        Answer none = shares.decide(PLACE, question(rules, Verb.AT_MOST, 5, T), 4);
        assertEquals("refused limit 2 remaining 0 retry 1000000", text(none).replaceAll(" reset.*", ""));
        assertEquals("refused limit 10 remaining 0 retry 1000000 reset 0", text(decide(rules, Numbers.COST_MAX, T)));
    }
}
