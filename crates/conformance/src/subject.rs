//! The subject of a test, and the test.

use serde::Deserialize;
use sluicegate_kernel::{
    Cost, Decision, Leased, Micros, Moment, PermitId, RuleSet, Unsupported, Verb, Verdict, Window,
};

use crate::rules::rule_set;
use crate::vector::{Answer, ErrorCode, Expect, Failure, Op, RuleSpec, Step, Vector};

/// Something that decides for one key.
pub trait Subject {
    /// Starts a new key with these rules.
    fn start(&mut self, rules: &RuleSet);

    /// Decides `verb` at `at`.
    ///
    /// # Errors
    /// [`Unsupported`] if the rules do not know the verb. A subject that cannot answer panics: there is nothing to
    /// compare.
    fn decide(&mut self, verb: &Verb, at: &Moment<'_>) -> Result<Verdict, Unsupported>;

    /// Replaces the rules before the next decision; the new rules take usage over by their `carry`.
    fn configure(&mut self, rules: &RuleSet);
}

/// The kernel itself, which gives the vectors' answers.
#[derive(Debug, Default)]
pub struct Kernel {
    rules: Option<RuleSet>,
    /// The rules that the states belong to, until the first decision under the new ones.
    before: Option<RuleSet>,
    leased: Leased,
}

impl Kernel {
    /// Returns the rules, and the memory after they have taken it over.
    pub(crate) fn taken_over(&self, at: &Moment<'_>) -> (&RuleSet, Leased) {
        let rules = self.rules.as_ref().expect("`start` comes first");
        let mut leased = self.leased.clone();
        if let Some(before) = &self.before {
            leased.states = rules.take_over(before, &leased.states, at);
        }
        (rules, leased)
    }

    pub(crate) fn keep(&mut self, leased: Leased) {
        (self.leased, self.before) = (leased, None);
    }
}

impl Subject for Kernel {
    fn start(&mut self, rules: &RuleSet) {
        *self = Self { rules: Some(rules.clone()), ..Self::default() };
    }

    fn decide(&mut self, verb: &Verb, at: &Moment<'_>) -> Result<Verdict, Unsupported> {
        let (rules, mut leased) = self.taken_over(at);
        let verdict = rules.decide_beside(&mut leased, verb, at)?;
        if !matches!(verb, Verb::Peek { .. }) {
            self.keep(leased);
        }
        Ok(verdict)
    }

