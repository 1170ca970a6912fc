//! Checks of permits that nodes admit without the store, of what they know then, and of their debts.

use std::collections::{BTreeMap, VecDeque};

use sluicegate::internals::kernel::{Outcome, Retry};
use sluicegate::internals::store::{Charge, Debt, Executed, Permits};
use sluicegate::{Answer, Cost, Decision, Mode, Verb};

use super::{TaskView, World};
use crate::node;
use crate::plan::{Arrival, Ask, FaultKind, MORE_NODES_MAX, PolicySpec, RuleSpec, SECOND};
use crate::promises::Invariant;
use crate::wire::{BillStep, StoreAsk};

/// The longest time in which an answer that reports less usage may be an older one, µs.
const SETTLED_US: u64 = 2 * SECOND;

/// Permits of a key that a node admitted without the store, and what the store charged for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeDebts {
    admitted: u64,
    /// Permits admitted by the node's share, at once.
    by_share: u64,
    /// Permits that the store charged, for each rule.
    charged: Permits,
    bills: u64,
    /// The rest of the last bill that was answered, and when it was made out.
    rest: Option<(Permits, u64)>,
    /// Bills that are made out and not over, by id.
    open: BTreeMap<u128, OpenBill>,
    said: Option<Said>,
    owed: Option<Owed>,
    /// The time at which the node learned that the store must be reminded of the key; `None`: it need not be.
    reminds_since: Option<u64>,
    /// Permits that the process admitted from leases, and permits that the store charged for them.
    leased: u64,
    spent: u64,
    /// Usage that the store reported lately: when the node asked, and the permits in use.
    known: VecDeque<(u64, u64)>,
    /// The time of the store's last answer, µs.
    heard_at: u64,
    /// The last time at which the node admitted a request alone, or received an answer that belongs to no check, µs.
    other_at: Option<u64>,
    /// The time at which the clock by which the share flows out was set, µs.
    clock_set_at: u64,
    /// The last refusal by the share, unless permits came into use since.
    refused: Option<Refused>,
}

/// A bill from when it is made out until an answer to a request that carries it, or until it was surely not charged and
/// no request carries it any more. The next one may have the same id, and answers to either end it.
#[derive(Clone, Copy, Debug)]
struct OpenBill {
    permits: Permits,
    made_at: u64,
    /// Permits that the share had admitted by then.
    admitted: u64,
    carriers: u32,
    is_perhaps_charged: bool,
}

/// A refusal by a node's share.
#[derive(Clone, Copy, Debug)]
struct Refused {
    cost: u64,
    /// The number of nodes that share the limit, the share, and whether the node had debts: a node with debts goes by
    /// the number of nodes on the day when they began.
    share: (u64, u64, bool),
    /// The instant from which the share has room again, µs.
    until: u64,
}

/// Permits that a node has admitted by its share since it last owed nothing.
#[derive(Clone, Copy, Debug)]
struct Owed {
    permits: u64,
    /// Permits paid of them, by the first rule.
    paid: u64,
    /// Bills that were answered: each is rounded up.
    bills: u64,
    /// The time at which the first of them was asked for.
    since: u64,
}

/// The last answer of the store about a key.
#[derive(Clone, Copy, Debug)]
struct Said {
    /// The rule that decided, by its place.
    rule: usize,
    remaining: u64,
    limit: u64,
    /// The time of the node's question.
    since: u64,
    /// Permits that the node has admitted alone since.
    alone: u64,
}

impl NodeDebts {
    /// Notes that the store charged a bill.
    pub(crate) fn charge(&mut self, permits: Permits) {
        self.charged.iter_mut().zip(permits).for_each(|(charged, permits)| *charged += permits);
        self.bills += 1;
    }

