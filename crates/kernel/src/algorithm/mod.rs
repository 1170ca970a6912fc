//! The algorithms: one file each, one line in the list of `registry.rs`.
//!
//! To add one, write its file (the essay, the rule, its state, [`Algorithm`] for it) and its twin in
//! Lua beside it, add its line to `algorithms!`, and give it a folder of vectors. Documents, schemas, `replay`, stores and the
//! server then know it; `CONTRIBUTING.md` lists the rest.

mod concurrency;
mod fixed_window;
mod flow;
mod leaky_bucket;
mod leasing;
mod registry;
mod sliding_counter;
mod sliding_log;
mod sliding_window;
mod smooth_bursty;
mod smooth_warmup;
mod token_bucket;
mod waiters;

use alloc::vec::Vec;
use core::fmt::Debug;

pub use concurrency::Concurrency;
pub use fixed_window::{CalendarUnit, FixedWindow, WindowKind};
pub use leaky_bucket::{Delay, LeakyBucket};
pub use leasing::Leasing;
pub use registry::{AlgorithmInfo, Rule, State, algorithms, twins};
pub use sliding_counter::SlidingCounter;
pub use sliding_log::SlidingLog;
pub use sliding_window::SlidingWindow;
pub use smooth_bursty::SmoothBursty;
pub use smooth_warmup::SmoothWarmup;
pub use token_bucket::{TokenBucket, Units};

use crate::decision::{Ask, Called, Decision, Left, Moment, Outcome, PermitId, ProcessId, Status};
use crate::limits::{LEASE_USED_MAX, UNITS_MAX};
use crate::num::{Micros, Rate};
use crate::param::{Param, Params, RangeError};

/// An algorithm with its parameters: pure functions of state, request and moment.
///
/// `None` is the state of a key that was never seen. [`check`](Self::check) looks,
/// [`charge`](Self::charge) takes: between the two every other rule of the policy has its say.
pub trait Algorithm: Sized + Clone + PartialEq + Debug {
    /// The state that it keeps of a key.
    type State: Clone + PartialEq + Debug;

    /// Its name in documents, such as `token_bucket`.
    const NAME: &'static str;
    /// Its number in what is stored outside this process: never changed, never used again.
    const CODE: u8;
    /// The twin in Lua, for stores that decide where the state lives.
    const TWIN: &'static str;
    /// One sentence for the schema.
    const ABOUT: &'static str;
    /// Its parameters.
    const PARAMS: &'static [Param];

    /// The rule with these parameters.
    ///
    /// # Errors
    /// [`RangeError`] naming the parameter that is missing or outside its range.
    fn from_params(params: &Params) -> Result<Self, RangeError>;

    /// The largest cost that ever passes at once; of Guava's two, where any cost passes, the permits
    /// that are stored at most.
    fn limit(&self) -> u64;

