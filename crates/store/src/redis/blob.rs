//! A rule set as bytes, and the head of the states that it writes. `spec/redis.md` is the format.
//!
//! ```text
//! blob   = how many bytes of the head tell these rules from others, its length, the rules, the head
//! head   = of a policy: generation (hash of the rules), instant at which they were taken over
//!        = of a caller:  the rules themselves, in short
//! ```
//!
//! A policy's rules are stored in Redis under the policy's name and their generation. Those of a caller
//! are not: a reader of their state finds them at its head.

use std::fmt;

use bytes::Bytes;
use sha2::{Digest, Sha256};
use sluicegate_kernel::limits::UNITS_MAX;
use sluicegate_kernel::{Carry, Micros, Rule, RuleSet};

use super::numbers::{number, put, whole};
use super::script::FORMAT;
use super::server_time;
use crate::RuleOrigin;

/// The name of the only rule of a caller's limit, which is not stored.
const BROUGHT: &str = "limit";

/// Bytes of a rule before its numbers: code, how many numbers, flags, and 8 of the name's hash.
const RULE_BYTES: usize = 11;

/// Bytes of a blob before its rules.
const BEFORE: usize = 3;

/// Bytes of a generation.
const GENERATION_BYTES: usize = 6;

/// Bytes of the instant of a [`Stamp`].
const SINCE_BYTES: usize = 5;

/// The beginning of 2026, from which stamps count.
const YEAR_2026: Micros = Micros::from_secs(1_767_225_600);

/// The time for which a budget that does not start full is remembered after it is full.
const IDLE: Micros = Micros::from_secs(30 * 86_400);

/// The longest window of a calendar: a leap year.
const YEAR: Micros = Micros::from_secs(366 * 86_400);

/// The longest time for which unused rules are kept: longer than the longest window. A budget that takes
/// longer to fill counts as used up when they are gone.
const LIFE_MAX: Micros = Micros::from_secs(400 * 86_400);

/// Flags of a rule: a full budget is a new key; it has a calendar.
const FULL_IS_FRESH: u8 = 1;
const CALENDAR: u8 = 4;

/// The id of the rules of a policy among those that it had or has: the first bytes of their hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation([u8; GENERATION_BYTES]);

/// The rules of a policy that wrote a state, and since when they were in force: of two stamps the greater
/// is that of the later rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// The time at which the process that wrote them took them over, in ms since 2026 began.
    since_ms: u64,
    generation: Generation,
}

/// A rule set as the script takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesBlob {
    bytes: Bytes,
    /// The number of these bytes that are the rules.
    rules: usize,
}

/// One rule of a blob.
#[derive(Debug, PartialEq)]
pub(super) struct BlobRule<'b> {
    code: u8,
    flags: u8,
    /// The first bytes of the hash of its name.
    name: &'b [u8],
    numbers: Vec<f64>,
}

impl RulesBlob {
    /// Returns the blob of `rules` from `origin`.
    pub fn new(rules: &RuleSet, origin: RuleOrigin) -> Self {
        let carry = match rules.carry() {
            Carry::Usage => 0,
            Carry::Proportional => 1,
            Carry::Reset => 2,
        };
        let count = u8::try_from(rules.rules().len()).expect("a set has at most 8 rules");
        let mut bytes = vec![FORMAT, carry, count];
        for named in rules.rules() {
            let numbers = named.rule.numbers();
            let count = u8::try_from(numbers.len()).expect("a rule has a handful of numbers");
            bytes.extend([named.rule.code(), count, flags(&named.rule)]);
            bytes.extend(hash_of(&named.name));
            bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
        match origin {
            RuleOrigin::Policy { since } => {
                let stamp = Stamp { since_ms: ms_since_2026(since), generation: hash(&bytes) };
                Self::stamped(&bytes, stamp)
            }
            RuleOrigin::Caller => {
                let brief = brief(&bytes).expect("these bytes have just been written");
                Self::with_head(&bytes, 0, &brief)
            }
        }
    }

    /// Returns the blob of a policy's `rules`, as [`rules`](Self::rules) returned them, for states with
    /// this stamp; `None` if they are not the rules of its generation.
    pub fn of_stamp(rules: &[u8], stamp: Stamp) -> Option<Self> {
        (hash(rules) == stamp.generation && read_rules(rules).is_some())
            .then(|| Self::stamped(rules, stamp))
    }

    /// Returns the blob of the caller's rules with which a state begins.
    pub fn read_brought(state: &[u8]) -> Option<Self> {
        let from = &mut &*state;
        let rules = at_length(from)?;
        let brief = &state[..state.len() - from.len()];
        Some(Self::with_head(&rules, 0, brief))
    }

    fn stamped(rules: &[u8], stamp: Stamp) -> Self {
        Self::with_head(rules, GENERATION_BYTES, &stamp.to_bytes())
    }

    /// Returns the blob with `head`, of which the first `same` bytes, or all if that is 0, identify the
    /// rules.
    fn with_head(rules: &[u8], same: usize, head: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(BEFORE + rules.len() + head.len());
        put(&mut bytes, same as u64, 1);
        put(&mut bytes, head.len() as u64, 2);
        bytes.extend_from_slice(rules);
        bytes.extend_from_slice(head);
        Self { bytes: bytes.into(), rules: rules.len() }
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the bytes, shared.
    pub(super) fn to_bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// Returns the rules without their head: the part that is stored in Redis.
    pub fn rules(&self) -> &[u8] {
        &self.bytes[BEFORE..BEFORE + self.rules]
    }

    /// Returns the head of states under these rules.
    pub fn head(&self) -> &[u8] {
        &self.bytes[BEFORE + self.rules..]
    }

    /// Returns the states behind the head of `stored`; `None` if other rules wrote it.
    pub(super) fn states_in<'s>(&self, stored: &'s [u8]) -> Option<&'s [u8]> {
        let (begin, states) = stored.split_at_checked(self.head().len())?;
        let same = match usize::from(self.bytes[0]) {
            0 => begin.len(),
            same => same,
        };
        (begin[..same] == self.head()[..same]).then_some(states)
    }

