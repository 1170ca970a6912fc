//! The requests and replies of the script, as bytes. `spec/redis.md` is the format.
//!
//! A rule set travels as a blob that is made once ([`RulesBlob`]); a request is a few bytes
//! ([`ScriptRequest`]); the answer is a packed string ([`ScriptReply`]). All numbers are little-endian.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use sluicegate_kernel::limits::{COST_MAX, RULES_MAX, SPAN_MAX_US, UNITS_MAX};
use sluicegate_kernel::{
    Called, Decision, Micros, Moment, Outcome, PermitId, ProcessId, Retry, RuleSet, States,
    Unsupported, Verb, Verdict, Window,
};

use super::blob::refunds_exactly;
pub use super::blob::{Generation, RulesBlob, Stamp};
use super::numbers::{number, put};
use crate::{Charge, Permits, RuleOrigin, StoreAnswer};

/// Latest instant that the script decides at, in µs since the epoch (the year 2112): an instant and
/// a rule's longest span together are still exact in a double.
pub const INSTANT_MAX_US: u64 = 1 << 52;

/// Verbs that grant something, and those that give it back.
const CHECK: u8 = 1;
const RESERVE: u8 = 2;
const AT_MOST: u8 = 3;
const REFUND: u8 = 5;

/// The verbs that charge a debt, and the mark of a request that comes after one.
const DEBIT: u8 = 11;
const RAISE: u8 = 13;
const IN_DEBT: u8 = 12;

/// The verbs that acquire a permit or wait for it, and that wait no more.
const WAIT: u8 = 14;
const LEAVE: u8 = 15;

/// The least time that a window must still last for a refund of a late grant: a server that stood still
/// executes a refund when it goes on, and permits of a shorter window are soon there again.
const UNDONE_MIN: Micros = Micros::from_secs(60);

/// Length of a longest wait, in bytes.
const MAX_WAIT_BYTES: usize = 7;

/// Length of a reply that is a decision by one rule, in bytes.
const VERDICT_BYTES: usize = 27;

/// Length of the remaining permits of a rule, in bytes.
const REMAINING_BYTES: usize = 7;

/// Length of a waiting request that is called, in bytes: the permit and the process.
const CALLED_BYTES: usize = 24;

/// Returns the Redis key of the state of `key` under `policy`: 27 characters, of which the braces keep all
/// keys that belong to it in one slot. Any bytes are spread evenly, and none of them can be read back.
pub fn state_key(policy: &str, key: &[u8]) -> String {
    format!("sg:{{{}}}", name_of([policy.as_bytes(), key]))
}

/// Returns the Redis key of the rules of `policy` with this generation, for clients that meet a state that was
/// written under them. No other policy's rules can be there.
pub fn rules_key(policy: &str, generation: Generation) -> String {
    format!("sg:rules:{}:{generation}", name_of([policy.as_bytes()]))
}

/// Returns the Redis key of the permits that were charged of the debt with this id, beside the state at
/// `state_key` and in its slot.
pub(super) fn debt_key(state_key: &str, id: u128) -> String {
    format!("{state_key}:{}", URL_SAFE_NO_PAD.encode(id.to_be_bytes()))
}

/// Returns 22 characters that stand for `parts`.
fn name_of<const N: usize>(parts: [&[u8]; N]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    URL_SAFE_NO_PAD.encode(&hash.finalize()[..16])
}

/// The clock of decisions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScriptClock {
    /// The clock of the server (`TIME`).
    #[default]
    Server,
    /// The moment that is passed in, and nothing else: as the kernel decides. For replays and
    /// tests. Keys outlive their budgets by a day, as this time need not be the server's.
    Given,
    /// The moment that is passed in, but never earlier than the latest one of the key: several callers whose
    /// clocks differ add nothing to its budget.
    Client,
}

/// The rules that wrote a state, where they are not those of the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PreviousRules<'a> {
    /// The script has not asked for them yet.
    #[default]
    Unsaid,
    /// Known rules.
    Rules(&'a RulesBlob),
    /// Unknown rules: every budget of the key counts as used up.
    Lost,
}

