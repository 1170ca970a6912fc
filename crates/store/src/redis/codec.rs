//! What the script is told and what it answers, as bytes. `spec/redis.md` is the format.
//!
//! A rule set travels as a blob that is made once ([`RulesBlob`]); a request is a few bytes
//! ([`Question`]); the answer is a packed string ([`Reply`]). All numbers are little-endian.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use sluicegate_kernel::limits::{SPAN_MAX_US, UNITS_MAX};
use sluicegate_kernel::{
    Carry, Decision, Micros, Moment, Outcome, Retry, Rule, RuleSet, States, Unsupported, Verb,
    Verdict, Window,
};

/// Latest instant that the script decides at, in µs since the epoch (the year 2112): an instant and
/// a rule's longest span together are still exact in a double.
pub const INSTANT_MAX_US: u64 = 1 << 52;

/// Version of the format of rules; part of what a generation is the hash of.
const VERSION: u8 = 1;

/// The Redis key of the state of `key` under `policy`: 27 characters, of which the braces keep
/// whatever belongs to the key in one slot. Any bytes are spread evenly, and none of them can be
/// read back.
pub fn state_key(policy: &str, key: &[u8]) -> String {
    let mut hash = Sha256::new();
    for part in [policy.as_bytes(), key] {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    format!("sg:{{{}}}", URL_SAFE_NO_PAD.encode(&hash.finalize()[..16]))
}

/// What tells the rules that wrote a state from others: the first bytes of their hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Generation([u8; 3]);

impl Generation {
    /// The Redis key where the rules of this generation are kept for those who meet a state that
    /// was written under them.
    pub fn rules_key(self) -> String {
        let [a, b, c] = self.0;
        format!("sg:rules:{a:02x}{b:02x}{c:02x}")
    }
}

/// A rule set as the script takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulesBlob(Box<[u8]>);

impl RulesBlob {
    /// The blob of `rules`.
    pub fn new(rules: &RuleSet) -> Self {
        let carry = match rules.carry() {
            Carry::Usage => 0,
            Carry::Proportional => 1,
            Carry::Reset => 2,
        };
        let count = u8::try_from(rules.rules().len()).expect("a set has at most 8 rules");
        let mut bytes = vec![0, 0, 0, VERSION, carry, count];
        for named in rules.rules() {
            let numbers = named.rule.numbers();
            let count = u8::try_from(numbers.len()).expect("a rule has a handful of numbers");
            bytes.extend([named.rule.code(), count, flags(&named.rule)]);
            bytes.extend_from_slice(&Sha256::digest(named.name.as_bytes())[..8]);
            bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
        let hash = Sha256::digest(&bytes[3..]);
        bytes[..3].copy_from_slice(&hash[..3]);
        Self(bytes.into_boxed_slice())
    }

    /// What tells these rules from others.
    pub fn generation(&self) -> Generation {
        Generation([self.0[0], self.0[1], self.0[2]])
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Whose clock says what time it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// The server's (`TIME`).
    #[default]
    Server,
    /// The moment that is passed in, and nothing else: as the kernel decides. For replays and
    /// tests. Keys outlive their budgets by a day, as this time need not be the server's.
    Given,
    /// The moment that is passed in, but never earlier than what the key has seen: several callers
    /// whose clocks differ add nothing to its budget.
    Client,
}

/// The rules that wrote a state, where they are not those of the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Before<'a> {
    /// Not looked for yet.
    #[default]
    Unsaid,
    /// These, as [`RulesBlob::as_bytes`] had them.
    Rules(&'a [u8]),
    /// Nobody knows them: every budget of the key counts as used up.
    Lost,
}

/// One request as the script takes it.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// What is wanted.
    pub verb: &'a Verb,
    /// When, with the calendar windows around it; with [`Clock::Server`] only the windows count.
    pub at: &'a Moment<'a>,
    /// Whose clock rules.
    pub clock: Clock,
    /// The rules that wrote the state, once the script has asked for them.
    pub before: Before<'a>,
}

impl Question<'_> {
    /// The bytes.
    ///
    /// # Panics
    /// If a rule with a calendar has no window in `at`, as the kernel would.
    pub fn encode(&self, rules: &RuleSet) -> Vec<u8> {
        let Self { verb, at, clock, before } = self;
        let (code, cost) = match verb {
            Verb::Check { cost } => (1, cost.get()),
            Verb::Reserve { cost, .. } => (2, cost.get()),
            Verb::AtMost { cost } => (3, cost.get()),
            Verb::Peek { cost } => (4, cost.get()),
            Verb::Refund { cost } => (5, cost.get()),
            Verb::Reset => (6, 1),
            Verb::Acquire { cost, .. } => (7, cost.get()),
            Verb::Release { .. } => (8, 1),
            Verb::Renew { .. } => (9, 1),
        };
        let mut bytes = vec![code, *clock as u8];
        put(&mut bytes, cost, 4);
        match verb {
            Verb::Reserve { max_wait, .. } => put(&mut bytes, max_wait.capped().get(), 7),
            Verb::Acquire { permit, .. } | Verb::Release { permit } | Verb::Renew { permit } => {
                bytes.extend(permit.0.to_be_bytes());
            }
            _ => {}
        }
        if *clock != Clock::Server {
            put(&mut bytes, at.now().get().min(INSTANT_MAX_US), 7);
        }
        for (place, named) in rules.rules().iter().enumerate() {
            if named.rule.calendar().is_some() {
                let window = at.windows().get(place).copied().flatten();
                let Window { start, end } =
                    window.expect("whoever reads the clock brings the calendar window along");
                put(&mut bytes, start.get().min(SPAN_MAX_US), 7);
                put(&mut bytes, end.get().min(UNITS_MAX), 7);
            }
        }
        match before {
            Before::Unsaid => {}
            Before::Rules(blob) => {
                bytes.push(1);
                bytes.extend_from_slice(blob);
            }
            Before::Lost => bytes.push(2),
        }
        bytes
    }
}

/// What the script answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A decision.
    Verdict(Verdict),
    /// The rules do not know the verb; no state was changed.
    Unsupported(Unsupported),
    /// The state was written under rules of this generation, and the script does not know them; no
    /// state was changed. Ask again with [`Before`].
    Unknown(Generation),
    /// The script could not read this part of what it was given (`rules`, `ask`) or of what is
    /// stored (`state`); no state was changed.
    Malformed(String),
}