    /// Decides whether `ask` passes. Changes nothing.
    fn check(&self, state: Option<&Self::State>, ask: &Ask, at: &Moment<'_>) -> Outcome;

    /// Takes what `ask` costs. Call it only after [`check`](Self::check) allowed the same ask, or for
    /// permits that were leased: then at no instant that is earlier than [`seen`](Self::seen).
    fn charge(&self, state: &mut Option<Self::State>, ask: &Ask, at: &Moment<'_>);

    /// Returns the state of a key that was refused the first time it was seen: a budget that starts below full begins
    /// to fill then. `None` if no such state is needed.
    fn first_seen(&self, _: &Moment<'_>) -> Option<Self::State> {
        None
    }

    /// The largest cost that [`check`](Self::check) would let pass now; at most
    /// [`limit`](Self::limit) unless every cost passes.
    fn available(&self, state: Option<&Self::State>, at: &Moment<'_>) -> u64;

    /// Returns what is left, and when the budget is full again.
    fn status(&self, state: Option<&Self::State>, at: &Moment<'_>) -> Status;

    /// Returns the part that is left at `now` of what a new key may take. All algorithms compare in this measure:
    /// stores that must forget a key rank by it.
    fn left(&self, state: &Self::State, now: Micros) -> Left {
        Left::of(self.available(Some(state), &Moment::new(now)), self.limit())
    }

    /// Bytes that `state` takes beside its own size.
    fn heap_bytes(_: &Self::State) -> usize {
        0
    }

    /// Gives up to `permits` back, never above full. Returns the number given back; a part counts as one.
    fn refund(&self, state: &mut Self::State, permits: u64, at: &Moment<'_>) -> u64;

    /// Moves the usage to the new, earlier now if time went back. Adds nothing, freezes nothing. When time did not go
    /// back, it forgets what no longer waits, and does nothing else.
    fn rewind(&self, state: &mut Self::State, at: &Moment<'_>);

    /// The instant at which the budget of this state is full again.
    fn full_at(&self, state: &Self::State) -> Micros;

    /// The span in which the whole limit comes back, if it is the same wherever it begins: an hour of
    /// `1000/h`. `None` otherwise.
    fn window(&self) -> Option<Micros>;

    /// Returns whether a full budget equals that of a key that was never seen, so that the key may be forgotten.
    fn full_is_fresh(&self) -> bool {
        true
    }

    /// Returns whether permits of this rule can be leased, and how they come back.
    fn leasing(&self) -> Leasing;

    /// The earliest instant at which leased permits can still be charged: `state` already contains what came after it.
    fn seen(&self, _: &Self::State) -> Micros {
        Micros::ZERO
    }

    /// Forgets usage that does not count any more, so that it does not count again if the clock goes back.
    fn forget(&self, _: &mut Self::State, _: &Moment<'_>) {}

    /// The most permits in use that a state counts exactly: far more than the limit, which may have been
    /// higher when they were taken.
    fn countable(&self) -> u64 {
        LEASE_USED_MAX
    }

    /// Permits in use now, rounded up: what another algorithm takes over.
    fn used(&self, state: &Self::State, at: &Moment<'_>) -> u64;

    /// The state of a key that has `used` permits in use.
    fn with_used(&self, used: u64, at: &Moment<'_>) -> Option<Self::State>;

    /// `state` of `old`, the same algorithm with other parameters, in this rule's units.
    fn convert(&self, old: &Self, state: &Self::State, at: &Moment<'_>) -> Option<Self::State> {
        self.with_used(old.used(state, at), at)
    }

    /// Converts `state` of `old`, the same algorithm with other parameters, with each permit in use scaled by `scale`
    /// and kept at the time when it was used. `None` where those times have no meaning under this rule: then the sum is
    /// scaled, as if it were all used now.
    fn rescale(
        &self,
        _old: &Self,
        _: &Self::State,
        _: Scale,
        _: &Moment<'_>,
    ) -> Option<Self::State> {
        None
    }

    /// Returns whether it hands out permits with ids (`acquire`) instead of answering `check`.
    fn holds_permits(&self) -> bool {
        false
    }

    /// Ends the hold of `permit` and returns its cost; `None` if it is not held.
    fn release(&self, _: &mut Self::State, _: PermitId, _: &Moment<'_>) -> Option<u64> {
        None
    }

    /// Lets the hold of `permit` begin anew and returns its cost; `None` if it is not held.
    fn renew(&self, _: &mut Self::State, _: PermitId, _: &Moment<'_>) -> Option<u64> {
        None
    }

    /// Returns whether `permit` is held at this moment.
    fn holds(&self, _: &Self::State, _: PermitId, _: &Moment<'_>) -> bool {
        false
    }

    /// Gives `ask`, which did not pass, a ticket of `process` in the queue, or keeps it. Returns whether it has one.
    fn enqueue(
        &self,
        _: &mut Option<Self::State>,
        _: &Ask,
        _process: ProcessId,
        _: &Moment<'_>,
    ) -> bool {
        false
    }

    /// Removes the ticket of `process` for `permit`. Returns whether there was one.
    fn leave(&self, _: &mut Self::State, _: PermitId, _process: ProcessId) -> bool {
        false
    }

    /// The first requests in the queue that would pass now, at most [`CALLED_MAX`](crate::limits::CALLED_MAX).
    fn called(&self, _: &Self::State, _: &Moment<'_>) -> Vec<Called> {
        Vec::new()
    }

    /// The calendar and time zone whose window a moment must bring along.
    fn calendar(&self) -> Option<(CalendarUnit, &str)> {
        None
    }

    /// The state in 16 bytes, for stores that keep millions of them; `None` if this algorithm's states do not fit.
    /// [`unpack`](Self::unpack) restores all of it.
    fn pack(_: &Self::State) -> Option<u128> {
        None
    }

    /// Returns the state that [`pack`](Self::pack) packed in these 16 bytes; `None` if it packs none.
    fn unpack(_: u128) -> Option<Self::State> {
        None
    }

    /// Returns whether a reservation books the future in one step (otherwise the caller tries again).
    fn books(&self) -> bool {
        false
    }

    /// Returns this rule at another rate; `None` if it has no rate.
    ///
    /// # Errors
    /// [`RangeError`] if the other parameters do not go with it.
    fn with_rate(&self, _: Rate) -> Option<Result<Self, RangeError>> {
        None
    }

    /// The numbers that the twin needs about this rule, in its order. Equal rules have equal numbers.
    fn numbers(&self) -> Vec<f64>;

    /// Appends `state` as the twin packs it.
    fn write_state(&self, state: &Self::State, out: &mut Vec<u8>);

    /// Appends `state` as the twin packs it for a policy of one rule, where its length is known.
    fn write_only_state(&self, state: &Self::State, out: &mut Vec<u8>) {
        self.write_state(state, out);
    }

    /// Reads what [`write_state`](Self::write_state) appended, and leaves in `from` what comes
    /// behind it. `None` if no key under this rule can have a state with these bytes.
    fn read_state(&self, from: &mut &[u8]) -> Option<Self::State>;

    /// Reads what [`write_only_state`](Self::write_only_state) appended, likewise.
    fn read_only_state(&self, from: &mut &[u8]) -> Option<Self::State> {
        self.read_state(from)
    }
}

/// Returns the time until a budget that was used up at once is full again.
fn refilled_in<A: Algorithm>(rule: &A) -> Option<Micros> {
    let used_up = rule.with_used(rule.limit(), &Moment::new(Micros::ZERO))?;
    Some(rule.full_at(&used_up))
}

/// The ratio of a new limit to an old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The new limit, in permits or in units: at least 1.
    pub to: u64,
    /// The old one, in the same: at least 1.
    pub from: u64,
}

impl Scale {
    /// `used · to / from`, rounded up, and at most [`UNITS_MAX`].
    pub fn of(self, used: u64) -> u64 {
        let product = u128::from(used.min(UNITS_MAX)) * u128::from(self.to);
        let scaled = product.div_ceil(u128::from(self.from));
        u64::try_from(scaled).unwrap_or(UNITS_MAX).min(UNITS_MAX)
    }
}

/// One rule's check on a state of 16 bytes, without a detour through the enums over all
/// algorithms: what [`RuleSet::decide`](crate::RuleSet::decide) does with a set of this one rule.
/// `None` if this algorithm's states do not fit.
#[inline]
pub(crate) fn check_packed<A: Algorithm>(
    rule: &A,
    packed: Option<u128>,
    ask: &Ask,
    at: &Moment<'_>,
) -> Option<(Decision, Option<u128>)> {
    A::unpack(0)?;
    let mut state = packed.and_then(A::unpack);
    if let Some(state) = &mut state {
        rule.rewind(state, at);
    }
    let outcome = rule.check(state.as_ref(), ask, at);
    match outcome {
        Outcome::Allow { .. } => rule.charge(&mut state, ask, at),
        Outcome::Deny { .. } if state.is_none() => state = rule.first_seen(at),
        Outcome::Deny { .. } => {}
    }
    let Status { remaining, reset_after } = rule.status(state.as_ref(), at);
    let decision = Decision { outcome, limit: rule.limit(), remaining, reset_after };
    Some((decision, state.as_ref().and_then(A::pack)))
}

/// Two words in 16 bytes.
pub(crate) const fn pack_words(low: u64, high: u64) -> u128 {
    low as u128 | (high as u128) << 64
}

/// The two words that [`pack_words`] packed, low and high.
#[expect(clippy::cast_possible_truncation, reason = "the two halves of 128 bits")]
pub(crate) const fn unpack_words(packed: u128) -> (u64, u64) {
    (packed as u64, (packed >> 64) as u64)
}
