//! The requests to a rule, and its answers.

use alloc::vec::Vec;
use core::fmt;

#[cfg(doc)]
use crate::limits::SPAN_MAX_US;
use crate::num::{Cost, Micros};

/// One request as a single rule sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The permits it takes. Beside leases the permits that are held are added, so this can be more than a [`Cost`].
    pub cost: u64,
    /// `None`: pass now or be refused (`check`). `Some(span)`: may be held back that long (`reserve`).
    pub max_wait: Option<Micros>,
    /// The permit id it will hold; only `acquire` has one.
    pub permit: Option<PermitId>,
}

impl Ask {
    /// A plain check of `cost`.
    pub const fn check(cost: Cost) -> Self {
        Self { cost: cost.get(), max_wait: None, permit: None }
    }

    /// A reservation of `cost` that may wait up to `max_wait`.
    pub const fn reserve(cost: Cost, max_wait: Micros) -> Self {
        Self { cost: cost.get(), max_wait: Some(max_wait), permit: None }
    }

    /// An acquire of `permit`, which costs `cost`.
    pub(crate) const fn acquire(cost: Cost, permit: PermitId) -> Self {
        Self { cost: cost.get(), max_wait: None, permit: Some(permit) }
    }

    /// Returns this ask for `cost` permits.
    pub(crate) const fn for_permits(self, cost: u64) -> Self {
        Self { cost, ..self }
    }

    /// The longest time for which a rule that books the future may hold this request back; zero for a check.
    pub(crate) const fn patience(&self) -> Micros {
        match self.max_wait {
            Some(span) => span,
            None => Micros::ZERO,
        }
    }
}

/// The instant of a decision, with the calendar windows around it.
///
/// The kernel knows no time zones: the caller reads the clock and computes, for each rule with a calendar window, where
/// that window begins and ends. Only after [`as_of`](Moment::as_of) can the instant be outside of it.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    now: Micros,
    windows: &'a [Option<Window>],
    rule: usize,
}

impl Moment<'static> {
    /// The instant `now`, for rules without calendar windows. Instants end at [`SPAN_MAX_US`].
    pub const fn new(now: Micros) -> Self {
        Self { now: now.capped(), windows: &[], rule: 0 }
    }
}

impl<'a> Moment<'a> {
    /// The instant `now`; `windows[i]` is the calendar window around it for rule `i` of the set.
    pub const fn with_windows(now: Micros, windows: &'a [Option<Window>]) -> Self {
        Self { now: now.capped(), windows, rule: 0 }
    }

    /// Moves the moment to `latest`, if that is later: for a caller whose turn came after others that read the clock
    /// later. The calendar windows are still those around the earlier instant.
    #[must_use]
    pub const fn as_of(&self, latest: Micros) -> Self {
        let latest = latest.capped();
        Self { now: if latest.get() > self.now.get() { latest } else { self.now }, ..*self }
    }

    /// The instant.
    pub const fn now(&self) -> Micros {
        self.now
    }

    /// The calendar windows, one for each rule of the set; empty where no rule has one.
    pub const fn windows(&self) -> &'a [Option<Window>] {
        self.windows
    }

    /// The calendar window of the rule that is being decided.
    pub(crate) fn window(&self) -> Option<Window> {
        self.windows.get(self.rule).copied().flatten()
    }

    /// Moves the moment back to `instant`, but not before the calendar window around now, nor after now.
    pub(crate) fn back_to(&self, instant: Micros) -> Self {
        let begin = self.window().map_or(Micros::ZERO, |window| window.start);
        Self { now: instant.max(begin).min(self.now), ..*self }
    }

    /// Returns this instant as rule `rule` sees it.
    pub const fn for_rule(&self, rule: usize) -> Self {
        Self { rule, ..*self }
    }
}

/// A window of a calendar: `start <= now < end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// First instant inside.
    pub start: Micros,
    /// First instant after.
    pub end: Micros,
}

/// The name of a permit of a `concurrency` rule. Every caller that knows it can release the permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PermitId(pub u128);

impl PermitId {
    /// The id for a permit that the caller names (FNV-1a, 128 bits: the parameters of the IETF
    /// draft *The FNV Non-Cryptographic Hash Algorithm*).
    pub fn named(name: &str) -> Self {
        Self(fnv_1a(name.as_bytes()))
    }

    /// Returns the id that is written so: 32 hexadecimal digits; `None` for any other text.
    pub fn from_hex(text: &str) -> Option<Self> {
        let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if is_hex { u128::from_str_radix(text, 16).ok().map(Self) } else { None }
    }
}