    /// Notes the answer to a bill: the permits that were charged. One that comes when the bill is over is not counted: of
    /// the next bill, which has the same id unless something was charged, the store says the same.
    fn hear(&mut self, id: u128, paid: Permits) {
        let Some(OpenBill { permits: mut rest, made_at, .. }) = self.open.remove(&id) else {
            return;
        };
        if let Some(owed) = &mut self.owed {
            (owed.paid, owed.bills) = (owed.paid + paid[0], owed.bills + 1);
        }
        rest.iter_mut().zip(paid).for_each(|(rest, paid)| *rest = rest.saturating_sub(paid));
        // Usage flows out while the bill is on its way.
        self.rest = Some((rest, made_at));
    }

    /// Notes that a request that carried a bill got no answer.
    fn hear_nothing(&mut self, id: u128, executed: Executed) {
        let Some(bill) = self.open.get_mut(&id) else { return };
        bill.carriers = bill.carriers.saturating_sub(1);
        bill.is_perhaps_charged |= executed == Executed::Perhaps;
        if bill.carriers == 0 && !bill.is_perhaps_charged {
            self.open.remove(&id);
        }
    }

    /// Forgets the last answer about the key: the store answered a call that belongs to no check, with an unknown
    /// result.
    pub(crate) fn hear_other(&mut self) {
        (self.said, self.refused) = (None, None);
    }

    /// Notes an answer at `now` that belongs to no check.
    pub(crate) fn hear_unasked(&mut self, now: u64) {
        self.other_at = Some(now);
    }

    /// Notes that the process admitted `permits` from a lease.
    pub(crate) fn lease(&mut self, permits: u64) {
        self.leased += permits;
    }

    /// Notes that the clock of the shares was set: all usage may have begun just now.
    pub(crate) fn set_clock(&mut self, now: u64) {
        (self.refused, self.clock_set_at) = (None, now);
    }

    /// Begins a new process, which owes nothing.
    pub(crate) fn begin_anew(&mut self) {
        (self.rest, self.said, self.owed) = (None, None, None);
        self.open.clear();
        (self.reminds_since, self.refused) = (None, None);
        (self.leased, self.spent) = (0, 0);
        (self.known, self.other_at) = (VecDeque::new(), None);
    }
}

/// Follows a bill of a node and a key.
pub(crate) fn see_bill(
    world: &mut World<'_>,
    node: usize,
    key: usize,
    debt: &Debt,
    step: &BillStep,
) {
    match step {
        BillStep::Sent(verb) => check_bill(world, node, key, debt, verb),
        BillStep::Answered(paid) => world.dues[node][key].hear(debt.id, *paid),
        BillStep::Unanswered(executed) => world.dues[node][key].hear_nothing(debt.id, *executed),
    }
}

/// Checks a bill that is sent. `OwedUntilPaid`: one that is made out is about all that is owed. `UnpaidRestIsBilled`:
/// the unpaid rest of a bill is on the next one, except for what has flowed out meanwhile. `RequestCarriesDebt`: a
/// request that takes permits carries the whole debt.
fn check_bill(world: &mut World<'_>, node: usize, key: usize, debt: &Debt, verb: &Verb) {
    let (now, plan) = (world.now, world.plan);
    let least = owed_at_least(world, node, key);
    let dues = &mut world.dues[node][key];
    let (by_share, permits) = (dues.by_share, debt.permits);
    let is_made_out = !dues.open.contains_key(&debt.id);
    let made_out = || OpenBill {
        permits,
        made_at: now,
        admitted: by_share,
        carriers: 0,
        is_perhaps_charged: false,
    };
    let bill = dues.open.entry(debt.id).or_insert_with(made_out);
    bill.carriers += 1;
    let more = by_share - bill.admitted;
    let rest = if is_made_out { dues.rest.take() } else { None };
    if is_made_out && least > permits[0] {
        let what = format!("node {node} owes {least} of key {key}, and is billed {}", permits[0]);
        world.record.fail(Invariant::OwedUntilPaid, now, what);
    }
    if more > 0 && !matches!(verb, Verb::Peek { .. } | Verb::Refund { .. } | Verb::Reset) {
        let what = format!("node {node} asks for {verb:?} of key {key}, and leaves {more} unpaid");
        world.record.fail(Invariant::RequestCarriesDebt, now, what);
    }
    let Some((rest, since)) = rest else { return };
    if plan.versions.len() > 1 || super::breaker_checks::has_wrong_clocks(world) || plan.removes() {
        return;
    }
    for (place, spec) in plan.versions[0].rules.iter().enumerate() {
        let RuleSpec::TokenBucket { permits, period_us, .. } = *spec else { continue };
        // Bills are made as of the question, some deadlines before.
        let span_us = now - since + 2 * plan.deadline_us;
        let flowed = (span_us * permits).div_ceil(period_us) + 1;
        let (billed, rest) = (debt.permits[place], rest[place]);
        if billed + flowed < rest {
            let what = format!("node {node} owed {rest} of key {key} and is billed {billed}");
            world.record.fail(Invariant::UnpaidRestIsBilled, now, what);
        }
    }
}

