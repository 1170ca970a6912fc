//! `spec/vectors/leases.json`: messages of holders about one key, and other requests for it in between.

use serde::{Deserialize, Serialize};
use sluicegate_kernel::lease::{Found, Hint, Holder, LeaseGrant, Mark, Marks, Message, Number};
use sluicegate_kernel::limits::RULES_MAX;
use sluicegate_kernel::{LeaseReply, Leased, Micros, Moment, RuleSet};

use crate::rules::rule_set;
use crate::subject::{Kernel, Subject, VectorError, answer_to, to_answer, windows};
use crate::vector::{Answer, Op, RuleSpec, Step};

/// One key's life with holders: their messages and other requests, when they come, and the expected answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseVector {
    /// The behaviour that it shows, as a name.
    pub name: String,
    /// A sentence or two for the reader of a failure.
    pub about: String,
    /// The rules of the policy when the key is first seen.
    pub rules: Vec<RuleSpec>,
    /// The steps, in this order. Time may go back.
    pub steps: Vec<LeaseStep>,
}

/// One event in the life of the key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LeaseStep {
    /// A message of a holder arrives at the store.
    Message(Box<MessageStep>),
    /// The store loses all that it has of the key.
    Lost(LostStep),
    /// Another request for the key, or a change of its rules.
    Central(Box<Step>),
}

/// A message arrives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageStep {
    /// The time of the store's clock, µs.
    pub at_us: u64,
    /// `lease`.
    pub op: MessageOp,
    /// The calendar windows, as in a [`Step`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Vec<Option<[u64; 2]>>>,
    /// The message.
    pub message: MessageSpec,
    /// The expected answer of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<LeaseReplySpec>,
}

/// The `op` of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageOp {
    /// A holder leases, reports or gives back.
    Lease,
}

/// Writes are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LostStep {
    /// The time of the store's clock, µs.
    pub at_us: u64,
    /// `lose`.
    pub op: LostOp,
}

/// The `op` of lost writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostOp {
    /// The store loses everything about the key.
    Lose,
}

/// A [`Message`]; absent fields are 0, false or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MessageSpec {
    /// The sender; 0 only looks.
    #[serde(skip_serializing_if = "is_default")]
    pub holder: u64,
    /// The number of the message.
    #[serde(skip_serializing_if = "is_default")]
    pub number: u32,
    /// The number of the last message whose answer arrived.
    #[serde(skip_serializing_if = "is_default")]
    pub heard: u32,
    /// `kept` and `granted` of that answer.
    #[serde(skip_serializing_if = "is_default")]
    pub stood: u32,
    /// Permits of `stood` that are not spent.
    #[serde(skip_serializing_if = "is_default")]
    pub unspent: u32,
    /// Permits of `unspent` that the holder goes on using.
    #[serde(skip_serializing_if = "is_default")]
    pub keep: u32,
    /// Permits that requests wait for.
    #[serde(skip_serializing_if = "is_default")]
    pub need: u32,
    /// Permits that the first of these requests needs.
    #[serde(skip_serializing_if = "is_default")]
    pub least: u32,
    /// Permits that the holder wants beyond `need`.
    #[serde(skip_serializing_if = "is_default")]
    pub want: u32,
    /// Most permits that the holder may have beyond `need`.
    #[serde(skip_serializing_if = "is_default")]
    pub share: u32,
    /// The term of the lease, µs.
    #[serde(skip_serializing_if = "is_default")]
    pub term_us: u32,
    /// The longest time that the holder waits for the answer, µs.
    #[serde(skip_serializing_if = "is_default")]
    pub patience_us: u32,
    /// The deadline in the last answer.
    #[serde(skip_serializing_if = "is_default")]
    pub ends_us: u64,
    /// The lease is over by the holder's own clock.
    #[serde(skip_serializing_if = "is_default")]
    pub ended: bool,
    /// Times at which permits were spent, oldest first.
    #[serde(skip_serializing_if = "is_default")]
    pub marks: Vec<MarkSpec>,
    /// State of the key from an earlier answer.
    #[serde(skip_serializing_if = "is_default")]
    pub hint: Option<HintSpec>,
}