/// One request as the script takes it.
#[derive(Clone, Copy, Debug)]
pub struct ScriptRequest<'a> {
    /// The verb.
    pub verb: &'a Verb,
    /// The moment, with the calendar windows around it; with [`ScriptClock::Server`] only the windows count.
    pub at: &'a Moment<'a>,
    /// The clock of the decision.
    pub clock: ScriptClock,
    /// The rules that wrote the state, once the script has asked for them.
    pub before: PreviousRules<'a>,
}

impl ScriptRequest<'_> {
    /// Returns the bytes.
    ///
    /// # Panics
    /// If a rule with a calendar has no window in `at`, as the kernel would.
    pub fn encode(&self, rules: &RuleSet) -> Vec<u8> {
        self.encode_with(windows_at(rules, self.at).into_iter())
    }

    /// Returns the bytes for rules whose calendars have these windows, in their order.
    pub(super) fn encode_with(&self, windows: impl Iterator<Item = Window>) -> Vec<u8> {
        let Self { verb, .. } = self;
        let (code, cost) = match verb {
            Verb::Check { cost } => (CHECK, cost.get()),
            Verb::Reserve { cost, .. } => (RESERVE, cost.get()),
            Verb::AtMost { cost } => (AT_MOST, cost.get()),
            Verb::Peek { cost } => (4, cost.get()),
            Verb::Refund { cost } => (REFUND, cost.get()),
            Verb::Reset => (6, 1),
            Verb::Acquire { cost, .. } => (7, cost.get()),
            Verb::Release { .. } => (8, 1),
            Verb::Renew { .. } => (9, 1),
            Verb::Wait { cost, .. } => (WAIT, cost.get()),
            Verb::Leave { .. } => (LEAVE, 1),
        };
        let mut bytes = vec![code, self.clock as u8];
        put(&mut bytes, cost, 4);
        match verb {
            Verb::Reserve { max_wait, .. } => {
                put(&mut bytes, max_wait.capped().get(), MAX_WAIT_BYTES);
            }
            Verb::Acquire { permit, .. } | Verb::Release { permit } | Verb::Renew { permit } => {
                bytes.extend(permit.0.to_be_bytes());
            }
            Verb::Wait { permit, process, .. } | Verb::Leave { permit, process } => {
                bytes.extend(permit.0.to_be_bytes());
                bytes.extend(process.0.to_be_bytes());
            }
            _ => {}
        }
        self.encode_rest(&mut bytes, windows);
        bytes
    }

    /// Returns the bytes of the request after a debt is charged: `permits` of each rule.
    pub(super) fn encode_in_debt(
        &self,
        charge: Charge,
        permits: &[u64],
        windows: impl Iterator<Item = Window> + Clone,
    ) -> Vec<u8> {
        let code = match charge {
            Charge::Added => DEBIT,
            Charge::AtLeast => RAISE,
        };
        let mut debit = vec![code, self.clock as u8];
        put(&mut debit, 1, 4);
        permits.iter().for_each(|permits| put(&mut debit, (*permits).min(COST_MAX), 4));
        self.encode_rest(&mut debit, windows.clone());
        let mut bytes = vec![IN_DEBT];
        put(&mut bytes, debit.len() as u64, 2);
        bytes.extend(debit);
        bytes.extend(self.encode_with(windows));
        bytes
    }

    fn encode_rest(&self, bytes: &mut Vec<u8>, windows: impl Iterator<Item = Window>) {
        let Self { verb: _, at, clock, before } = self;
        put_rest(bytes, *clock, at, windows, *before);
    }
}

/// Appends the end of every request: the time unless it is the server's, the windows of calendars, and the
/// rules that wrote the state.
pub(super) fn put_rest(
    bytes: &mut Vec<u8>,
    clock: ScriptClock,
    at: &Moment<'_>,
    windows: impl Iterator<Item = Window>,
    before: PreviousRules<'_>,
) {
    if clock != ScriptClock::Server {
        put(bytes, at.now().get().min(INSTANT_MAX_US), 7);
    }
    for Window { start, end } in windows {
        put(bytes, start.get().min(SPAN_MAX_US), 7);
        put(bytes, end.get().min(UNITS_MAX), 7);
    }
    match before {
        PreviousRules::Unsaid => {}
        PreviousRules::Rules(blob) => {
            bytes.push(1);
            bytes.extend_from_slice(blob.as_bytes());
        }
        PreviousRules::Lost => bytes.push(2),
    }
}