/// Bytes that are no reply of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a reply of {length} bytes is none of the script's")]
pub struct ForeignReply {
    /// How long it is.
    pub length: usize,
}

impl Reply {
    /// The answer to `verb` under `rules` that `bytes` are.
    ///
    /// # Errors
    /// [`ForeignReply`] if they are none.
    pub fn decode(bytes: &[u8], rules: &RuleSet, verb: &Verb) -> Result<Self, ForeignReply> {
        let foreign = ForeignReply { length: bytes.len() };
        match *bytes {
            [2] => rules.supports(verb).err().map(Self::Unsupported).ok_or(foreign),
            [3, a, b, c] => Ok(Self::Unknown(Generation([a, b, c]))),
            [4, ref what @ ..] => Ok(Self::Malformed(String::from_utf8_lossy(what).into_owned())),
            [kind @ (0 | 1), rule, ref numbers @ ..] => {
                verdict(kind == 1, rule.into(), numbers, rules).map(Self::Verdict).ok_or(foreign)
            }
            _ => Err(foreign),
        }
    }
}

fn verdict(allowed: bool, rule: usize, numbers: &[u8], rules: &RuleSet) -> Option<Verdict> {
    let limit = rules.rules().get(rule)?.rule.limit();
    let (granted, numbers) = numbers.split_at_checked(4)?;
    let (span, numbers) = numbers.split_at_checked(7)?;
    let (remaining, reset_after) = numbers.split_at_checked(7)?;
    if reset_after.len() != 7 {
        return None;
    }
    let outcome = match (allowed, number(span)) {
        (true, wait) => Outcome::Allow { granted: number(granted), wait: Micros::new(wait) },
        (false, NEVER) => Outcome::Deny { retry: Retry::Never },
        (false, after) => Outcome::Deny { retry: Retry::After(Micros::new(after)) },
    };
    let (remaining, reset_after) = (number(remaining), Micros::new(number(reset_after)));
    Some(Verdict { decision: Decision { outcome, limit, remaining, reset_after }, rule })
}

/// What the script stores for `states` under `rules`; `None` if that is no key at all. The
/// documented form of a state, for tools and tests: only the script writes it.
pub fn state_value(rules: &RuleSet, states: &States) -> Option<Vec<u8>> {
    if states.is_empty() {
        return None;
    }
    let mut bytes = RulesBlob::new(rules).generation().0.to_vec();
    rules.write_states(states, &mut bytes);
    Some(bytes)
}

/// What the script must know of a rule whatever its algorithm: whether a full budget is a new key,
/// whether it hands out permits, whether a request brings its window along.
fn flags(rule: &Rule) -> u8 {
    let flags = [rule.full_is_fresh(), rule.holds_permits(), rule.calendar().is_some()];
    flags.into_iter().enumerate().map(|(bit, set)| u8::from(set) << bit).sum()
}

/// Appends the lowest `bytes` bytes of `value`, little-endian.
fn put(out: &mut Vec<u8>, value: u64, bytes: usize) {
    out.extend_from_slice(&value.to_le_bytes()[..bytes]);
}

/// The little-endian number of at most 7 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The largest number of 7 bytes stands for a retry that never comes.
const NEVER: u64 = (1 << 56) - 1;
