//! `sluicegate policies whatif`: today's policies and new ones, side by side on the traffic of a log.
//!
//! ```text
//!                              ┌─▶ today's guard and engine ─┐
//! source ─▶ combined ─▶ reorder┤                             ├─▶ tally: who is refused by one only
//!                              └─▶ the new guard and engine ─┘
//! ```
//!
//! Each line is a check of cost 1 of the policy that guards it, which need not be the same one. To be
//! refused is to be over the limit: a policy in the shadow refuses nobody.

mod print;
mod tally;

use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use sluicegate::store::KEYS_MAX_DEFAULT;
use sluicegate::{Cost, DecideError, Micros, Request, Verb};
use sluicegate_policy::{KeyAttribute, Overflow, Policy, PolicySet};
use sluicegate_text::terminal::{self, OutputFormat};

use super::decider::Decider;
use super::error::{EventError, GuardError};
use super::logs::{GuardedLine, LineGuard, check_choice};
use super::progress::Progress;
use super::reorder::Reorder;
use super::source::{InputLine, LineReader, beyond_limits};
use super::{combined, window};
use tally::WhatifTally;

pub use super::source::ReadLimits;
pub use tally::{
    AffectedKey, BucketCounts, NamedPolicy, PolicyTally, SideCounts, WhatifBucket, WhatifSummary,
    WhatifTimeline,
};

/// How two sets of policies are compared.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The traffic: an access log of Apache or nginx, plain or gzip; `-` for standard input.
    #[arg(long, value_name = "LOG")]
    pub log: PathBuf,
    /// Policy for all lines. Without it: the first that matches, or the only one.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Attributes that form the keys: `remote_ip`, `path`, `method`, `user_agent`, `status`.
    /// Default: the policy's key, else `remote_ip`.
    #[arg(long, value_name = "ATTRIBUTE", value_delimiter = ',', value_parser = KeyAttribute::parse)]
    key: Option<Vec<KeyAttribute>>,
    /// How far log lines may be out of order. At most 1,000,000 lines are held to sort them; with more,
    /// the earliest is decided. Lines later than this are decided at the current time.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = window)]
    reorder: Micros,
    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    output: OutputFormat,
}

/// How lines of a log become checks.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Policy for all lines; none: the first that matches, or the only one.
    pub policy: Option<String>,
    /// Attributes that form the keys; none: the policy's key, else the address.
    pub key: Option<Vec<KeyAttribute>>,
    /// How far lines may be out of order.
    pub reorder: Micros,
}

/// What two sets of policies do otherwise.
#[derive(Clone, Debug)]
pub struct LogComparison {
    /// The counts.
    pub summary: WhatifSummary,
    /// What happened over time.
    pub timeline: WhatifTimeline,
}