/// A [`Mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MarkSpec {
    /// The number of permits.
    pub spent: u32,
    /// All of them were spent at least this long ago.
    pub age_us: u32,
}

/// A [`Hint`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HintSpec {
    /// The version of the leases.
    pub version_us: u64,
    /// Permits of all records.
    pub held: u32,
    /// Permits of each rule that are in use.
    pub used: Vec<u64>,
}

/// A [`LeaseReply`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LeaseReplySpec {
    /// The store stands for these permits.
    Granted(Box<LeaseGrantSpec>),
    /// A later message of this holder came before.
    Overtaken(SupersededSpec),
}

/// The answer to a message that was overtaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SupersededSpec {
    /// The message changed nothing.
    Overtaken,
}

/// The permits and state that the store [`LeaseGrant`] for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseGrantSpec {
    /// The number of the message.
    pub number: u32,
    /// Permits that the holder may go on using.
    pub kept: u32,
    /// Permits that are added.
    pub granted: u32,
    /// From now to the deadline.
    pub lasts_us: u64,
    /// The deadline.
    pub ends_us: u64,
    /// Permits that would still be granted.
    pub free: u64,
    /// The number of holders that have permits.
    pub holders: usize,
    /// The store's record of the holder.
    pub found: FoundSpec,
    /// The answer to a check of `least`, or of 1 if that is 0.
    pub check: Answer,
    /// The state of the key that the next message repeats.
    pub hint: HintSpec,
}

/// A [`Found`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundSpec {
    /// The holder has a record.
    Known,
    /// The holder has no record.
    New,
    /// No record covers the permits that the holder named.
    Void,
    /// The store lost what it had answered before.
    Lost,
    /// As many other holders as there may be have records.
    Full,
}

/// A [`Subject`] whose permits can be leased.
pub trait LeasingSubject: Subject {
    /// Answers `message` at `at`.
    fn lease(&mut self, message: &Message, at: &Moment<'_>) -> LeaseReply;

    /// Loses everything about the key.
    fn lose(&mut self);
}

impl LeasingSubject for Kernel {
    fn lease(&mut self, message: &Message, at: &Moment<'_>) -> LeaseReply {
        let (rules, mut leased) = self.taken_over(at);
        let reply = rules.lease(&mut leased, message, at);
        if matches!(reply, LeaseReply::Granted(_)) && message.holder != Holder::NONE {
            self.keep(leased);
        }
        reply
    }

    fn lose(&mut self) {
        self.keep(Leased::default());
    }
}

/// Puts `subject` through `vector`.
///
/// # Errors
/// [`VectorError`] at the first step whose answer differs, or if the vector is malformed.
pub fn run_lease(
    vector: &LeaseVector,
    subject: &mut impl LeasingSubject,
) -> Result<(), VectorError> {
    let answered = answered(vector, subject)?;
    for (step, (asked, got)) in vector.steps.iter().zip(answered).enumerate() {
        if *asked != got {
            return Err(VectorError::Mismatch {
                name: vector.name.clone(),
                about: vector.about.clone(),
                step,
                at_us: asked.at_us(),
                expected: asked.expected(),
                got: got.expected(),
            });
        }
    }
    Ok(())
}

/// Returns `vector` with the kernel's answers.
///
/// # Errors
/// [`VectorError::Malformed`] if the vector is malformed.
pub fn bless_lease(mut vector: LeaseVector) -> Result<LeaseVector, VectorError> {
    vector.steps = answered(&vector, &mut Kernel::default())?;
    Ok(vector)
}

/// Returns the steps of `vector` with the answers of `subject`.
fn answered(
    vector: &LeaseVector,
    subject: &mut impl LeasingSubject,
) -> Result<Vec<LeaseStep>, VectorError> {
    let malformed = |problem| VectorError::Malformed { name: vector.name.clone(), problem };
    let mut rules = rule_set(&vector.rules, None).map_err(malformed)?;
    subject.start(&rules);
    let mut steps = vector.steps.clone();
    for step in &mut steps {
        answer(step, &mut rules, subject).map_err(malformed)?;
    }
    Ok(steps)
}

fn answer(
    step: &mut LeaseStep,
    rules: &mut RuleSet,
    subject: &mut impl LeasingSubject,
) -> Result<(), String> {
    match step {
        LeaseStep::Message(step) => {
            let windows = windows(step.windows.as_deref());
            let at = Moment::with_windows(Micros::new(step.at_us), &windows);
            let reply = subject.lease(&step.message.to_message()?, &at);
            step.expect = Some(LeaseReplySpec::of(&reply, rules));
        }
        LeaseStep::Lost(_) => subject.lose(),
        LeaseStep::Central(step) if step.op == Op::Configure => {
            let specs = step.rules.as_ref().ok_or("no `rules`")?;
            *rules = rule_set(specs, step.carry)?;
            subject.configure(rules);
        }
        LeaseStep::Central(step) => step.expect = Some(answer_to(step, rules, subject)?),
    }
    Ok(())
}

impl LeaseStep {
    /// The time of the step, µs.
    pub const fn at_us(&self) -> u64 {
        match self {
            Self::Message(step) => step.at_us,
            Self::Lost(step) => step.at_us,
            Self::Central(step) => step.at_us,
        }
    }

