//! The leasing of a rule: how its permits come back.

use crate::num::Micros;

/// The way in which leased permits of a rule come back, or the reason why they cannot be leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leasing {
    /// They come back continuously, the whole limit in this span.
    Flows(Micros),
    /// They come back in steps, the whole limit in this span.
    Steps(Micros),
    /// They come back as a window slides: those that a holder has not used in it count against the next one.
    Slides {
        /// The window.
        span: Micros,
        /// The window moves in steps.
        in_steps: bool,
    },
    /// They cannot be leased; a clause about the rule that gives the reason.
    Never(&'static str),
}

impl Leasing {
    /// The leasing of a rule of windows of this length. In windows shorter than a second, too much of each limit would
    /// lie with holders that do not use it in time.
    pub(crate) fn window(length: Micros) -> Self {
        match length {
            long if long >= Micros::SECOND => Self::Steps(long),
            _ => Self::Never("whose window of less than 1 s is too short to lease"),
        }
    }

    /// The leasing of a rule of a sliding window of this length. Permits that a holder has not used count against the
    /// whole next window, and ten seconds are enough to use them.
    pub(crate) fn sliding_window(length: Micros, in_steps: bool) -> Self {
        match length {
            span if span >= Micros::from_secs(10) => Self::Slides { span, in_steps },
            _ => Self::Never("whose window of less than 10 s is too short to lease"),
        }
    }

    /// Returns whether permits of the rule can be leased.
    pub const fn is_possible(&self) -> bool {
        !matches!(self, Self::Never(_))
    }
}
