//! What wants a decision, and the decision as it is answered.

use sluicegate::{Answer, DecideError, Micros, Mode, Request, Verb};

use super::refusal::Refusal;
use super::reply::Replies;
use super::throttle::{self, Limit};
use crate::say;

/// A request for a decision: by a policy, or by what the caller says is the limit.
#[derive(Debug)]
pub(crate) struct Question<'a> {
    /// What is asked.
    pub(crate) request: Request<'a>,
    /// The limit that `CL.THROTTLE` says.
    pub(crate) limit: Option<Limit>,
}

impl Question<'_> {
    /// Whether it matters if this is decided before or after its neighbours: what takes permits away
    /// from a key may come in any order, all get what there is. What gives some back may not.
    pub(crate) const fn keeps_its_place(&self) -> bool {
        match self.request.verb {
            Verb::Check { .. } | Verb::Reserve { .. } | Verb::AtMost { .. } | Verb::Peek { .. } => {
                false
            }
            Verb::Refund { .. }
            | Verb::Reset
            | Verb::Acquire { .. }
            | Verb::Release { .. }
            | Verb::Renew { .. } => true,
        }
    }

    /// Writes what was decided, or why nothing was.
    pub(crate) fn reply(&self, decided: &Result<Answer, DecideError>, replies: &mut Replies) {
        match (decided, self.limit) {
            (Ok(answer), Some(limit)) => {
                throttle::reply(limit, &self.request.verb, &answer.decision, replies);
            }
            (Ok(answer), None) => reply(answer, replies),
            (Err(DecideError::UnknownPolicy(_) | DecideError::Unconfigured { .. }), _) => {
                unconfigured(replies);
            }
            (Err(error), _) => replies.refusal(&Refusal::err(say::decide_error(error))),
        }
    }
}

/// The array that `SG.*` is answered with; the essay of the wire says what is in it.
fn reply(answer: &Answer, replies: &mut Replies) {
    let decision = &answer.decision;
    replies.array(8);
    if decision.allowed() {
        replies.integer(1);
    } else {
        replies.negative(1);
    }
    replies.integer(decision.limit);
    replies.integer(decision.remaining);
    match decision.retry_after() {
        Some(retry_after) => replies.integer(millis(retry_after)),
        None => replies.negative(1),
    }
    replies.integer(millis(decision.reset_after));
    replies.integer(millis(decision.wait()));
    replies.bulk(answer.rule().as_bytes());
    replies.bulk(match answer.mode {
        Mode::Store | Mode::Remembered => b"store",
        Mode::Local => b"local",
        Mode::Allow => b"allow",
        Mode::Deny => b"deny",
    });
}

/// The same where no rule holds for whoever asks.
fn unconfigured(replies: &mut Replies) {
    replies.array(8);
    for number in [0, 0, 0] {
        replies.integer(number);
    }
    replies.negative(1);
    for number in [0, 0] {
        replies.integer(number);
    }
    replies.null();
    replies.null();
}

/// Whole milliseconds, rounded up.
const fn millis(span: Micros) -> u64 {
    span.get().div_ceil(1_000)
}