/// Returns the refund of the permits that `reply` granted to `request` under `rules`. `None` if it
/// granted none, or if a refund could let more than the limit pass: it may be executed late, when the permits
/// are there again in any case. So a held permit stays held: by then its caller may have released it, and
/// acquired another one of the same name.
pub(super) fn undoing(rules: &[u8], request: &[u8], reply: &[u8]) -> Option<Vec<u8>> {
    let request = match *request {
        [IN_DEBT, low, high, ref rest @ ..] => {
            rest.get(usize::from(u16::from_le_bytes([low, high]))..)?
        }
        _ => request,
    };
    let (&[verb, clock, ..], rest) = request.split_first_chunk::<6>()?;
    let (&[allowed, _rule, ref granted @ ..], numbers) = reply.split_first_chunk::<6>()?;
    let reset_after = Micros::new(number(numbers.get(14..21)?));
    let lasts = reset_after > UNDONE_MIN && refunds_exactly(rules);
    let is_undone = allowed == 1
        && clock != ScriptClock::Given as u8
        && lasts
        && matches!(verb, CHECK | AT_MOST);
    is_undone.then(|| [&[REFUND, clock], &granted[..], rest].concat())
}

/// Returns the windows of the calendars of `rules` at this moment.
///
/// # Panics
/// If a rule with a calendar has no window, as the kernel would.
pub(super) fn windows_at(rules: &RuleSet, at: &Moment<'_>) -> Vec<Window> {
    let windows = rules.rules().iter().enumerate().filter_map(|(place, named)| {
        named.rule.calendar()?;
        let window = at.windows().get(place).copied().flatten();
        Some(window.expect("a moment brings the windows of the calendars along"))
    });
    windows.collect()
}

/// Splits a reply to [`ScriptRequest::encode_in_debt`] for so many rules into the decision, with the waiting requests that
/// it calls, and the permits that were charged of the debt. `None` if it is another reply.
pub(super) fn split_charged(reply: &[u8], rules: usize) -> Option<(Vec<u8>, Permits)> {
    let (verdict, rest) = reply.split_at_checked(verdict_bytes(rules))?;
    let (charged, called) = rest.split_at_checked(4 * rules)?;
    let is_verdict =
        verdict[0] <= 1 && called.len().is_multiple_of(CALLED_BYTES) && rules <= RULES_MAX;
    let mut permits = Permits::default();
    for (permits, charged) in permits.iter_mut().zip(charged.chunks_exact(4)) {
        *permits = number(charged);
    }
    is_verdict.then(|| ([verdict, called].concat(), permits))
}

/// Returns the length of a reply that is a decision by so many rules, in bytes.
const fn verdict_bytes(rules: usize) -> usize {
    if rules > 1 { VERDICT_BYTES + REMAINING_BYTES * rules } else { VERDICT_BYTES }
}

/// A reply of the script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptReply {
    /// A decision.
    Decided(StoreAnswer),
    /// The rules do not know the verb; no state was changed.
    Unsupported(Unsupported),
    /// The state was written under other rules that the script does not have; no state was changed. Ask again
    /// with [`PreviousRules`]. The bytes are the head of the state: see [`Stamp::read`] and
    /// [`RulesBlob::read_brought`].
    Unknown(Vec<u8>),
    /// The script could not read this part of the request (`rules`, `ask`) or of the stored value (`state`);
    /// no state was changed.
    Malformed(String),
}

/// Bytes that are not a reply of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unexpected reply of {length} bytes from the script")]
pub struct ForeignReply {
    /// The length of the bytes.
    pub length: usize,
}

impl ScriptReply {
    /// Decodes `bytes`, the reply to `verb` under `rules`.
    ///
    /// # Errors
    /// [`ForeignReply`] if they are not a reply.
    pub fn decode(bytes: &[u8], rules: &RuleSet, verb: &Verb) -> Result<Self, ForeignReply> {
        let limits = rules.rules().iter().map(|named| named.rule.limit());
        Self::decode_with(bytes, limits, || rules.supports(verb).err())
    }