    /// Returns the stamp of a policy's rules.
    pub fn stamp(&self) -> Option<Stamp> {
        let is_of_policy = usize::from(self.bytes[0]) == GENERATION_BYTES;
        if is_of_policy { Stamp::read(self.head()) } else { None }
    }

    pub(super) fn each(&self) -> Vec<BlobRule<'_>> {
        read_rules(self.rules()).expect("a blob is made of rules that can be read")
    }

    /// Returns the longest time for which a state that is never touched again is remembered under these
    /// rules, except for usage beyond the limit: the longest time until a budget is full, and the time
    /// after it.
    pub(super) fn life(&self) -> Micros {
        let rules = self.each();
        let longest = rules.iter().map(BlobRule::time_to_full).max().unwrap_or_default();
        let idle = rules.iter().any(|rule| rule.flags & FULL_IS_FRESH == 0);
        longest.plus(if idle { IDLE } else { Micros::ZERO }).min(LIFE_MAX)
    }
}

impl Stamp {
    /// Returns the stamp with which a state under a policy begins.
    pub fn read(state: &[u8]) -> Option<Self> {
        let (generation, rest) = state.split_first_chunk()?;
        let since = rest.get(..SINCE_BYTES)?;
        Some(Self { since_ms: number(since), generation: Generation(*generation) })
    }

    /// Returns the id of the rules among those of the policy.
    pub const fn generation(self) -> Generation {
        self.generation
    }

    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.generation.0.to_vec();
        put(&mut bytes, self.since_ms, SINCE_BYTES);
        bytes
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl BlobRule<'_> {
    /// Returns whether `other` has the same name.
    pub(super) fn is_named_as(&self, other: &BlobRule<'_>) -> bool {
        self.name == other.name
    }

    /// Returns whether requests contain its window.
    pub(super) const fn has_calendar(&self) -> bool {
        self.flags & CALENDAR != 0
    }

    /// Returns whether `other` follows the same calendar.
    pub(super) fn shares_calendar(&self, other: &BlobRule<'_>) -> bool {
        let calendar = |place| self.number(place) == other.number(place);
        self.has_calendar() && other.has_calendar() && calendar(3) && calendar(4)
    }

    /// Returns the limit that decisions report.
    pub(super) fn limit(&self) -> u64 {
        let limit = match self.code {
            1 | 4 => self.number(4),
            2 | 3 => self.number(2).floor().clamp(1.0, (UNITS_MAX / 2) as f64),
            _ => self.number(0),
        };
        whole(limit)
    }

    /// Returns the time from an empty budget to a full one.
    fn time_to_full(&self) -> Micros {
        let span_us = match self.code {
            // Permits come with whole ticks: of a bucket that is refilled by interval that is a period.
            1 | 4 => (self.number(3) / self.number(1)).ceil() * self.number(0),
            2 => self.number(2) * self.number(1) / self.number(0),
            3 => self.number(2) * self.number(4),
            5 if self.has_calendar() => YEAR.get() as f64,
            5 => self.number(2),
            6 => self.number(1) + self.number(2),
            7 => 2.0 * self.number(1),
            _ => self.number(1),
        };
        Micros::new(whole(span_us.ceil()).saturating_add(1)).min(LIFE_MAX)
    }

