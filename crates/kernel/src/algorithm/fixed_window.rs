//! The fixed window.
//!
//! **What it remembers**: how much was granted in the window, and when that window ends.
//!
//! **Worked example**: `limit 2, window 1m, align epoch`. Windows begin at full minutes.
//!
//! | at | count before | answer |
//! |---|---|---|
//! | 12:00:10 | 0 | pass |
//! | 12:00:50 | 1 | pass |
//! | 12:00:59 | 2 | refused, retry in 1 s |
//! | 12:01:00 | 0 | pass: a new window |
//!
//! **Property**: at most `limit` in one window. **Not** in every interval of that length: around a
//! boundary up to twice the limit passes in a moment. Where that matters use `sliding_window`.
//!
//! ```text
//! limit ┤      ┌──┐        ┌─────
//!       │   ┌──┘  │      ┌─┘
//!     0 ┼───┘     └──────┘        ──▶ time
//!       |  window |  window |
//! ```
//!
//! `align: first` lets a key's window begin with its first request. `calendar: month` makes it a
//! month of `time_zone`; where it begins and ends comes with the moment (the kernel knows no zones).

use alloc::borrow::ToOwned;
use alloc::boxed::Box;

use alloc::vec;
use alloc::vec::Vec;

use super::{Algorithm, Leasing, Scale, pack_words, unpack_words};
use crate::decision::{Ask, Left, Moment, Outcome, Retry, Status, Window, fnv_1a};
use crate::limits::{PERIOD_MAX_US, PERMITS_MAX, UNITS_MAX};
use crate::num::{Micros, put, take, take_instant};
use crate::param::{Kind, Param, Params, RangeError, within};

/// At most `limit` permits per window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    kind: WindowKind,
}

/// The instants at which windows begin.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WindowKind {
    /// At multiples of this span since the epoch.
    Epoch(Micros),
    /// With a key's first request; it lasts this long.
    First(Micros),
    /// With the day, week, month or year of a time zone.
    Calendar(CalendarUnit, Box<str>),
}

/// A unit of the calendar. Weeks begin on Monday (ISO 8601).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CalendarUnit {
    /// Midnight to midnight.
    Day,
    /// Monday to Monday.
    Week,
    /// First to first.
    Month,
    /// 1 January to 1 January.
    Year,
}

/// The state of a fixed window for one key: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindowState {
    count: u64,
    end: Micros,
}

impl FixedWindow {
    /// At most `limit` permits per window of this length. Windows begin at multiples of it since the epoch.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn epoch(limit: u64, length: impl Into<Micros>) -> Result<Self, RangeError> {
        Self::new(limit, WindowKind::Epoch(length.into()))
    }

    /// At most `limit` permits per window of this length. A window begins with a key's first request.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn first(limit: u64, length: impl Into<Micros>) -> Result<Self, RangeError> {
        Self::new(limit, WindowKind::First(length.into()))
    }

    /// At most `limit` permits per window of `kind`.
    ///
    /// # Errors
    /// [`RangeError`] unless `1 <= limit <= 2^32` and the window is 1 µs to 366 days long.
    pub fn new(limit: u64, kind: WindowKind) -> Result<Self, RangeError> {
        within("limit", limit, 1, PERMITS_MAX)?;
        if let WindowKind::Epoch(span) | WindowKind::First(span) = &kind {
            within("window in µs", span.get(), 1, PERIOD_MAX_US)?;
        }
        Ok(Self { limit, kind })
    }

    /// The kind of its windows: it says at which instants they begin.
    pub const fn kind(&self) -> &WindowKind {
        &self.kind
    }

    /// The window around this moment for a key whose state is `state`.
    fn window(&self, state: Option<&FixedWindowState>, at: &Moment<'_>) -> Window {
        let now = at.now();
        match &self.kind {
            WindowKind::Epoch(span) => {
                let start = Micros::new(now.get() - now.get() % span.get());
                Window { start, end: start.plus(*span) }
            }
            WindowKind::First(span) => match state {
                Some(state) if now < state.end && state.count > 0 => Window {
                    start: Micros::new(state.end.get().saturating_sub(span.get())),
                    end: state.end,
                },
                _ => Window { start: now, end: now.plus(*span) },
            },
            WindowKind::Calendar(..) => {
                let window = at.window();
                let window = window.expect("whoever reads the clock brings the window along");
                if now < window.end { window } else { Self::next_window(window, state, now) }
            }
        }
    }

    /// The window after `window`, which ended while the caller waited for its turn. If no request has counted in it
    /// yet, its end is not known: it is taken to be late enough, and the next moment that brings the window along
    /// corrects it (as for [`rewind`](Algorithm::rewind)).
    fn next_window(window: Window, state: Option<&FixedWindowState>, now: Micros) -> Window {
        let end = match state {
            Some(state) if now < state.end => state.end,
            // No day, month or year is twice as long as the one before it.
            _ => {
                window.end.plus(window.end.since(window.start)).plus(window.end.since(window.start))
            }
        };
        Window { start: window.end, end }
    }

    fn count(&self, state: Option<&FixedWindowState>, at: &Moment<'_>) -> u64 {
        state.map_or(0, |state| if at.now() < state.end { state.count } else { 0 })
    }
}

