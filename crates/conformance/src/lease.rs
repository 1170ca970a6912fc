//! `spec/vectors/leases.json`: messages of holders about one key, and what is asked of it beside them.

use serde::{Deserialize, Serialize};
use sluicegate_kernel::lease::{Found, Hint, Holder, Mark, Marks, Message, Number, Stands};
use sluicegate_kernel::limits::RULES_MAX;
use sluicegate_kernel::{Micros, Moment, RuleSet, Word};

use crate::rules::rule_set;
use crate::subject::{Kernel, Subject, VectorError, answer_to, to_answer, windows};
use crate::vector::{Answer, Op, RuleSpec, Step};

/// One key's life with holders: what they and others ask when, and what the store must answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseVector {
    /// What it shows.
    pub name: String,
    /// A sentence or two for the reader of a failure.
    pub about: String,
    /// The rules of the policy when the key is first seen.
    pub rules: Vec<RuleSpec>,
    /// What happens, in this order. Time may go back.
    pub steps: Vec<LeaseStep>,
}

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum LeaseStep {
    /// A message of a holder arrives at the store.
    Message(Box<MessageStep>),
    /// The store loses all that it has of the key.
    Lost(LostStep),
    /// Something else is asked of the key, or its rules change.
    Central(Box<Step>),
}

/// A message arrives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageStep {
    /// What the store's clock says.
    pub at_us: u64,
    /// `lease`.
    pub op: MessageOp,
    /// The calendar windows, as in a [`Step`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub windows: Option<Vec<Option<[u64; 2]>>>,
    /// What the holder says.
    pub message: MessageSpec,
    /// What the store must answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<WordSpec>,
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
    /// What the store's clock says.
    pub at_us: u64,
    /// `lose`.
    pub op: LostOp,
}

/// The `op` of lost writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostOp {
    /// The store has nothing of the key any more.
    Lose,
}

/// A [`Message`]; what is absent is 0, false or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MessageSpec {
    /// The sender; 0 only looks.
    #[serde(skip_serializing_if = "is_default")]
    pub holder: u64,
    /// The number of the message.
    #[serde(skip_serializing_if = "is_default")]
    pub number: u32,
    /// The number of the last message whose answer was heard.
    #[serde(skip_serializing_if = "is_default")]
    pub heard: u32,
    /// `kept` and `granted` of that answer.
    #[serde(skip_serializing_if = "is_default")]
    pub stood: u32,
    /// Of these, permits that are not spent.
    #[serde(skip_serializing_if = "is_default")]
    pub unspent: u32,
    /// Of these, permits that the holder goes on using.
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
    /// How long the lease shall last.
    #[serde(skip_serializing_if = "is_default")]
    pub term_us: u32,
    /// How long the holder listens to the answer.
    #[serde(skip_serializing_if = "is_default")]
    pub patience_us: u32,
    /// The deadline in the last answer.
    #[serde(skip_serializing_if = "is_default")]
    pub ends_us: u64,
    /// Whether the lease is over by the holder's own clock.
    #[serde(skip_serializing_if = "is_default")]
    pub ended: bool,
    /// When permits were spent, oldest first.
    #[serde(skip_serializing_if = "is_default")]
    pub marks: Vec<MarkSpec>,
    /// What an answer said of the key.
    #[serde(skip_serializing_if = "is_default")]
    pub hint: Option<HintSpec>,
}

/// A [`Mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MarkSpec {
    /// How many permits.
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

/// A [`Word`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum WordSpec {
    /// The store stands for these permits.
    Stands(Box<StandsSpec>),
    /// A later message of this holder came before.
    Overtaken(OvertakenSpec),
}

/// The word for a message that was overtaken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OvertakenSpec {
    /// Nothing was changed.
    Overtaken,
}

/// What the store [`Stands`] for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StandsSpec {
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
    /// How many holders have permits.
    pub holders: usize,
    /// What the store knew of the holder.
    pub found: FoundSpec,
    /// What a check of `least`, or of 1, would be answered.
    pub check: Answer,
    /// What the next message repeats.
    pub hint: HintSpec,
}

/// A [`Found`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FoundSpec {
    /// Its record.
    Known,
    /// Nothing.
    New,
    /// Nothing that stands for what it named.
    Void,
    /// Less than it had answered before.
    Lost,
    /// As many others as there may be.
    Full,
}

/// A [`Subject`] whose permits can be leased.
pub trait LeasingSubject: Subject {
    /// Answers `message` at `at`.
    fn lease(&mut self, message: &Message, at: &Moment<'_>) -> Word;

    /// Loses all that it has of the key.
    fn lose(&mut self);
}

/// Puts `subject` through `vector`.
///
/// # Errors
/// [`VectorError`] at the first step that is answered otherwise, or if the vector makes no sense.
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

/// `vector` with the kernel's answers.
///
/// # Errors
/// [`VectorError::Malformed`] if the vector makes no sense.
pub fn bless_lease(mut vector: LeaseVector) -> Result<LeaseVector, VectorError> {
    vector.steps = answered(&vector, &mut Kernel::default())?;
    Ok(vector)
}

/// The steps of `vector` with the answers of `subject`.
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
            let word = subject.lease(&step.message.to_message()?, &at);
            step.expect = Some(WordSpec::of(&word, rules));
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
    /// When it happens.
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

impl WordSpec {
    fn of(word: &Word, rules: &RuleSet) -> Self {
        let Word::Stands(stands) = word else { return Self::Overtaken(OvertakenSpec::Overtaken) };
        let Stands { number, kept, granted, lasts, ends, free, holders, found, verdict, hint } =
            stands;
        Self::Stands(Box::new(StandsSpec {
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