/// Why there is no comparison.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The log is no access log.
    #[error("the log holds events, expected an access log")]
    Events,
    /// No policy of either set has this name.
    #[error("--policy: unknown policy `{}`", terminal::one_line(.0))]
    UnknownPolicy(String),
    /// Today's policies do not fit the log.
    #[error("today's policies")]
    Today(#[source] GuardError),
    /// The new policies do not fit the log.
    #[error("the new policies")]
    New(#[source] GuardError),
    /// The first bytes of the log could not be read.
    #[error("the log cannot be read")]
    Read(#[from] io::Error),
}

/// How far lines of a log may be out of order by default.
pub const REORDER_DEFAULT: Micros = Micros::from_secs(5 * 60);

/// Lines that are decided at the end of a log between two looks at the limits.
const DECIDED_PER_LOOK: usize = 1_024;

/// One of the two sets of policies, with the budgets that it keeps.
struct Side {
    guard: LineGuard,
    decider: Decider,
}

/// Both, while the log is read.
struct Sides {
    today: Side,
    new: Side,
    reorder: Reorder<WaitingLine>,
    tally: WhatifTally,
    progress: Progress,
}

/// A line that waits for its turn.
struct WaitingLine {
    line: u64,
    today: Option<GuardedLine>,
    new: Option<GuardedLine>,
}

/// Compares `today` with `new` on as much of a `log` as `limits` permit. The log is plain or gzip.
///
/// # Errors
/// [`CompareError`]. What is wrong further on in the log, or too much of it, makes the comparison incomplete.
pub fn compare_log(
    log: impl Read + 'static,
    (today, new): (PolicySet, PolicySet),
    options: &CompareOptions,
    limits: &ReadLimits,
) -> Result<LogComparison, CompareError> {
    let mut source = LineReader::limited(Box::new(log), limits)?;
    if holds_events(&mut source) {
        return Err(CompareError::Events);
    }
    let mut sides = Sides::new(today, new, options, Progress::silent())?;
    let read = sides.read(&mut source, &*limits.is_over);
    Ok(LogComparison {
        summary: sides.tally.summary(read.is_ok()),
        timeline: sides.tally.timeline(),
    })
}

/// Compares `today` with `new`, and prints what is otherwise. The exit code is 1 if the log could not be
/// read to its end.
///
/// # Errors
/// If the comparison cannot begin, or what it finds cannot be written.
pub fn compare(args: &CompareArgs, today: PolicySet, new: PolicySet) -> Result<ExitCode> {
    let CompareArgs { log, policy, key, reorder, output } = args;
    let options = CompareOptions { policy: policy.clone(), key: key.clone(), reorder: *reorder };
    options.check(&today, &new)?;
    check_choice(&today, policy.as_deref()).context("today's policies")?;
    check_choice(&new, policy.as_deref()).context("the new policies")?;
    let input = terminal::input(log);
    let mut source = LineReader::open(log).with_context(|| input.clone())?;
    if holds_events(&mut source) {
        bail!("--log: {input} holds events, expected an access log");
    }
    let progress = Progress::new(input.clone(), &source);
    let mut sides = Sides::new(today, new, &options, progress)?;
    let read = sides.read(&mut source, &|| false);
    if let Err(error) = &read {
        let line = source.line_number();
        terminal::print_error_line(format_args!(
            "error: {input}: cannot read past line {line}: {error}"
        ));
    }
    print::print(&sides.tally.summary(read.is_ok()), &super::title(log), *output)?;
    Ok(if read.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl CompareOptions {
    /// That a policy that is named is in one of both sets.
    fn check(&self, today: &PolicySet, new: &PolicySet) -> Result<(), CompareError> {
        match &self.policy {
            Some(name) if new.resolve(name).is_none() && today.resolve(name).is_none() => {
                Err(CompareError::UnknownPolicy(name.clone()))
            }
            _ => Ok(()),
        }
    }
}

impl Sides {
    fn new(
        today: PolicySet,
        new: PolicySet,
        options: &CompareOptions,
        progress: Progress,
    ) -> Result<Self, CompareError> {
        options.check(&today, &new)?;
        Ok(Self {
            today: Side::new(today, options).map_err(CompareError::Today)?,
            new: Side::new(new, options).map_err(CompareError::New)?,
            reorder: Reorder::new(options.reorder),
            tally: WhatifTally::new(),
            progress,
        })
    }

    /// Reads the log and decides its lines, until `is_over`.
    fn read(&mut self, source: &mut LineReader, is_over: &dyn Fn() -> bool) -> io::Result<()> {
        let mut read = source.each_line(
            self,
            |sides| &sides.progress,
            |sides, number, line| {
                match line {
                    InputLine::Bytes(bytes) => sides.line(number, bytes),
                    InputLine::TooLong => sides.failed(number, &EventError::LongLine),
                }
                ControlFlow::Continue(())
            },
        );
        let mut decided = 0_usize;
        while let Some((at, waiting)) = self.reorder.pop() {
            if decided.is_multiple_of(DECIDED_PER_LOOK) && is_over() {
                read = Err(beyond_limits());
                break;
            }
            self.decide(at, &waiting);
            decided += 1;
        }
        self.tally.late = self.reorder.late();
        self.tally.evicted = self.today.decider.evictions() + self.new.decider.evictions();
        self.progress.finish();
        read
    }

    fn line(&mut self, line: u64, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let parsed = match combined::parse(text.as_bytes()) {
            Ok(parsed) => parsed,
            Err(error) => return self.failed(line, &error),
        };
        match (self.today.guard.of(&parsed), self.new.guard.of(&parsed)) {
            (Ok(None), Ok(None)) => self.tally.unguarded += 1,
            (Ok(today), Ok(new)) => self.reorder.push(parsed.at, WaitingLine { line, today, new }),
            (Err(error), _) | (_, Err(error)) => return self.failed(line, &error),
        }
        while let Some((at, waiting)) = self.reorder.pop_due() {
            self.decide(at, &waiting);
        }
    }

    fn decide(&mut self, at: Micros, WaitingLine { line, today, new }: &WaitingLine) {
        let refuses = |side: &Side, guarded: &Option<GuardedLine>| match guarded {
            Some(guarded) => side.refuses(guarded, at),
            None => Ok(false),
        };
        match (refuses(&self.today, today), refuses(&self.new, new)) {
            (Ok(by_today), Ok(by_new)) => {
                self.tally.decided(at, (today.as_ref(), by_today), (new.as_ref(), by_new));
            }
            (Err(error), _) | (_, Err(error)) => self.failed(*line, &EventError::from(error)),
        }
    }

    fn failed(&mut self, line: u64, error: &dyn std::fmt::Display) {
        self.tally.errors += 1;
        self.progress.problem(line, &error.to_string());
    }
}

impl Side {
    fn new(policies: PolicySet, options: &CompareOptions) -> Result<Self, GuardError> {
        let CompareOptions { policy, key, reorder: _ } = options;
        let guard = LineGuard::if_any(&policies, policy.as_deref(), key.clone())?;
        Ok(Self { guard, decider: Decider::in_memory(policies, KEYS_MAX_DEFAULT) })
    }

    fn refuses(&self, guarded: &GuardedLine, at: Micros) -> Result<bool, DecideError> {
        let policy: &Policy = &guarded.policy;
        let verb = Verb::Check { cost: Cost::ONE };
        let request = Request::new(policy.name(), guarded.key().map(str::as_bytes), verb);
        let answer = self.decider.decide_at(&request, at)?;
        Ok(!answer.decision.allowed() && !matches!(policy.overflow(), Overflow::Shadow))
    }
}

/// Whether the input is not an access log but a list of events.
fn holds_events(source: &mut LineReader) -> bool {
    source.peek().trim_ascii_start().starts_with(b"{")
}