/// Counts permits that a node admitted alone. `ShareBeginsAtReport`: they are at most its share of the permits that the
/// store last reported as left, and of those that have flowed out since.
pub(crate) fn admit(
    world: &mut World<'_>,
    task: TaskView,
    key: usize,
    granted: u64,
    answer: &Answer,
) {
    let (now, plan, nodes) = (world.now, world.plan, world.plan.nodes as u64);
    let is_exact = plan.only_takes() && plan.versions.len() == 1 && !plan.removes();
    let is_exact = is_exact && !super::breaker_checks::has_wrong_clocks(world);
    let dues = &mut world.dues[task.node][key];
    dues.admitted += granted;
    dues.other_at = Some(now);
    if answer.mode == Mode::Local && !task.is_batch {
        dues.by_share += granted;
        let since = task.begun_at;
        dues.owed.get_or_insert(Owed { permits: 0, paid: 0, bills: 0, since }).permits += granted;
    }
    let Some(said) = &mut dues.said else { return };
    said.alone += granted;
    let Said { rule, remaining, since, alone, .. } = *said;
    let Some(
        RuleSpec::TokenBucket { permits, period_us, .. }
        | RuleSpec::LeakyBucket { permits, period_us, .. },
    ) = plan.versions[0].rules.get(rule).copied()
    else {
        return;
    };
    let most = remaining + ((now - since) * permits).div_ceil(period_us) + 1;
    if is_exact && answer.mode == Mode::Local && alone * nodes > most {
        let what = format!(
            "node {} of {nodes} admits {alone} alone since it heard of {remaining}",
            task.node
        );
        world.record.fail(Invariant::ShareBeginsAtReport, now, what);
    }
}

/// Checks an answer by the share. `RefusalEndsAtItsRetry`: a share refuses no longer than its answer says, unless
/// permits come into use meanwhile.
fn check_share_refusal(world: &mut World<'_>, task: TaskView, arrival: Arrival, answer: &Answer) {
    let (now, plan) = (world.now, world.plan);
    let is_bucket = matches!(*plan.versions[0].rules, [RuleSpec::TokenBucket { .. }]);
    if !is_bucket || plan.versions.len() > 1 || plan.removes() {
        return;
    }
    let (cost, limit) = (arrival.ask.cost(), answer.decision.limit);
    // A debt that has flowed out is forgotten when it is looked up; then the share is that of the present nodes.
    let owes = (world.owed_before > 0, world.nodes[task.node].engine.debts() > 0);
    let share = (world.nodes[task.node].divides_by, limit, owes.0);
    let NodeDebts { refused, clock_set_at, .. } = &mut world.dues[task.node][arrival.key];
    let has_room = cost <= limit && task.begun_at > *clock_set_at && owes != (true, false);
    // A part of the permits, or a later turn, may be available sooner.
    let is_whole = matches!(arrival.ask, Ask::Check(_) | Ask::CheckAndRefund(..));
    match (answer.mode, answer.decision.outcome) {
        (Mode::Local, Outcome::Deny { retry: Retry::After(retry) })
            // A batch is answered as a whole: until then the permits that it took, and their order, are unknown.
            if !arrival.is_batched && is_whole =>
        {
            let begun = task.begun_at;
            let ends = |refused: Refused| {
                cost <= refused.cost && share == refused.share && begun > refused.until
            };
            if has_room && refused.is_some_and(ends) && !plan.batches(arrival.key) {
                let what = format!("node {} refuses {arrival:?} by its share again", task.node);
                return world.record.fail(Invariant::RefusalEndsAtItsRetry, now, what);
            }
            // The node's clock may be a twentieth too slow, and other requests may have read it later.
            let retry_us = retry.get() + retry.get() / 16 + 2 * plan.deadline_us;
            *refused = has_room.then_some(Refused { cost, share, until: now + retry_us });
        }
        (Mode::Local, Outcome::Deny { .. }) if !arrival.is_batched => {}
        (Mode::Deny | Mode::Shed, _) => {}
        _ => *refused = None,
    }
}