    fn number(&self, place: usize) -> f64 {
        self.numbers.get(place).copied().unwrap_or_default()
    }
}

/// Returns the longest time of a decision by the rules of `blob` for the server, in µs; 0 if it is not a
/// blob.
pub(super) fn cost_us(blob: &[u8]) -> u64 {
    let Some(&[_, _, _, _, _, count, ref rules @ ..]) = blob.get(..).filter(|it| it.len() > 6)
    else {
        return 0;
    };
    let (mut rules, mut cost_ns) = (rules, server_time::CALL_NS);
    for _ in 0..count {
        let Some((head, rest)) = rules.split_at_checked(RULE_BYTES) else { break };
        let Some((numbers, rest)) = rest.split_at_checked(8 * usize::from(head[1])) else { break };
        cost_ns += server_time::rule_ns(head[0], |place| {
            let number = numbers.as_chunks().0.get(place);
            number.map_or(0, |number| whole(f64::from_le_bytes(*number)))
        });
        rules = rest;
    }
    cost_ns / 1_000
}

/// Returns whether a refund under these rules has the same effect as if its permits had never been taken,
/// until the budget is full again: so for one fixed window. A bucket that had been full without them would
/// have lost what flowed out; logs and windows of several buckets give back the newest permits.
pub(super) fn refunds_exactly(blob: &[u8]) -> bool {
    const FIXED_WINDOW: u8 = 5;
    matches!(blob, [_, _, _, _, _, 1, FIXED_WINDOW, ..])
}

/// Returns the flags of a rule for the script, whatever its algorithm: whether a full budget is a new key,
/// whether it hands out permits, whether a request contains its window.
fn flags(rule: &Rule) -> u8 {
    let flags = [rule.full_is_fresh(), rule.holds_permits(), rule.calendar().is_some()];
    flags.into_iter().enumerate().map(|(bit, set)| u8::from(set) << bit).sum()
}

fn hash(rules: &[u8]) -> Generation {
    let hash = Sha256::digest(rules);
    Generation(*hash.first_chunk().expect("a hash is longer than a generation"))
}

fn hash_of(name: &str) -> [u8; 8] {
    *Sha256::digest(name.as_bytes()).first_chunk().expect("a hash has 32 bytes")
}

fn ms_since_2026(instant: Micros) -> u64 {
    let ms = instant.since(YEAR_2026).get() / 1_000;
    ms.min((1 << (8 * SINCE_BYTES)) - 1)
}

/// Returns the rules of a blob; `None` if these bytes are not one.
fn read_rules(bytes: &[u8]) -> Option<Vec<BlobRule<'_>>> {
    let &[FORMAT, carry, count, ref rest @ ..] = bytes else { return None };
    let mut rest = rest;
    let mut rule = |_| {
        let (head, after) = rest.split_at_checked(RULE_BYTES)?;
        let &[code, numbers, flags, ref name @ ..] = head else { return None };
        let (numbers, after) = after.split_at_checked(8 * usize::from(numbers))?;
        rest = after;
        let (numbers, _) = numbers.as_chunks();
        let numbers = numbers.iter().map(|number| f64::from_le_bytes(*number)).collect();
        Some(BlobRule { code, flags, name, numbers })
    };
    let rules: Option<Vec<_>> = (0..count).map(&mut rule).collect();
    rules.filter(|rules| carry <= 2 && (1..=8).contains(&rules.len()) && rest.is_empty())
}

/// Returns a caller's rules in short: for one rule of the usual name and `carry: usage` the rule alone;
/// otherwise a byte with their number and `carry`, and the name of each.
fn brief(rules: &[u8]) -> Option<Vec<u8>> {
    let (carry, each) = (rules[1], read_rules(rules)?);
    let mut bytes = Vec::new();
    let is_usual = carry == 0 && each.len() == 1 && each[0].name == hash_of(BROUGHT);
    if !is_usual {
        bytes.push(0x80 | carry << 4 | u8::try_from(each.len()).ok()?);
    }
    for rule in each {
        bytes.extend([rule.flags << 4 | rule.code, u8::try_from(rule.numbers.len()).ok()?]);
        if !is_usual {
            bytes.extend_from_slice(rule.name);
        }
        for number in rule.numbers {
            put_number(&mut bytes, number);
        }
    }
    Some(bytes)
}

