//! `sluicegate policies whatif`: today's policies and new ones, side by side on the traffic of a log.
//!
//! ```text
//!                              ┌─▶ today's guard and engine ─┐
//! source ─▶ combined ─▶ reorder┤                             ├─▶ tally: refused by one only
//!                              └─▶ the new guard and engine ─┘
//! ```
//!
//! Each line is the request of a gateway, decided by all policies that match it on that side. It is refused if it does
//! not pass as it is: a policy in shadow refuses no request, and one that a queue delays until it passes is not
//! refused.

mod print;
mod tally;

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use sluicegate::Micros;
use sluicegate::internals::gateway::{GuardingBudget, PolicyDecision};
use sluicegate::internals::store::KEYS_MAX_DEFAULT;
use sluicegate_policy::{KeyAttribute, PolicySet, nearest};
use sluicegate_text::terminal::{self, OutputFormat};

use super::combined::LogFormat;
use super::decider::Decider;
use super::error::{EventError, GuardError, did_you_mean};
use super::held::{Decided, HeldRequests};
use super::logs::{LineGuard, check_choice};
use super::progress::Progress;
use super::readable::{BadMax, check_matched};
use super::reorder::Reorder;
use super::source::{InputLine, LineReader, beyond_limits};
use super::{ClientArgs, begins_object, exit_code, host_in_front, window};
use tally::{SideVerdict, WhatifTally};

pub use super::source::ReadLimits;
pub use crate::summary::UndecidedPolicy;
pub use tally::{
    AffectedKey, BucketCounts, NamedPolicy, PolicyTally, SideCounts, WhatifBucket, WhatifSummary,
    WhatifTimeline,
};

/// Options for the comparison of two sets of policies.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The traffic: an access log of Apache or nginx, plain or gzip; `-` for standard input.
    #[arg(long, value_name = "LOG")]
    pub log: PathBuf,
    /// Policy for all lines. Without it, all policies that match a line decide it, as behind a gateway, or the
    /// only one.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Attributes that form the keys: `remote_ip`, `path`, `method`, `user_agent`, `status`.
    /// Default: the policy's key, else `remote_ip`.
    #[arg(long, value_name = "ATTRIBUTE", value_delimiter = ',', value_parser = KeyAttribute::parse)]
    key: Option<Vec<KeyAttribute>>,
    #[command(flatten)]
    clients: ClientArgs,
    /// Sort log lines up to this far out of order (at most 1,000,000 at a time). Later ones count as if they had
    /// just come.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = window)]
    reorder: Micros,
    /// Fail (exit status 1) if more of the lines than this could not be read. A log of which nothing could be read
    /// always fails.
    #[arg(long, value_name = "PERCENT", default_value_t = BadMax::OF_LOGS)]
    bad_max: BadMax,
    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    output: OutputFormat,
}

/// Options that turn lines of a log into requests.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// Policy for all lines; `None`: all that match, or the only one.
    pub policy: Option<String>,
    /// Attributes that form the keys; `None`: the policy's key, else the address.
    pub key: Option<Vec<KeyAttribute>>,
    /// The options for the clients in the log.
    pub clients: ClientArgs,
    /// The longest time by which lines may be out of order.
    pub reorder: Micros,
}

/// The differences between two sets of policies.
#[derive(Clone, Debug)]
pub struct LogComparison {
    /// The counts.
    pub summary: WhatifSummary,
    /// The counts over time.
    pub timeline: WhatifTimeline,
}

/// The reason for which there is no comparison.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The log is not an access log.
    #[error("the log is JSON, expected an access log in the format `combined`")]
    Events,
    /// No policy of either set has this name.
    #[error("--policy: unknown policy `{}`{}", terminal::one_line(.name), did_you_mean(.near.as_deref()))]
    UnknownPolicy {
        /// The name.
        name: String,
        /// The policy of either set with the most similar name.
        near: Option<String>,
    },
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

/// The default of [`CompareOptions::reorder`].
pub const REORDER_DEFAULT: Micros = Micros::from_secs(5 * 60);

/// Lines that are decided at the end of a log between two checks of the limits.
const DECIDED_PER_LOOK: usize = 1_024;

/// One of the two sets of policies, with the budgets that it keeps.
struct Side {
    guard: LineGuard,
    decider: Decider,
    /// Lines that it delays, by their number.
    held: HeldRequests<u64>,
}

/// Both sides, while the log is read.
struct Sides {
    format: LogFormat,
    today: Side,
    new: Side,
    reorder: Reorder<WaitingLine>,
    /// Lines that one side has decided and the other delays, and those that both delay, by their number: at
    /// most as many as both engines delay.
    undecided: BTreeMap<u64, UndecidedLine>,
    tally: WhatifTally,
    progress: Progress,
}

