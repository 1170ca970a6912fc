//! [`Rule`] and [`State`]: enums over all algorithms, whose methods forward to the right one. A macro writes them from
//! the list of algorithms, one line for each, which is near the end of this file.

use alloc::vec::Vec;

use super::{
    Algorithm, CalendarUnit, Concurrency, FixedWindow, LeakyBucket, Leasing, Scale, SlidingCounter,
    SlidingLog, SlidingWindow, SmoothBursty, SmoothWarmup, TokenBucket, check_packed,
};
use crate::decision::{Ask, Called, Decision, Left, Moment, Outcome, PermitId, ProcessId, Status};
use crate::num::{Micros, Rate};
use crate::param::{Param, Params, RangeError};

/// An algorithm, as documents and schemas show it.
#[derive(Clone, Copy, Debug)]
pub struct AlgorithmInfo {
    /// The name in documents.
    pub name: &'static str,
    /// A sentence about it.
    pub about: &'static str,
    /// The parameters, in the order of the documentation.
    pub params: &'static [Param],
}

/// Writes the enums over all algorithms and forwards each call to the right one.
macro_rules! algorithms {
    ($($Name:ident,)+) => {
        /// One limit: an algorithm with its parameters.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Rule {
            $(
                #[doc = concat!("See [`", stringify!($Name), "`].")]
                $Name($Name),
            )+
        }

        /// The state of a rule for one key.
        #[derive(Clone, Debug, PartialEq)]
        pub enum State {
            $(
                #[doc = concat!("Of a [`", stringify!($Name), "`].")]
                $Name(<$Name as Algorithm>::State),
            )+
        }

        $(
            impl From<$Name> for Rule {
                fn from(rule: $Name) -> Self {
                    Self::$Name(rule)
                }
            }
        )+

        /// Name, sentence and parameters of every algorithm, for documents and schemas.
        pub fn algorithms() -> &'static [AlgorithmInfo] {
            &[$(AlgorithmInfo {
                name: $Name::NAME,
                about: $Name::ABOUT,
                params: $Name::PARAMS,
            },)+]
        }

        /// Code, name and twin in Lua of every algorithm, for stores that decide where the state lives.
        pub fn twins() -> &'static [(u8, &'static str, &'static str)] {
            &[$(($Name::CODE, $Name::NAME, $Name::TWIN),)+]
        }

        impl Rule {
            /// The rule of the algorithm called `name`; `None` if there is no such algorithm.
            pub fn from_params(name: &str, params: &Params) -> Option<Result<Self, RangeError>> {
                match name {
                    $($Name::NAME => Some($Name::from_params(params).map(Self::from)),)+
                    _ => None,
                }
            }

            /// The name of its algorithm.
            pub fn algorithm(&self) -> &'static str {
                match self { $(Self::$Name(_) => $Name::NAME,)+ }
            }

            /// See [`Algorithm::limit`].
            pub fn limit(&self) -> u64 {
                match self { $(Self::$Name(rule) => rule.limit(),)+ }
            }

            /// See [`Algorithm::check`].
            pub fn check(&self, state: Option<&State>, ask: &Ask, at: &Moment<'_>) -> Outcome {
                match self { $(Self::$Name(rule) => rule.check(own!($Name, state), ask, at),)+ }
            }

            /// See [`Algorithm::charge`].
            pub fn charge(&self, state: &mut Option<State>, ask: &Ask, at: &Moment<'_>) {
                match self { $(Self::$Name(rule) => {
                    let mut own = own!($Name, state.take());
                    rule.charge(&mut own, ask, at);
                    *state = own.map(State::$Name);
                })+ }
            }

            /// See [`Algorithm::first_seen`].
            pub fn first_seen(&self, at: &Moment<'_>) -> Option<State> {
                match self { $(Self::$Name(rule) => rule.first_seen(at).map(State::$Name),)+ }
            }

            /// See [`Algorithm::available`].
            pub fn available(&self, state: Option<&State>, at: &Moment<'_>) -> u64 {
                match self { $(Self::$Name(rule) => rule.available(own!($Name, state), at),)+ }
            }

            /// See [`Algorithm::status`].
            pub fn status(&self, state: Option<&State>, at: &Moment<'_>) -> Status {
                match self { $(Self::$Name(rule) => rule.status(own!($Name, state), at),)+ }
            }

            /// See [`Algorithm::left`].
            pub fn left(&self, state: &State, now: Micros) -> Left {
                match (self, state) {
                    $((Self::$Name(rule), State::$Name(own)) => rule.left(own, now),)+
                    _ => Left::ALL,
                }
            }

            /// See [`Algorithm::refund`].
            pub fn refund(&self, state: &mut State, permits: u64, at: &Moment<'_>) -> u64 {
                match (self, state) {
                    $((Self::$Name(rule), State::$Name(own)) => rule.refund(own, permits, at),)+
                    _ => 0,
                }
            }

            /// See [`Algorithm::rewind`].
            pub fn rewind(&self, state: &mut State, at: &Moment<'_>) {
                match (self, state) {
                    $((Self::$Name(rule), State::$Name(own)) => rule.rewind(own, at),)+
                    _ => {}
                }
            }

            /// See [`Algorithm::full_at`].
            pub fn full_at(&self, state: &State) -> Micros {
                match (self, state) {
                    $((Self::$Name(rule), State::$Name(own)) => rule.full_at(own),)+
                    _ => Micros::ZERO,
                }
            }

            /// See [`Algorithm::window`].
            pub fn window(&self) -> Option<Micros> {
                match self { $(Self::$Name(rule) => rule.window(),)+ }
            }

            /// See [`Algorithm::full_is_fresh`].
            pub fn full_is_fresh(&self) -> bool {
                match self { $(Self::$Name(rule) => rule.full_is_fresh(),)+ }
            }

            /// See [`Algorithm::leasing`].
            pub fn leasing(&self) -> Leasing {
                match self { $(Self::$Name(rule) => rule.leasing(),)+ }
            }

            /// See [`Algorithm::seen`].
            pub fn seen(&self, state: &State) -> Micros {
                match (self, state) {
                    $((Self::$Name(rule), State::$Name(own)) => rule.seen(own),)+
                    _ => Micros::ZERO,
                }
            }

            /// See [`Algorithm::forget`].
            pub fn forget(&self, state: &mut State, at: &Moment<'_>) {
                match (self, state) {
                    $((Self::$Name(rule), State::$Name(own)) => rule.forget(own, at),)+
                    _ => {}
                }
            }

            /// See [`Algorithm::countable`].
            pub fn countable(&self) -> u64 {
                match self { $(Self::$Name(rule) => rule.countable(),)+ }
            }

            /// See [`Algorithm::used`].
            pub fn used(&self, state: &State, at: &Moment<'_>) -> u64 {
                match (self, state) {
                    $((Self::$Name(rule), State::$Name(own)) => rule.used(own, at),)+
                    _ => 0,
                }
            }

            /// See [`Algorithm::with_used`].
            pub fn with_used(&self, used: u64, at: &Moment<'_>) -> Option<State> {
                match self { $(Self::$Name(rule) => rule.with_used(used, at).map(State::$Name),)+ }
            }

            /// See [`Algorithm::convert`]; from another algorithm only the usage is taken over.
            pub fn convert(&self, old: &Self, state: &State, at: &Moment<'_>) -> Option<State> {
                match (self, old, state) {
                    $((Self::$Name(rule), Self::$Name(old), State::$Name(own)) => {
                        rule.convert(old, own, at).map(State::$Name)
                    })+
                    _ => self.with_used(old.used(state, at), at),
                }
            }

            /// See [`Algorithm::rescale`]; `None` for another algorithm.
            pub fn rescale(
                &self,
                old: &Self,
                state: &State,
                scale: Scale,
                at: &Moment<'_>,
            ) -> Option<State> {
                match (self, old, state) {
                    $((Self::$Name(rule), Self::$Name(old), State::$Name(own)) => {
                        rule.rescale(old, own, scale, at).map(State::$Name)
                    })+
                    _ => None,
                }
            }

            /// See [`Algorithm::holds_permits`].
            pub fn holds_permits(&self) -> bool {
                match self { $(Self::$Name(rule) => rule.holds_permits(),)+ }
            }

            /// See [`Algorithm::release`].
            pub fn release(&self, state: &mut State, id: PermitId, at: &Moment<'_>) -> Option<u64> {
                match (self, state) {
                    $((Self::$Name(rule), State::$Name(own)) => rule.release(own, id, at),)+
                    _ => None,
                }
            }

            /// See [`Algorithm::renew`].
            pub fn renew(&self, state: &mut State, id: PermitId, at: &Moment<'_>) -> Option<u64> {
                match (self, state) {
                    $((Self::$Name(rule), State::$Name(own)) => rule.renew(own, id, at),)+
                    _ => None,
                }
            }

            /// See [`Algorithm::holds`].
            pub fn holds(&self, state: &State, id: PermitId, at: &Moment<'_>) -> bool {
                match (self, state) {
                    $((Self::$Name(rule), State::$Name(own)) => rule.holds(own, id, at),)+
                    _ => false,
                }
            }

            /// See [`Algorithm::enqueue`].
            pub fn enqueue(
                &self,
                state: &mut Option<State>,
                ask: &Ask,
                process: ProcessId,
                at: &Moment<'_>,
            ) -> bool {
                match self { $(Self::$Name(rule) => {
                    let mut own = own!($Name, state.take());
                    let has_ticket = rule.enqueue(&mut own, ask, process, at);
                    *state = own.map(State::$Name);
                    has_ticket
                })+ }
            }

            /// See [`Algorithm::leave`].
            pub fn leave(&self, state: &mut State, id: PermitId, process: ProcessId) -> bool {
                match (self, state) {
                    $((Self::$Name(rule), State::$Name(own)) => rule.leave(own, id, process),)+
                    _ => false,
                }
            }

            /// See [`Algorithm::called`].
            pub fn called(&self, state: &State, at: &Moment<'_>) -> Vec<Called> {
                match (self, state) {
                    $((Self::$Name(rule), State::$Name(own)) => rule.called(own, at),)+
                    _ => Vec::new(),
                }
            }

            /// See [`Algorithm::calendar`].
            pub fn calendar(&self) -> Option<(CalendarUnit, &str)> {
                match self { $(Self::$Name(rule) => rule.calendar(),)+ }
            }

            /// See [`check_packed`].
            #[inline]
            pub(crate) fn check_packed(
                &self,
                packed: Option<u128>,
                ask: &Ask,
                at: &Moment<'_>,
            ) -> Option<(Decision, Option<u128>)> {
                match self { $(Self::$Name(rule) => check_packed(rule, packed, ask, at),)+ }
            }

            /// See [`Algorithm::unpack`].
            #[inline]
            pub fn unpack(&self, packed: u128) -> Option<State> {
                match self { $(Self::$Name(_) => $Name::unpack(packed).map(State::$Name),)+ }
            }

            /// See [`Algorithm::books`].
            pub fn books(&self) -> bool {
                match self { $(Self::$Name(rule) => rule.books(),)+ }
            }

            /// See [`Algorithm::with_rate`].
            ///
            /// # Errors
            /// [`RangeError`] if the rule's other parameters do not go with the rate.
            pub fn with_rate(&self, rate: Rate) -> Option<Result<Self, RangeError>> {
                match self { $(Self::$Name(rule) => {
                    rule.with_rate(rate).map(|changed| changed.map(Self::$Name))
                })+ }
            }

            /// See [`Algorithm::CODE`].
            pub fn code(&self) -> u8 {
                match self { $(Self::$Name(_) => $Name::CODE,)+ }
            }

            /// See [`Algorithm::numbers`].
            pub fn numbers(&self) -> Vec<f64> {
                match self { $(Self::$Name(rule) => rule.numbers(),)+ }
            }

            /// See [`Algorithm::write_state`].
            pub fn write_state(&self, state: &State, out: &mut Vec<u8>) {
                match (self, state) {
                    $((Self::$Name(rule), State::$Name(own)) => rule.write_state(own, out),)+
                    _ => {}
                }
            }

            /// See [`Algorithm::write_only_state`].
            pub fn write_only_state(&self, state: &State, out: &mut Vec<u8>) {
                match (self, state) {
                    $((Self::$Name(rule), State::$Name(own)) => rule.write_only_state(own, out),)+
                    _ => {}
                }
            }

            /// See [`Algorithm::read_state`].
            pub fn read_state(&self, from: &mut &[u8]) -> Option<State> {
                match self { $(Self::$Name(rule) => rule.read_state(from).map(State::$Name),)+ }
            }

            /// See [`Algorithm::read_only_state`].
            pub fn read_only_state(&self, from: &mut &[u8]) -> Option<State> {
                match self { $(Self::$Name(rule) => rule.read_only_state(from).map(State::$Name),)+ }
            }
        }

        impl State {
            /// See [`Algorithm::heap_bytes`].
            pub fn heap_bytes(&self) -> usize {
                match self { $(Self::$Name(own) => $Name::heap_bytes(own),)+ }
            }

            /// See [`Algorithm::pack`].
            #[inline]
            pub fn pack(&self) -> Option<u128> {
                match self { $(Self::$Name(own) => $Name::pack(own),)+ }
            }
        }
    };
}

/// The state of this algorithm; `None` if the stored one belongs to another algorithm.
macro_rules! own {
    ($Name:ident, $stored:expr) => {
        match $stored {
            Some(State::$Name(own)) => Some(own),
            _ => None,
        }
    };
}

algorithms! {
    TokenBucket,
    SmoothBursty,
    SmoothWarmup,
    LeakyBucket,
    FixedWindow,
    SlidingWindow,
    SlidingCounter,
    SlidingLog,
    Concurrency,
}

impl Rule {
    /// The answer `outcome`, with what is left of the budget.
    pub fn report(&self, state: Option<&State>, outcome: Outcome, at: &Moment<'_>) -> Decision {
        let Status { remaining, reset_after } = self.status(state, at);
        Decision { outcome, limit: self.limit(), remaining, reset_after }
    }
}