impl fmt::Display for PermitId {
    /// Writes 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A process that waits for permits of `concurrency` rules: a random number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId(pub u64);

/// A waiting request that would pass now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Called {
    /// The permit that it wants.
    pub permit: PermitId,
    /// The process that waits.
    pub process: ProcessId,
}

/// The permits of a key that are held, and the number of requests that wait for one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldPermits {
    /// A record for each, in the order in which they lapse: at most [`HOLDERS_MAX`](crate::limits::HOLDERS_MAX) of each
    /// rule.
    pub permits: Vec<ListedPermit>,
    /// The requests that wait.
    pub waiting: u64,
}

/// A permit that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedPermit {
    /// Its id, by which it can be released.
    pub permit: PermitId,
    /// Its cost.
    pub cost: u64,
    /// The time after which it lapses unless it is renewed.
    pub lapses_after: Micros,
}

pub(crate) fn fnv_1a(bytes: &[u8]) -> u128 {
    const OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u128::from(*byte)).wrapping_mul(PRIME))
}

/// Yes or no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The request passes.
    Allow {
        /// Permits granted (or given back, for a refund).
        granted: u64,
        /// The time for which it must be held back before it goes on.
        wait: Micros,
    },
    /// The request does not pass, and nothing was charged.
    Deny {
        /// The time until the same request can pass.
        retry: Retry,
    },
}

/// The time until a refused request can pass. The order is by patience: [`Retry::Never`] is the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// In this time, if no other request takes the budget first.
    After(Micros),
    /// This cost can never pass under this rule.
    Never,
}

/// The rest of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Permits that could be taken now, rounded down.
    pub remaining: u64,
    /// The time until the budget is full again, rounded up.
    pub reset_after: Micros,
}

/// The part that is left of what a new key may take; a store that forgets the key gives the other part away. The order
/// is by what is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Left(u32);

impl Left {
    /// No permit is left: the next request is refused.
    pub const NONE: Self = Self(0);
    /// Half of it.
    pub const HALF: Self = Self(u32::MAX / 2);
    /// All of it: to forget the key gives nothing away.
    pub const ALL: Self = Self(u32::MAX);

    /// `permits` of the `whole` that a new key may take, rounded down; all of it if that is nothing.
    ///
    /// ```
    /// use sluicegate_kernel::Left;
    ///
    /// assert_eq!(Left::of(0, 5), Left::NONE);
    /// assert!(Left::of(4, 5) > Left::HALF && Left::of(4, 5) < Left::ALL);
    /// assert_eq!(Left::of(5, 5), Left::ALL);
    /// ```
    pub fn of(permits: u64, whole: u64) -> Self {
        if permits >= whole {
            return Self::ALL;
        }
        let part = u128::from(permits) * u128::from(u32::MAX) / u128::from(whole);
        Self(u32::try_from(part).expect("a part of a whole"))
    }
}

/// The answer of one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Yes or no.
    pub outcome: Outcome,
    /// The largest cost that the rule ever lets pass at once; of Guava's two, where any cost passes,
    /// the permits that are stored at most.
    pub limit: u64,
    /// Permits left after this decision, rounded down.
    pub remaining: u64,
    /// The time until the budget is full again, rounded up.
    pub reset_after: Micros,
}

impl Decision {
    /// Returns whether the request passes.
    pub const fn allowed(&self) -> bool {
        matches!(self.outcome, Outcome::Allow { .. })
    }

    /// Permits granted; 0 if refused.
    pub const fn granted(&self) -> u64 {
        match self.outcome {
            Outcome::Allow { granted, .. } => granted,
            Outcome::Deny { .. } => 0,
        }
    }

    /// The time for which an allowed request must be held back; zero if refused.
    pub const fn wait(&self) -> Micros {
        match self.outcome {
            Outcome::Allow { wait, .. } => wait,
            Outcome::Deny { .. } => Micros::ZERO,
        }
    }

    /// The time until a refused request can pass: zero if allowed, `None` if never.
    pub const fn retry_after(&self) -> Option<Micros> {
        match self.outcome {
            Outcome::Allow { .. } => Some(Micros::ZERO),
            Outcome::Deny { retry: Retry::After(span) } => Some(span),
            Outcome::Deny { retry: Retry::Never } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_is_the_longest_retry() {
        assert!(Retry::Never > Retry::After(Micros::MAX));
        assert!(Retry::After(Micros::new(2)) > Retry::After(Micros::new(1)));
    }

    #[test]
    fn named_permits_follow_fnv_1a() {
        // The hash of the empty string is the offset basis by definition.
        assert_eq!(PermitId::named("").0, 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_ne!(PermitId::named("a"), PermitId::named("b"));
    }
}