/// A line that waits for its turn.
struct WaitingLine {
    line: u64,
    today: Option<Vec<GuardingBudget>>,
    new: Option<Vec<GuardingBudget>>,
}

/// A line that came, and the answers to it so far.
struct UndecidedLine {
    at: Micros,
    today: Option<Result<SideVerdict, EventError>>,
    new: Option<Result<SideVerdict, EventError>>,
}

/// Compares `today` with `new` on as much of a `log` as `limits` permit. The log is plain or gzip.
///
/// # Errors
/// [`CompareError`]. An error further on in the log, or a longer log than permitted, makes the comparison incomplete.
pub fn compare_log(
    log: impl Read + 'static,
    today: PolicySet,
    new: PolicySet,
    options: &CompareOptions,
    limits: &ReadLimits,
) -> Result<LogComparison, CompareError> {
    let mut source = LineReader::limited(Box::new(log), limits)?;
    if begins_object(source.peek()) {
        return Err(CompareError::Events);
    }
    let format = format_of(source.peek(), &options.clients);
    let mut sides = Sides::new(today, new, options, format, Progress::silent())?;
    let read = sides.read(&mut source, &*limits.is_over);
    Ok(LogComparison {
        summary: sides.tally.summary(read.is_ok()),
        timeline: sides.tally.timeline(),
    })
}

/// Compares `today` with `new`, and prints the differences. The exit code is 1 if more of the log than `--bad-max`
/// could not be read, nothing of it, or not to its end, or if no policy matches a line.
///
/// # Errors
/// If the comparison cannot begin, or its results cannot be written.
pub fn compare(args: &CompareArgs, today: PolicySet, new: PolicySet) -> Result<ExitCode> {
    let CompareArgs { log, policy, key, clients, reorder, bad_max, output } = args;
    let (key, clients) = (key.clone(), clients.clone());
    let options = CompareOptions { policy: policy.clone(), key, clients, reorder: *reorder };
    options.check(&today, &new)?;
    check_choice(&today, policy.as_deref()).context("today's policies")?;
    check_choice(&new, policy.as_deref()).context("the new policies")?;
    let input = terminal::input(log);
    let mut source = LineReader::open(log).with_context(|| input.clone())?;
    if begins_object(source.peek()) {
        bail!("--log: {input} is JSON, expected an access log in the format `combined`");
    }
    let progress = Progress::new(input.clone(), source.bytes());
    let format = format_of(source.peek(), &options.clients);
    let mut sides = Sides::new(today, new, &options, format, progress)?;
    let read = sides.read(&mut source, &|| false);
    if let Err(error) = &read {
        let line = source.line_number();
        terminal::print_error_line(format_args!(
            "error: {input}: cannot read past line {line}: {error}"
        ));
    }
    let summary = sides.tally.summary(read.is_ok());
    print::print(&summary, &super::title(log), *output)?;
    let (bad, all) = (summary.errors, summary.lines());
    let readable = bad_max.check("line", bad, all);
    let paths = &sides.tally.unguarded_paths;
    let readable = readable.and_then(|()| check_matched(summary.unguarded, bad, all, paths));
    Ok(exit_code(&input, &read, &readable))
}

