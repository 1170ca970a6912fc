//! Messages of holders and the script's answers, as bytes. `spec/redis.md` is the format.

use sluicegate_kernel::lease::{Found, Hint, LeaseGrant, Message, Number};
use sluicegate_kernel::limits::{COST_MAX, RULES_MAX, SPAN_MAX_US};
use sluicegate_kernel::{
    Decision, LeaseReply, Micros, Moment, Outcome, Retry, RuleSet, Verdict, Window,
};

use super::codec::{ForeignReply, NEVER, PreviousRules, ScriptClock, put_rest, windows_at};
use super::numbers::{number, put};

/// The verb of a message.
const LEASE: u8 = 10;

/// A message as the script takes it.
#[derive(Clone, Copy, Debug)]
pub struct LeaseRequest<'a> {
    /// The message of the holder.
    pub message: &'a Message,
    /// The moment, with the calendar windows around it; with [`ScriptClock::Server`] only the windows count.
    pub at: &'a Moment<'a>,
    /// The clock of the decision: the server's, or the moment that is passed in. Leases need one clock, so
    /// [`ScriptClock::Client`] is refused.
    pub clock: ScriptClock,
    /// The rules that wrote the state, once the script has asked for them.
    pub before: PreviousRules<'a>,
}

/// A reply of the script to a message.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseScriptReply {
    /// The store's answer.
    Answer(LeaseReply),
    /// The state was written under other rules: see [`ScriptReply::Unknown`](super::codec::ScriptReply::Unknown).
    Unknown(Vec<u8>),
    /// The script could not read this part of the message or of the stored value; no state was changed.
    Malformed(String),
}

impl LeaseRequest<'_> {
    /// Returns the bytes.
    ///
    /// # Panics
    /// If a rule with a calendar has no window in `at`, as the kernel would.
    pub fn encode(&self, rules: &RuleSet) -> Vec<u8> {
        self.encode_with(rules.rules().len(), windows_at(rules, self.at).into_iter())
    }

    /// Returns the bytes for so many rules, whose calendars have these windows.
    pub(super) fn encode_with(
        &self,
        rules: usize,
        windows: impl Iterator<Item = Window>,
    ) -> Vec<u8> {
        let Message {
            holder,
            number,
            heard,
            stood,
            unspent,
            keep,
            need,
            least,
            want,
            share,
            term_us,
            patience_us,
            ends,
            ended,
            marks,
            hint,
        } = self.message;
        let mut bytes = vec![LEASE, self.clock as u8];
        put(&mut bytes, holder.0, 8);
        for number in [
            number.0,
            heard.0,
            *stood,
            *unspent,
            *keep,
            *need,
            *least,
            *want,
            *share,
            *term_us,
            *patience_us,
        ] {
            put(&mut bytes, number.into(), 4);
        }
        put(&mut bytes, ends.get().min(SPAN_MAX_US), 7);
        bytes.push(u8::from(*ended));
        put(&mut bytes, marks.as_slice().len() as u64, 1);
        for mark in marks.as_slice() {
            put(&mut bytes, mark.spent.into(), 4);
            put(&mut bytes, mark.age_us.into(), 4);
        }
        match hint {
            None => bytes.push(0),
            Some(Hint { version, held, used }) => {
                bytes.push(1);
                put(&mut bytes, version.get().min(SPAN_MAX_US), 7);
                put(&mut bytes, (*held).into(), 4);
                used[..rules].iter().for_each(|used| put(&mut bytes, *used, 5));
            }
        }
        put_rest(&mut bytes, self.clock, self.at, windows, self.before);
        bytes
    }
}

impl LeaseScriptReply {
    /// Decodes `bytes`, the reply to `message` under `rules`.
    ///
    /// # Errors
    /// [`ForeignReply`] if they are not a reply.
    pub fn decode(bytes: &[u8], rules: &RuleSet, message: &Message) -> Result<Self, ForeignReply> {
        Self::decode_with(bytes, rules.rules().iter().map(|named| named.rule.limit()), message)
    }