/// Checks an answer. `ShareBeginsAtReport`: a share that begins refuses nothing for which the store had room by all its
/// answers of the last seconds.
pub(crate) fn know(world: &mut World<'_>, task: TaskView, key: usize, cost: u64, answer: &Answer) {
    let (now, plan, nodes) = (world.now, world.plan, world.nodes[task.node].divides_by);
    let owes = world.nodes[task.node].engine.debts() > 0;
    let is_vague = plan.leases || plan.removes() || super::breaker_checks::has_wrong_clocks(world);
    let [spec] = &*plan.versions[0].rules else { return };
    if plan.versions.len() > 1 || is_vague || !spec.is_strict() {
        return;
    }
    let NodeDebts { known, heard_at, other_at, .. } = &mut world.dues[task.node][key];
    let Decision { limit, remaining, outcome, .. } = answer.decision;
    if answer.mode == Mode::Store {
        known.push_back((task.begun_at, limit - remaining));
        let last = known.iter().map(|(at, _)| *at).max().unwrap_or(0);
        known.retain(|(at, _)| at + SETTLED_US >= last);
        *heard_at = now;
    }
    let used = known.iter().map(|(_, used)| *used).max();
    let has_room = used.is_some_and(|used| cost * nodes + used <= spec.limit());
    let is_sure = other_at.is_none_or(|then| then + SETTLED_US < now) && *heard_at < task.begun_at;
    if answer.mode == Mode::Local
        && matches!(outcome, Outcome::Deny { .. })
        && has_room
        && is_sure
        && !owes
    {
        let what = format!(
            "node {} of {nodes} refuses {cost} of key {key} alone, and has heard of {used:?} in use",
            task.node
        );
        world.record.fail(Invariant::ShareBeginsAtReport, now, what);
    }
}

/// Notes that a node has found out that the store forgot.
pub(crate) fn remind(world: &mut World<'_>, node: usize) {
    let now = world.now;
    world.dues[node].iter_mut().for_each(|dues| dues.reminds_since = Some(now));
}

/// `ForgetfulStoreIsReminded`: a store that has forgotten is reminded of a key before a request asks it about the key.
/// Checks a call for a request that came at `begun_at`.
pub(crate) fn check_reminded(
    world: &mut World<'_>,
    node: usize,
    key: usize,
    ask: &StoreAsk,
    begun_at: u64,
) {
    let (now, plan) = (world.now, world.plan);
    let dues = &mut world.dues[node][key];
    let reminds = ask.debt.is_some_and(|debt| debt.charge == Charge::AtLeast);
    let Some(since) = dues.reminds_since.filter(|since| reminds || *since <= begun_at) else {
        return;
    };
    if ask.message.is_some() {
        return;
    }
    dues.reminds_since = None;
    let is_known = plan.only_takes() && plan.versions.len() == 1 && !plan.removes();
    let (Some(said), false, true) = (dues.said, reminds, is_known) else { return };
    let (RuleSpec::TokenBucket { permits, period_us, .. }
    | RuleSpec::LeakyBucket { permits, period_us, .. }) = plan.versions[0].rules[said.rule]
    else {
        return;
    };
    let flowed = ((now - said.since) * permits).div_ceil(period_us) + 1;
    let used = (said.limit - said.remaining).saturating_sub(flowed);
    // At the same instant, the request may have come first.
    if used > 0 && since < begun_at && !super::breaker_checks::has_wrong_clocks(world) {
        let what = format!("node {node} knows that {used} of key {key} are in use, and asks");
        world.record.fail(Invariant::ForgetfulStoreIsReminded, now, what);
    }
}