impl CompareOptions {
    /// Checks that the chosen policy is in one of both sets.
    fn check(&self, today: &PolicySet, new: &PolicySet) -> Result<(), CompareError> {
        match &self.policy {
            Some(name) if new.resolve(name).is_none() && today.resolve(name).is_none() => {
                let known = new.policies().iter().chain(today.policies());
                let near = nearest(name, known.map(|policy| policy.name())).map(str::to_owned);
                Err(CompareError::UnknownPolicy { name: name.clone(), near })
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
        format: LogFormat,
        progress: Progress,
    ) -> Result<Self, CompareError> {
        options.check(&today, &new)?;
        Ok(Self {
            today: Side::new(today, options, &format).map_err(CompareError::Today)?,
            new: Side::new(new, options, &format).map_err(CompareError::New)?,
            format,
            reorder: Reorder::new(options.reorder),
            undecided: BTreeMap::new(),
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
            self.decide(at, waiting);
            decided += 1;
        }
        self.go_on(Micros::MAX);
        self.tally.undecided = self.new.guard.undecided().collect();
        self.tally.left_out = self.today.guard.left_out().max(self.new.guard.left_out());
        self.tally.late = self.reorder.late();
        self.tally.evicted = self.today.decider.evictions() + self.new.decider.evictions();
        self.progress.finish();
        read
    }

    fn line(&mut self, line: u64, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let parsed = match self.format.parse(text.as_bytes()) {
            Ok(parsed) => parsed,
            Err(error) => return self.failed(line, &error),
        };
        match (self.today.guard.of(&parsed), self.new.guard.of(&parsed)) {
            (Ok(None), Ok(None)) => {
                self.tally.unguarded += 1;
                self.tally.unguarded_paths.add(&parsed);
            }
            (Ok(today), Ok(new)) => self.reorder.push(parsed.at, WaitingLine { line, today, new }),
            (Err(error), _) | (_, Err(error)) => return self.failed(line, &error),
        }
        while let Some((at, waiting)) = self.reorder.pop_due() {
            self.decide(at, waiting);
        }
    }

    fn decide(&mut self, at: Micros, WaitingLine { line, today, new }: WaitingLine) {
        self.go_on(at);
        self.tally.arrived(at);
        let (today, new) = (self.today.ask(line, at, today), self.new.ask(line, at, new));
        self.undecided.insert(line, UndecidedLine { at, today, new });
        self.finish(line);
    }

    /// Decides delayed lines whose time comes at `now` or before.
    fn go_on(&mut self, now: Micros) {
        while let Some((line, verdict)) = self.today.next_decided(now) {
            let undecided = self.undecided.get_mut(&line).expect("held lines are undecided");
            undecided.today = Some(verdict);
            self.finish(line);
        }
        while let Some((line, verdict)) = self.new.next_decided(now) {
            let undecided = self.undecided.get_mut(&line).expect("held lines are undecided");
            undecided.new = Some(verdict);
            self.finish(line);
        }
    }

    /// Counts `line` if both sides have decided it.
    fn finish(&mut self, line: u64) {
        let is_decided = |line: &UndecidedLine| line.today.is_some() && line.new.is_some();
        if !self.undecided.get(&line).is_some_and(is_decided) {
            return;
        }
        match self.undecided.remove(&line) {
            Some(UndecidedLine { at, today: Some(Ok(today)), new: Some(Ok(new)) }) => {
                self.tally.decided(at, &today, &new);
            }
            Some(UndecidedLine { today: Some(Err(error)), .. })
            | Some(UndecidedLine { new: Some(Err(error)), .. }) => self.failed(line, &error),
            _ => {}
        }
    }

    fn failed(&mut self, line: u64, error: &dyn std::fmt::Display) {
        self.tally.errors += 1;
        self.progress.problem(line, &error.to_string());
    }
}

impl Side {
    fn new(
        policies: PolicySet,
        options: &CompareOptions,
        format: &LogFormat,
    ) -> Result<Self, GuardError> {
        let CompareOptions { policy, key, clients: _, reorder: _ } = options;
        let guard = LineGuard::if_any(&policies, policy.as_deref(), key.clone(), format)?;
        let decider = Decider::in_memory(policies, KEYS_MAX_DEFAULT);
        Ok(Self { guard, decider, held: HeldRequests::new() })
    }

    /// Returns the answer to `line`, which takes from `budgets`; `None`: it is delayed.
    fn ask(
        &mut self,
        line: u64,
        at: Micros,
        budgets: Option<Vec<GuardingBudget>>,
    ) -> Option<Result<SideVerdict, EventError>> {
        let Some(budgets) = budgets else { return Some(Ok(SideVerdict::default())) };
        let decided = self.held.ask(&self.decider, at, budgets, |_| line)?;
        Some(verdict(decided).1)
    }

    /// Returns the next line that was delayed and is decided at `now` or before, with its answer.
    fn next_decided(&mut self, now: Micros) -> Option<(u64, Result<SideVerdict, EventError>)> {
        self.held.next_decided(&self.decider, now).map(verdict)
    }
}

/// Returns the line that was decided, and its answer.
fn verdict(decided: Decided<u64>) -> (u64, Result<SideVerdict, EventError>) {
    let Decided { tag, budgets, decided } = decided;
    let verdict = decided.map(|decided| {
        let refused = decided.into_iter().find(|decided| !decided.admission.way.passes());
        let refused_by = refused.and_then(|PolicyDecision { policy, .. }| {
            budgets.iter().position(|budget| budget.policy.name() == policy.name())
        });
        SideVerdict { budgets, refused_by }
    });
    (tag, verdict.map_err(EventError::from))
}

/// Returns the format of a log that begins with `head`.
fn format_of(head: &[u8], clients: &ClientArgs) -> LogFormat {
    let mut lines = head.split(|byte| *byte == b'\n');
    let has_host = lines.find_map(|line| host_in_front(line, clients));
    clients.format(has_host.unwrap_or_default())
}