/// Returns the rules whose [`brief`] form `from` begins with.
fn at_length(from: &mut &[u8]) -> Option<Vec<u8>> {
    let (carry, count, is_usual) = match *from.first()? {
        usual if usual < 0x80 => (0, 1, true),
        several => {
            take(from, 1)?;
            (several >> 4 & 7, several & 0xf, false)
        }
    };
    let mut rules = vec![FORMAT, carry, count];
    for _ in 0..count {
        let &[code, numbers] = take(from, 2)? else { return None };
        rules.extend([code & 0xf, numbers, code >> 4]);
        if is_usual {
            rules.extend(hash_of(BROUGHT));
        } else {
            rules.extend_from_slice(take(from, 8)?);
        }
        for _ in 0..numbers {
            rules.extend(take_number(from)?.to_le_bytes());
        }
    }
    read_rules(&rules).is_some().then_some(rules)
}

/// Appends one more than a whole number, 7 bits a byte, the lowest first, all but the last with a bit 8;
/// or, for other numbers, a 0 and the double.
fn put_number(bytes: &mut Vec<u8>, number: f64) {
    if !(0.0..=UNITS_MAX as f64).contains(&number) || number.fract() != 0.0 {
        bytes.push(0);
        return bytes.extend(number.to_le_bytes());
    }
    let mut left = whole(number) + 1;
    while left >= 0x80 {
        bytes.push(0x80 | u8::try_from(left & 0x7f).expect("7 bits"));
        left >>= 7;
    }
    bytes.push(u8::try_from(left).expect("7 bits"));
}

fn take_number(from: &mut &[u8]) -> Option<f64> {
    let mut number = 0_u64;
    for place in 0..8 {
        let byte = *take(from, 1)?.first()?;
        if place == 0 && byte == 0 {
            return Some(f64::from_le_bytes(take(from, 8)?.try_into().ok()?));
        }
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some(number.checked_sub(1)? as f64);
        }
    }
    None
}

fn take<'b>(from: &mut &'b [u8], count: usize) -> Option<&'b [u8]> {
    let (taken, rest) = from.split_at_checked(count)?;
    *from = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use sluicegate_kernel::algorithm::{Delay, WindowKind};
    use sluicegate_kernel::{
        Concurrency, FixedWindow, LeakyBucket, NamedRule, Rate, SlidingCounter, SlidingLog,
        SlidingWindow, SmoothBursty, TokenBucket,
    };

    use super::*;

    const IDLE_S: u64 = 30 * 86_400;

    fn rules() -> Vec<(Rule, u64)> {
        let (rate, hour) = (Rate::new(7, Micros::from_secs(60)).expect("a rate"), 3_600);
        let span = Micros::from_secs(hour);
        let window = WindowKind::Epoch(span);
        vec![
            (TokenBucket::new(rate, 21).expect("a bucket").into(), 180),
            (TokenBucket::new(rate, 3).expect("a bucket").refilled_by_interval().into(), 60),
            (LeakyBucket::new(rate, 20, Delay::None).expect("a bucket").into(), 180),
            (FixedWindow::new(5, window).expect("a window").into(), hour),
            (SlidingWindow::new(5, span, 10).expect("a window").into(), hour + 360),
            (SlidingCounter::new(5, span).expect("a counter").into(), 2 * hour),
            (SlidingLog::new(5, span).expect("a log").into(), hour),
            (Concurrency::new(5, span, 0).expect("a rule").into(), hour),
            (SmoothBursty::new(rate, Micros::from_secs(60)).expect("one").into(), 60 + IDLE_S),
        ]
    }

    #[test]
    fn a_refund_is_exact_under_one_fixed_window_alone() {
        let is_exact = |rules: Vec<Rule>| {
            let named = rules.into_iter().enumerate();
            let named = named.map(|(place, rule)| NamedRule::new(&format!("r{place}"), rule));
            let set = RuleSet::new(named.collect()).expect("names differ");
            refunds_exactly(RulesBlob::new(&set, RuleOrigin::default()).as_bytes())
        };
        let all: Vec<_> = rules().into_iter().map(|(rule, _)| rule).collect();
        for rule in &all {
            let is_window = matches!(rule, Rule::FixedWindow(_));
            assert_eq!(is_exact(vec![rule.clone()]), is_window, "{rule:?}");
            assert!(!is_exact(vec![all[3].clone(), rule.clone()]), "a window, and {rule:?}");
        }
    }

    #[test]
    fn limits_and_times_to_fill_follow_from_the_numbers() {
        for (rule, seconds) in rules() {
            let limit = rule.limit();
            let blob = RulesBlob::new(&RuleSet::single("a", rule), RuleOrigin::default());
            let [read] = &blob.each()[..] else { panic!("one rule") };
            assert_eq!(read.limit(), limit, "{read:?}");
            let over = blob.life().since(Micros::from_secs(seconds));
            assert!(
                over <= Micros::SECOND && blob.life() >= Micros::from_secs(seconds),
                "{read:?}"
            );
        }
    }
}