    fn configure(&mut self, rules: &RuleSet) {
        let before = self.rules.replace(rules.clone());
        self.before = self.before.take().or(before);
    }
}

/// The error of a vector that does not hold.
#[derive(Debug, thiserror::Error)]
pub enum VectorError {
    /// The vector itself is wrong.
    #[error("{name}: {problem}")]
    Malformed {
        /// The vector.
        name: String,
        /// The problem.
        problem: String,
    },
    /// The subject answers otherwise.
    #[error("{name}, step {step} at {at_us} µs: expected {expected}, got {got} ({about})")]
    Mismatch {
        /// The vector.
        name: String,
        /// The description of the vector.
        about: String,
        /// The number of the step, from 0.
        step: usize,
        /// The time of the step, µs.
        at_us: u64,
        /// The vector's answer, as JSON.
        expected: String,
        /// The subject's answer, as JSON.
        got: String,
    },
}

/// Puts `subject` through `vector`.
///
/// # Errors
/// [`VectorError`] at the first step whose answer differs, or if the vector is malformed.
pub fn run(vector: &Vector, subject: &mut impl Subject) -> Result<(), VectorError> {
    let answers = answers(vector, subject)?;
    for (step, (asked, got)) in vector.steps.iter().zip(answers).enumerate() {
        if asked.expect != got {
            return Err(VectorError::Mismatch {
                name: vector.name.clone(),
                about: vector.about.clone(),
                step,
                at_us: asked.at_us,
                expected: json(&asked.expect),
                got: json(&got),
            });
        }
    }
    Ok(())
}

/// Returns `vector` with the kernel's answers.
///
/// # Errors
/// [`VectorError::Malformed`] if the vector is malformed.
pub fn bless(mut vector: Vector) -> Result<Vector, VectorError> {
    let answers = answers(&vector, &mut Kernel::default())?;
    for (step, answer) in vector.steps.iter_mut().zip(answers) {
        step.expect = answer;
    }
    Ok(vector)
}

/// Returns the kernel's answers to the vector in `line`, as JSON on one line: `{"answers":[..]}`, one for each step, or
/// `{"error":".."}`. The vector can lack `name`, `about` and `expect`.
pub fn answers_of(line: &str) -> String {
    #[derive(Deserialize)]
    struct Asked {
        rules: Vec<RuleSpec>,
        steps: Vec<Step>,
    }
    let answered = serde_json::from_str(line).map_err(|error| error.to_string()).and_then(
        |Asked { rules, steps }| {
            let vector = Vector { name: String::new(), about: String::new(), rules, steps };
            answers(&vector, &mut Kernel::default()).map_err(|error| error.to_string())
        },
    );
    match answered {
        Ok(answers) => serde_json::json!({ "answers": answers }).to_string(),
        Err(error) => serde_json::json!({ "error": error }).to_string(),
    }
}

fn json(expect: &Option<Expect>) -> String {
    serde_json::to_string(expect).expect("an answer has no maps with odd keys")
}

fn answers(
    vector: &Vector,
    subject: &mut impl Subject,
) -> Result<Vec<Option<Expect>>, VectorError> {
    let malformed = |problem| VectorError::Malformed { name: vector.name.clone(), problem };
    let mut rules = rule_set(&vector.rules, None).map_err(malformed)?;
    subject.start(&rules);
    let mut answers = Vec::with_capacity(vector.steps.len());
    for step in &vector.steps {
        answers.push(if step.op == Op::Configure {
            let specs = step.rules.as_ref().ok_or_else(|| malformed("no `rules`".into()))?;
            rules = rule_set(specs, step.carry).map_err(malformed)?;
            subject.configure(&rules);
            None
        } else {
            Some(answer_to(step, &rules, subject).map_err(malformed)?)
        });
    }
    Ok(answers)
}

/// Returns the answer of `subject` to a step that is a verb.
pub(crate) fn answer_to(
    step: &Step,
    rules: &RuleSet,
    subject: &mut impl Subject,
) -> Result<Expect, String> {
    let windows = windows(step.windows.as_deref());
    let at = Moment::with_windows(Micros::new(step.at_us), &windows);
    let Ok(cost) = Cost::new(step.cost.unwrap_or(1)) else {
        return Ok(failure(ErrorCode::Range));
    };
    Ok(match subject.decide(&verb(step, cost)?, &at) {
        Ok(verdict) => Expect::Decision(to_answer(&verdict, rules)),
        Err(Unsupported { .. }) => failure(ErrorCode::Unsupported),
    })
}

fn failure(error: ErrorCode) -> Expect {
    Expect::Failure(Failure { error })
}

/// The windows that a step gives.
pub(crate) fn windows(given: Option<&[Option<[u64; 2]>]>) -> Vec<Option<Window>> {
    let window =
        |[start, end]: [u64; 2]| Window { start: Micros::new(start), end: Micros::new(end) };
    given.unwrap_or_default().iter().map(|given| given.map(window)).collect()
}

fn verb(step: &Step, cost: Cost) -> Result<Verb, String> {
    let permit = || {
        let id = step.id.as_deref().ok_or_else(|| format!("{:?} without `id`", step.op));
        id.map(PermitId::named)
    };
    Ok(match step.op {
        Op::Check => Verb::Check { cost },
        Op::Reserve => {
            Verb::Reserve { cost, max_wait: step.max_wait_us.map_or(Micros::MAX, Micros::new) }
        }
        Op::AtMost => Verb::AtMost { cost },
        Op::Peek => Verb::Peek { cost },
        Op::Refund => Verb::Refund { cost },
        Op::Reset => Verb::Reset,
        Op::Acquire => Verb::Acquire { cost, permit: permit()? },
        Op::Release => Verb::Release { permit: permit()? },
        Op::Renew => Verb::Renew { permit: permit()? },
        Op::Configure => return Err("a configure is no verb of a key".into()),
    })
}

pub(crate) fn to_answer(verdict: &Verdict, rules: &RuleSet) -> Answer {
    let Verdict { decision, rule } = verdict;
    let Decision { outcome: _, limit, remaining, reset_after } = *decision;
    Answer {
        allowed: decision.allowed(),
        granted: decision.granted(),
        wait_us: decision.wait().get(),
        limit,
        remaining,
        retry_after_us: decision.retry_after().map(Micros::get),
        reset_after_us: reset_after.get(),
        rule: rules.rules()[*rule].name.to_string(),
    }
}