    /// The answer as JSON.
    fn expected(&self) -> String {
        let text = match self {
            Self::Message(step) => serde_json::to_string(&step.expect),
            Self::Lost(_) => Ok("null".to_owned()),
            Self::Central(step) => serde_json::to_string(&step.expect),
        };
        text.expect("an answer has no maps with odd keys")
    }
}

impl MessageSpec {
    fn to_message(&self) -> Result<Message, String> {
        let marks: Vec<_> = self
            .marks
            .iter()
            .map(|MarkSpec { spent, age_us }| Mark { spent: *spent, age_us: *age_us })
            .collect();
        Ok(Message {
            holder: Holder(self.holder),
            number: Number(self.number),
            heard: Number(self.heard),
            stood: self.stood,
            unspent: self.unspent,
            keep: self.keep,
            need: self.need,
            least: self.least,
            want: self.want,
            share: self.share,
            term_us: self.term_us,
            patience_us: self.patience_us,
            ends: Micros::new(self.ends_us),
            ended: self.ended,
            marks: Marks::new(&marks).ok_or_else(|| format!("{} marks", marks.len()))?,
            hint: self.hint.as_ref().map(HintSpec::to_hint).transpose()?,
        })
    }
}

impl HintSpec {
    fn to_hint(&self) -> Result<Hint, String> {
        let Self { version_us, held, used } = self;
        let mut all = [0; RULES_MAX];
        let room = all.get_mut(..used.len()).ok_or_else(|| format!("{} in `used`", used.len()))?;
        room.copy_from_slice(used);
        Ok(Hint { version: Micros::new(*version_us), held: *held, used: all })
    }

    fn of(hint: &Hint, rules: &RuleSet) -> Self {
        let Hint { version, held, used } = *hint;
        Self { version_us: version.get(), held, used: used[..rules.rules().len()].to_vec() }
    }
}

impl LeaseReplySpec {
    fn of(reply: &LeaseReply, rules: &RuleSet) -> Self {
        let LeaseReply::Granted(grant) = reply else {
            return Self::Overtaken(SupersededSpec::Overtaken);
        };
        let LeaseGrant { number, kept, granted, lasts, ends, free, holders, found, verdict, hint } =
            grant;
        Self::Granted(Box::new(LeaseGrantSpec {
            number: number.0,
            kept: *kept,
            granted: *granted,
            lasts_us: lasts.get(),
            ends_us: ends.get(),
            free: *free,
            holders: *holders,
            found: match found {
                Found::Known => FoundSpec::Known,
                Found::New => FoundSpec::New,
                Found::Void => FoundSpec::Void,
                Found::Lost => FoundSpec::Lost,
                Found::Full => FoundSpec::Full,
            },
            check: to_answer(verdict, rules),
            hint: HintSpec::of(hint, rules),
        }))
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