    /// Decodes the reply under rules with these limits; `unsupported` is the reason if they do not support the
    /// verb.
    pub(super) fn decode_with(
        bytes: &[u8],
        limits: impl ExactSizeIterator<Item = u64> + Clone,
        unsupported: impl FnOnce() -> Option<Unsupported>,
    ) -> Result<Self, ForeignReply> {
        let foreign = ForeignReply { length: bytes.len() };
        match *bytes {
            [2] => unsupported().map(Self::Unsupported).ok_or(foreign),
            [3, ref begin @ ..] if !begin.is_empty() => Ok(Self::Unknown(begin.to_vec())),
            [4, ref what @ ..] => Ok(Self::Malformed(String::from_utf8_lossy(what).into_owned())),
            [kind @ (0 | 1), rule, ref numbers @ ..] => {
                let answer = answer(kind == 1, rule.into(), limits, numbers);
                answer.map(Self::Decided).ok_or(foreign)
            }
            _ => Err(foreign),
        }
    }
}

/// Reads waiting requests that are called. `None` if `bytes` are not such a list.
pub(super) fn read_called(bytes: &[u8]) -> Option<Vec<Called>> {
    if bytes.is_empty() {
        return Some(Vec::new());
    }
    let (called, []) = bytes.as_chunks::<CALLED_BYTES>() else { return None };
    let called = called.iter().filter_map(|called| {
        let (permit, process) = called.split_first_chunk()?;
        let process = ProcessId(u64::from_be_bytes(*process.first_chunk()?));
        Some(Called { permit: PermitId(u128::from_be_bytes(*permit)), process })
    });
    Some(called.collect())
}

/// Returns the form of waiting requests that are called.
pub(super) fn called_bytes(called: &[Called]) -> Vec<u8> {
    let one = |called: &Called| {
        let (permit, process) = (called.permit.0.to_be_bytes(), called.process.0.to_be_bytes());
        permit.into_iter().chain(process)
    };
    called.iter().flat_map(one).collect()
}

fn answer(
    allowed: bool,
    rule: usize,
    limits: impl ExactSizeIterator<Item = u64> + Clone,
    numbers: &[u8],
) -> Option<StoreAnswer> {
    let limit = limits.clone().nth(rule)?;
    let (granted, numbers) = numbers.split_at_checked(4)?;
    let (span, numbers) = numbers.split_at_checked(7)?;
    let (remaining, numbers) = numbers.split_at_checked(7)?;
    let (reset_after, rest) = numbers.split_at_checked(7)?;
    let several = limits.len() > 1;
    let (left, called) =
        rest.split_at_checked(if several { REMAINING_BYTES * limits.len() } else { 0 })?;
    let called = read_called(called)?;
    // Of one rule, the decision has what is left.
    let left = if several { left } else { remaining };
    let left = left.chunks_exact(REMAINING_BYTES).map(signed);
    let in_use = limits.zip(left).map(|(limit, left)| limit.saturating_add_signed(-left));
    let outcome = match (allowed, number(span)) {
        (true, wait) => Outcome::Allow { granted: number(granted), wait: Micros::new(wait) },
        (false, NEVER) => Outcome::Deny { retry: Retry::Never },
        (false, after) => Outcome::Deny { retry: Retry::After(Micros::new(after)) },
    };
    let remaining = u64::try_from(signed(remaining)).unwrap_or(0);
    let reset_after = Micros::new(number(reset_after));
    let verdict = Verdict { decision: Decision { outcome, limit, remaining, reset_after }, rule };
    Some(StoreAnswer { verdict, in_use: in_use.enumerate().collect(), called })
}

/// Returns the stored value of `states` under `rules` from `origin`; `None` if there is no key then. It is the
/// documented form of a state, for tools and tests: only the script writes it.
pub fn state_value(rules: &RuleSet, origin: RuleOrigin, states: &States) -> Option<Vec<u8>> {
    if states.is_empty() {
        return None;
    }
    let mut bytes = RulesBlob::new(rules, origin).head().to_vec();
    rules.write_states(states, &mut bytes);
    Some(bytes)
}

/// Returns the little-endian number of 7 bytes, which may be below 0.
fn signed(bytes: &[u8]) -> i64 {
    let shifted = number(bytes) << 8;
    shifted.cast_signed() >> 8
}

/// The largest number of 7 bytes: a retry that never comes.
pub(super) const NEVER: u64 = (1 << 56) - 1;