impl Algorithm for FixedWindow {
    type State = FixedWindowState;

    const NAME: &'static str = "fixed_window";
    const CODE: u8 = 5;
    const TWIN: &'static str = include_str!("fixed_window.lua");
    const ABOUT: &'static str =
        "At most `limit` per window; around a window boundary up to twice the limit can pass.";
    const PARAMS: &'static [Param] = &[
        Param {
            name: "limit",
            kind: Kind::Permits { min: 1, max: PERMITS_MAX },
            default: None,
            about: "Permits per window.",
        },
        Param {
            name: "window",
            kind: Kind::Span,
            default: Some("required unless `calendar` is given"),
            about: "Length of a window.",
        },
        Param {
            name: "align",
            kind: Kind::Word(&["epoch", "first"]),
            default: Some("epoch"),
            about: "Windows start at multiples of their length, or at a key's first request.",
        },
        Param {
            name: "calendar",
            kind: Kind::Word(&["day", "week", "month", "year"]),
            default: Some("none"),
            about: "Calendar unit, instead of `window`.",
        },
        Param {
            name: "time_zone",
            kind: Kind::TimeZone,
            default: Some("UTC"),
            about: "Time zone of `calendar`.",
        },
    ];

    fn from_params(params: &Params) -> Result<Self, RangeError> {
        let limit = params.permits("limit", None)?;
        if !params.has("calendar") {
            if params.has("time_zone") {
                return Err(RangeError::new("time_zone", "requires `calendar`"));
            }
            let span = params.span("window", None)?;
            return Self::new(
                limit,
                match params.word("align", "epoch")? {
                    "first" => WindowKind::First(span),
                    _ => WindowKind::Epoch(span),
                },
            );
        }
        for other in ["window", "align"] {
            if params.has(other) {
                return Err(RangeError::new(other, "cannot be combined with `calendar`"));
            }
        }
        let unit = match params.word("calendar", "day")? {
            "week" => CalendarUnit::Week,
            "month" => CalendarUnit::Month,
            "year" => CalendarUnit::Year,
            _ => CalendarUnit::Day,
        };
        let zone = params.word("time_zone", "UTC")?.to_owned().into_boxed_str();
        Self::new(limit, WindowKind::Calendar(unit, zone))
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn check(&self, state: Option<&FixedWindowState>, ask: &Ask, at: &Moment<'_>) -> Outcome {
        let cost = ask.cost;
        if cost > self.limit {
            return Outcome::Deny { retry: Retry::Never };
        }
        if self.count(state, at) + cost <= self.limit {
            return Outcome::Allow { granted: cost, wait: Micros::ZERO };
        }
        let retry = self.window(state, at).end.since(at.now());
        Outcome::Deny { retry: Retry::After(retry) }
    }

    fn charge(&self, state: &mut Option<FixedWindowState>, ask: &Ask, at: &Moment<'_>) {
        let count = self.count(state.as_ref(), at) + ask.cost;
        *state = Some(FixedWindowState { count, end: self.window(state.as_ref(), at).end });
    }

    fn available(&self, state: Option<&FixedWindowState>, at: &Moment<'_>) -> u64 {
        self.limit.saturating_sub(self.count(state, at))
    }

    fn status(&self, state: Option<&FixedWindowState>, at: &Moment<'_>) -> Status {
        let count = self.count(state, at);
        let reset_after = match count {
            0 => Micros::ZERO,
            _ => self.window(state, at).end.since(at.now()),
        };
        Status { remaining: self.limit.saturating_sub(count), reset_after }
    }

    /// Reads only the window in the state: the present one of a calendar is not available here.
    fn left(&self, state: &FixedWindowState, now: Micros) -> Left {
        let is_over = state.end <= now;
        if is_over {
            Left::ALL
        } else {
            Left::of(self.limit.saturating_sub(state.count), self.limit)
        }
    }

    fn refund(&self, state: &mut FixedWindowState, permits: u64, at: &Moment<'_>) -> u64 {
        let back = self.count(Some(state), at).min(permits);
        if back > 0 {
            state.count -= back;
        }
        back
    }

    /// The window that is running now takes the count over.
    fn rewind(&self, state: &mut FixedWindowState, at: &Moment<'_>) {
        let window = match &self.kind {
            WindowKind::First(span) => Window { start: at.now(), end: at.now().plus(*span) },
            _ => self.window(None, at),
        };
        state.end = state.end.min(window.end);
    }

    fn full_at(&self, state: &FixedWindowState) -> Micros {
        if state.count == 0 { Micros::ZERO } else { state.end }
    }

    fn window(&self) -> Option<Micros> {
        // A month is not as long as the next, nor is a day where clocks change.
        self.calendar().is_none().then(|| super::refilled_in(self)).flatten()
    }

    fn leasing(&self) -> Leasing {
        match &self.kind {
            WindowKind::Epoch(span) | WindowKind::First(span) => Leasing::window(*span),
            // Some are an hour or some days shorter or longer; leases of two seconds need no more.
            WindowKind::Calendar(unit, _) => Leasing::Steps(Micros::from_secs(match unit {
                CalendarUnit::Day => 86_400,
                CalendarUnit::Week => 7 * 86_400,
                CalendarUnit::Month => 28 * 86_400,
                CalendarUnit::Year => 365 * 86_400,
            })),
        }
    }

    /// The beginning of the window. A calendar's comes with the moment.
    fn seen(&self, state: &FixedWindowState) -> Micros {
        match &self.kind {
            WindowKind::Epoch(span) | WindowKind::First(span) => {
                Micros::new(state.end.get().saturating_sub(span.get()))
            }
            WindowKind::Calendar(..) => Micros::ZERO,
        }
    }

    fn forget(&self, state: &mut FixedWindowState, at: &Moment<'_>) {
        if state.end <= at.now() {
            *state = FixedWindowState { count: 0, end: self.window(None, at).end };
        }
    }

    fn used(&self, state: &FixedWindowState, at: &Moment<'_>) -> u64 {
        self.count(Some(state), at)
    }

    fn with_used(&self, used: u64, at: &Moment<'_>) -> Option<FixedWindowState> {
        Some(FixedWindowState { count: used, end: self.window(None, at).end })
    }

    /// Keeps the end under the same kind of window; another window takes the count over.
    fn convert(
        &self,
        old: &Self,
        state: &FixedWindowState,
        at: &Moment<'_>,
    ) -> Option<FixedWindowState> {
        if self.kind == old.kind { Some(*state) } else { self.with_used(old.used(state, at), at) }
    }

    /// Scales the count and keeps the end; `None` if the kind of window differs.
    fn rescale(
        &self,
        old: &Self,
        state: &FixedWindowState,
        scale: Scale,
        _: &Moment<'_>,
    ) -> Option<FixedWindowState> {
        let same = self.kind == old.kind;
        same.then(|| FixedWindowState { count: scale.of(state.count), end: state.end })
    }

    fn calendar(&self) -> Option<(CalendarUnit, &str)> {
        match &self.kind {
            WindowKind::Calendar(unit, zone) => Some((*unit, zone)),
            _ => None,
        }
    }

    fn numbers(&self) -> Vec<f64> {
        let limit = self.limit as f64;
        match &self.kind {
            WindowKind::Epoch(span) => vec![limit, 0.0, span.get() as f64, 0.0, 0.0],
            WindowKind::First(span) => vec![limit, 1.0, span.get() as f64, 0.0, 0.0],
            WindowKind::Calendar(unit, zone) => {
                let unit = f64::from(*unit as u8);
                // Zones are only distinguished: 48 bits of a hash are exact in a double.
                let zone = fnv_1a(zone.as_bytes()) & ((1 << 48) - 1);
                vec![limit, 2.0, 0.0, unit, zone as f64]
            }
        }
    }

    fn write_state(&self, state: &FixedWindowState, out: &mut Vec<u8>) {
        put(out, state.count, 7);
        put(out, state.end.get(), 7);
    }

    fn read_state(&self, from: &mut &[u8]) -> Option<FixedWindowState> {
        let count = take(from, 7).filter(|count| *count <= UNITS_MAX)?;
        Some(FixedWindowState { count, end: take_instant(from)? })
    }

    #[inline]
    fn pack(state: &FixedWindowState) -> Option<u128> {
        let FixedWindowState { count, end } = *state;
        Some(pack_words(count, end.get()))
    }

    #[inline]
    fn unpack(packed: u128) -> Option<FixedWindowState> {
        let (count, end) = unpack_words(packed);
        Some(FixedWindowState { count, end: Micros::new(end) })
    }
}