/// Clears the record of a node that owes nothing. An engine reports only the debts of all keys together.
pub(crate) fn settle(world: &mut World<'_>, node: usize) {
    if world.plan.keys == 1 && world.nodes[node].engine.debts() == 0 {
        world.dues[node][0].owed = None;
    }
}

/// `OwedUntilPaid`: returns the least that a node owes of a key by the first rule, if only time and the store reduce a
/// debt.
fn owed_at_least(world: &World<'_>, node: usize, key: usize) -> u64 {
    let (plan, now) = (world.plan, world.now);
    let Some(Owed { permits, paid, bills, since }) = world.dues[node][key].owed else { return 0 };
    if !plan.only_takes() || plan.removes() || super::breaker_checks::has_wrong_clocks(world) {
        return 0;
    }
    let (mut flowed, mut limit) = (0, 0);
    for version in &plan.versions {
        let (RuleSpec::TokenBucket { permits, period_us, .. }
        | RuleSpec::LeakyBucket { permits, period_us, .. }) = version.rules[0]
        else {
            return 0;
        };
        // A lowered limit forgets what is beyond it.
        if version.carry != "usage" || version.rules[0].limit() < limit {
            return 0;
        }
        limit = version.rules[0].limit();
        // Bills are made as of the question, some deadlines before.
        let span_us = now - since + 2 * plan.deadline_us;
        flowed = flowed.max((span_us * permits).div_ceil(period_us));
    }
    permits.saturating_sub(paid + flowed + bills + 1)
}

/// Checks an answer. `AnswerNamesItsLimit`: its limit is that of the rule that it names, or the node's share of it. A
/// store that has later rules decides by them.
pub(crate) fn hear(world: &mut World<'_>, task: TaskView, arrival: Arrival, answer: &Answer) {
    check_share_refusal(world, task, arrival, answer);
    let mut rules = answer.rules().rules().iter();
    let place = rules.position(|named| &*named.name == answer.rule()).unwrap_or(0);
    let (said, limit) = (answer.decision.limit, answer.rules().rules()[place].rule.limit());
    let first = super::answers::versions_of(world, answer).next().unwrap_or(0);
    let versions = &world.plan.versions[first..];
    let is_true = match answer.mode {
        // A node with debts goes by the number of nodes on the day when they began.
        Mode::Local if world.owed_before > 0 || task.is_batch => {
            let nodes = world.plan.nodes as u64;
            (nodes..=nodes + u64::from(MORE_NODES_MAX)).any(|nodes| said == limit / nodes)
        }
        Mode::Local => said == limit / world.nodes[task.node].divides_by,
        Mode::Store | Mode::Remembered => {
            versions.iter().flat_map(|version| &version.rules).any(|rule| said == rule.limit())
        }
        Mode::Leased | Mode::Allow | Mode::Deny | Mode::Shed => said == limit,
    };
    if !is_true {
        let what = format!("{said} is not the limit: {answer:?}");
        world.record.fail(Invariant::AnswerNamesItsLimit, world.now, what);
    }
    let takes = !matches!(arrival.ask, Ask::Peek(_) | Ask::Explain(_) | Ask::Reset);
    let owed = owed_at_least(world, task.node, arrival.key);
    if answer.mode == Mode::Store && takes && answer.decision.granted() > 0 && owed > 0 {
        let what = format!("node {} owes {owed}, and the store grants {arrival:?}", task.node);
        world.record.fail(Invariant::OwedUntilPaid, world.now, what);
    }
    if answer.mode == Mode::Store {
        let remaining = answer.decision.remaining;
        let (limit, since) = (answer.decision.limit, task.begun_at);
        let said = Said { rule: place, remaining, limit, since, alone: 0 };
        world.dues[task.node][arrival.key].said = (!task.is_batch).then_some(said);
    }
}