    /// Decodes the reply under rules with these limits.
    pub(super) fn decode_with(
        bytes: &[u8],
        limits: impl ExactSizeIterator<Item = u64>,
        message: &Message,
    ) -> Result<Self, ForeignReply> {
        let foreign = ForeignReply { length: bytes.len() };
        match *bytes {
            [3, ref begin @ ..] if !begin.is_empty() => Ok(Self::Unknown(begin.to_vec())),
            [4, ref what @ ..] => Ok(Self::Malformed(String::from_utf8_lossy(what).into_owned())),
            [5, ref rest @ ..] => {
                let grant = granted(Fields(rest), limits, message).ok_or(foreign)?;
                Ok(Self::Answer(LeaseReply::Granted(grant)))
            }
            [6] => Ok(Self::Answer(LeaseReply::Superseded)),
            _ => Err(foreign),
        }
    }
}

/// The rest of a reply.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    /// Returns the number in the next `bytes` bytes.
    fn take(&mut self, bytes: usize) -> Option<u64> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(number(taken))
    }

    fn take_u32(&mut self) -> Option<u32> {
        self.take(4).and_then(|number| u32::try_from(number).ok())
    }
}

fn granted(
    mut fields: Fields<'_>,
    mut limits: impl ExactSizeIterator<Item = u64>,
    message: &Message,
) -> Option<LeaseGrant> {
    let (number, kept, granted) = (fields.take_u32()?, fields.take_u32()?, fields.take_u32()?);
    let (lasts, ends, free) = (fields.take(7)?, fields.take(7)?, fields.take(7)?);
    let (holders, found) = (fields.take(1)?, fields.take(1)?);
    let found = match found {
        0 => Found::Known,
        1 => Found::New,
        2 => Found::Void,
        3 => Found::Lost,
        4 => Found::Full,
        _ => return None,
    };
    let (passes, rule) = (fields.take(1)?, usize::try_from(fields.take(1)?).ok()?);
    let span = fields.take(7)?;
    let (remaining, reset_after) = (fields.take(7)?, fields.take(7)?);
    let (version, held) = (fields.take(7)?, fields.take_u32()?);
    let mut used = [0; RULES_MAX];
    for used in used.get_mut(..limits.len())? {
        *used = fields.take(5)?;
    }
    let limit = limits.nth(rule)?;
    let least = u64::from(message.least).clamp(1, COST_MAX);
    let outcome = match (passes, span) {
        (1, wait) => Outcome::Allow { granted: least, wait: Micros::new(wait) },
        (0, NEVER) => Outcome::Deny { retry: Retry::Never },
        (0, after) => Outcome::Deny { retry: Retry::After(Micros::new(after)) },
        _ => return None,
    };
    let reset_after = Micros::new(reset_after);
    let verdict = Verdict { decision: Decision { outcome, limit, remaining, reset_after }, rule };
    let (lasts, ends, version) = (Micros::new(lasts), Micros::new(ends), Micros::new(version));
    fields.0.is_empty().then_some(LeaseGrant {
        number: Number(number),
        kept,
        granted,
        lasts,
        ends,
        free,
        holders: usize::try_from(holders).ok()?,
        found,
        verdict,
        hint: Hint { version, held, used },
    })
}

#[cfg(test)]
mod tests {
    use sluicegate_kernel::lease::Holder;

    use super::*;

    /// Decodes a reply to the first message of a holder.
    fn decode(bytes: &[u8]) -> Result<LeaseScriptReply, ForeignReply> {
        let message = Message {
            holder: Holder(1),
            number: Number(1),
            heard: Number(0),
            stood: 0,
            unspent: 0,
            keep: 0,
            need: 1,
            least: 1,
            want: 0,
            share: 0,
            term_us: 1_000_000,
            patience_us: 0,
            ends: Micros::ZERO,
            ended: false,
            marks: Default::default(),
            hint: None,
        };
        LeaseScriptReply::decode_with(bytes, [10].into_iter(), &message)
    }

    #[test]
    fn a_reply_about_other_rules_without_a_head_is_foreign() {
        assert_eq!(decode(&[3]), Err(ForeignReply { length: 1 }));
        assert_eq!(decode(&[3, 7]), Ok(LeaseScriptReply::Unknown(vec![7])));
    }
}
