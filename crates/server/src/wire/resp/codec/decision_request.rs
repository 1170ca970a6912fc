//! Requests for decisions, and the replies to them.

use sluicegate::{Admission, DecideError, Disposition, Micros, Mode, Request, Verb};
use sluicegate_policy::{Fallback, Rules};
use sluicegate_text::terminal;

use super::caller_rules::{CallerLimits, CallerRuleCache};
use super::error_reply::ErrorReply;
use super::reply::Replies;
use super::throttle_limit::{self, ConnectionRuleCache, ThrottleLimit};
use crate::authenticator::{Caller, CallerError};
use crate::verbs::VerbName;

/// A request for a decision: by a policy, or by limits that the caller sends.
#[derive(Debug)]
pub(crate) struct DecisionRequest<'a> {
    /// The request; under limits that the caller sends, see [`under`](Self::under).
    pub(crate) request: Request<'a>,
    /// The limits that the caller sends.
    pub(super) sent: SentLimits<'a>,
}

/// The limits that a caller sends.
#[derive(Debug)]
pub(super) enum SentLimits<'a> {
    /// None: the request names a policy.
    None,
    /// The limit of `CL.THROTTLE`.
    Throttle(ThrottleLimit),
    /// The limits of the option `RULES`. In a box, so that other requests are as short as before.
    Rules(Box<CallerLimits<'a>>),
}

impl<'a> DecisionRequest<'a> {
    /// Makes this a request of `caller`, if it is permitted.
    #[inline]
    pub(crate) fn asked_by(&mut self, caller: &'a Caller) -> Result<(), CallerError> {
        match self.sent {
            // Also if it only peeks.
            SentLimits::Throttle(_) => caller.ask_for(VerbName::Check, &mut self.request),
            SentLimits::None | SentLimits::Rules(_) => caller.ask(&mut self.request),
        }
    }

    /// Reads the rules that the caller sends, if there are any and `known` has not read them.
    #[inline]
    pub(crate) fn read_rules(&mut self, known: &CallerRuleCache) -> Result<(), ErrorReply> {
        match &mut self.sent {
            SentLimits::None | SentLimits::Throttle(_) => Ok(()),
            SentLimits::Rules(limits) => limits.read(known),
        }
    }

    /// The rules that the caller sends; `None`: those of a policy apply.
    #[inline]
    pub(crate) fn sent_rules<'r>(
        &'r self,
        known: &'r mut ConnectionRuleCache,
    ) -> Option<&'r Rules> {
        match &self.sent {
            SentLimits::None => None,
            SentLimits::Throttle(limit) => Some(known.rules(*limit)),
            SentLimits::Rules(limits) => Some(limits.rules()),
        }
    }

    /// The request under `rules`, those that the caller sends.
    #[inline]
    pub(crate) fn under<'r>(&'r self, rules: &'r Rules) -> Request<'r> {
        match &self.sent {
            SentLimits::None | SentLimits::Throttle(_) => self.request.by(rules),
            SentLimits::Rules(limits) => limits.put_on(&self.request, rules),
        }
    }

    /// Returns whether the order of this and its neighbours matters: requests that take permits of a key
    /// may be decided in any order, because all get what there is. Requests that give some back may not.
    pub(crate) const fn keeps_its_place(&self) -> bool {
        match self.request.verb {
            Verb::Check { .. } | Verb::Reserve { .. } | Verb::AtMost { .. } | Verb::Peek { .. } => {
                false
            }
            Verb::Refund { .. }
            | Verb::Reset
            | Verb::Acquire { .. }
            | Verb::Wait { .. }
            | Verb::Leave { .. }
            | Verb::Release { .. }
            | Verb::Renew { .. } => true,
        }
    }

    /// Writes the reply to a decision, or to an error.
    #[inline]
    pub(crate) fn reply(&self, passed: &Result<Admission, DecideError>, replies: &mut Replies) {
        match (passed, &self.sent) {
            (Ok(admission), SentLimits::Throttle(limit)) => {
                throttle_limit::reply(
                    *limit,
                    &self.request.verb,
                    &admission.answer.decision,
                    replies,
                );
            }
            (Ok(admission), _) => reply(admission, replies),
            (Err(DecideError::UnknownPolicy(_) | DecideError::Unconfigured { .. }), _) => {
                unconfigured(replies);
            }
            (Err(error), _) => {
                replies.refusal(&ErrorReply::of(error.charged(), terminal::decide_error(error)));
            }
        }
    }
}

/// Writes the array that answers `SG.*`, as the wire's module documents it.
fn reply(admission: &Admission, replies: &mut Replies) {
    let Admission { answer, way, held } = admission;
    let decision = &answer.decision;
    let over = over(way);
    replies.array(if over.is_some() { 11 } else { 8 });
    if way.passes() {
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
    replies.integer(millis(Micros::new(decision.wait().get().saturating_sub(held.get()))));
    replies.bulk(answer.rule().as_bytes());
    replies.bulk(answer.mode.name_without_call().unwrap_or(Mode::Store.name()).as_bytes());
    if let Some(OverflowReply { name, what, status }) = over {
        replies.bulk(name);
        match what {
            Some(what) => replies.bulk(what.as_bytes()),
            None => replies.null(),
        }
        match status {
            Some(status) => replies.integer(status.into()),
            None => replies.null(),
        }
    }
}

/// The reply's part about a request over the limit that is not just refused.
struct OverflowReply<'a> {
    /// The name of its overflow.
    name: &'static [u8],
    /// The tag, the target, or the body of a response.
    what: Option<&'a str>,
    /// The status of the response.
    status: Option<u16>,
}

fn over(way: &Disposition) -> Option<OverflowReply<'_>> {
    let (name, what, status): (&[u8], _, _) = match way {
        Disposition::Allowed | Disposition::Refused => return None,
        Disposition::Shadowed => (b"shadow", None, None),
        Disposition::Diverted(_) => (b"divert", way.target(), None),
        Disposition::Degraded(_) => match way.fallback() {
            None => (b"degrade", None, None),
            Some(Fallback::Tag(tag)) => (b"degrade", Some(&**tag), None),
            Some(Fallback::Response { status, body, .. }) => {
                (b"degrade", Some(&**body), Some(*status))
            }
        },
    };
    Some(OverflowReply { name, what, status })
}

/// Writes the array for a policy that does not exist, or that the app may not use.
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