/// `HolderPaysWhatItAdmitted`: a holder is charged for what it admitted, and for no more. Permits that are not reported
/// in time lapse and count as spent, without a report of the holder.
pub(crate) fn check_spent(world: &mut World<'_>, node: usize, key: usize, permits: u64) {
    let (now, plan) = (world.now, world.plan);
    let is_known = plan.only_takes() && plan.versions.len() == 1 && !plan.removes();
    let forgets = world.forgot_at.is_some() || plan.evicts();
    // An old message that arrives again after its lease has lapsed is granted permits, and the answer reaches no
    // task. After the store's clock was set, the store believes the holder rather than its own record.
    let is_lost = |kind| {
        matches!(kind, FaultKind::Repeated(_) | FaultKind::Overtaken(_) | FaultKind::StoreClock(_))
    };
    let forgets = forgets || plan.faults.iter().any(|fault| is_lost(fault.kind));
    let dues = &mut world.dues[node][key];
    dues.spent += permits;
    let (spent, leased) = (dues.spent, dues.leased);
    // The permits of a batch are counted when its last request is answered.
    if spent > leased && is_known && !forgets && !plan.batches(key) {
        let what = format!(
            "node {node} admitted {leased} from leases of key {key}, and is charged {spent}"
        );
        world.record.fail(Invariant::HolderPaysWhatItAdmitted, now, what);
    }
}

/// Checks that debts are charged once the store answers and has room.
pub(crate) fn check_debts(world: &mut World<'_>) {
    let now = world.now;
    // A store that forgot its charges charges them again.
    // A debt under Guava's algorithm keeps its time under another rate, and so not its permits.
    let versions = &world.plan.versions;
    let is_exact = |version: &PolicySpec| version.rules.iter().all(RuleSpec::is_strict);
    let carries = versions.iter().skip(1).all(|version| version.carry == "usage")
        && (versions.len() == 1 || versions.iter().all(is_exact));
    let keeps_all = carries && world.forgot_at.is_none() && !world.plan.evicts();
    // Each version rounds a part of a permit up.
    let rounded = world.plan.versions.len() as u64;
    for (node, dues) in world.dues.iter().enumerate() {
        for (key, NodeDebts { admitted, charged, bills, .. }) in dues.iter().enumerate() {
            let charged = charged.iter().max().unwrap_or(&0);
            // A part of a permit is billed as one. Other rules may count permits otherwise.
            if *charged > admitted + bills * rounded && keeps_all {
                let what = format!(
                    "node {node} admitted {admitted} of key {key} alone, and was charged {charged}"
                );
                world.record.fail(Invariant::ChargedAtMostAdmitted, now, what);
            }
        }
    }
    let one = Cost::ONE;
    let refuses = |key| world.server.refuses(&node::key_name(key), one, now.saturating_sub(SECOND));
    let has_room = (0..world.plan.keys).all(|key| refuses(key) != Some(true));
    for node in 0..world.plan.nodes {
        let owing = world.nodes[node].engine.debts();
        let is_calm = world.disturbed_until[node] + 2 * SECOND < now && world.nodes[node].is_up;
        // A window may have had room for a moment only.
        let flows = world.plan.versions.iter().flat_map(|version| &version.rules);
        let flows = flows.into_iter().all(crate::plan::RuleSpec::is_bucket);
        if owing > 0 && has_room && is_calm && flows {
            let what = format!("node {node} owes on {owing} keys, and the store has room");
            world.record.fail(Invariant::DebtsAreCharged, now, what);
        }
    }
}
