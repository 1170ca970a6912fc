//! The summary at the end of a replay: gathered in bounded memory, printed as text or as JSON.

mod busiest;
pub(crate) mod keys;
pub(crate) mod timeline;

use std::io::{self, Write};

use serde::Serialize;
use sluicegate::{Cost, Micros};

use super::paths::UnmatchedPaths;
use super::readable::{UnreadableInput, check_matched};
use busiest::{Busiest, Second};
use keys::Keys;
use sluicegate_text::human::{Era, percent, span, thousands};
use sluicegate_text::terminal::one_line;
use timeline::{BUCKETS_MAX, RequestFate, Timeline};

/// Note beside policies that were skipped because too many guard one line.
pub(crate) const TOO_MANY_GUARD: &str = "not decided: more than 16 match one line";

/// Undecided policies that are listed.
const UNDECIDED_MAX: usize = 5;

/// Refused keys that are listed.
const LISTED_MAX: usize = 10;

/// The counts of a replay while it runs.
pub(crate) struct ReplayTally {
    /// Checks, reservations, partial grants and acquisitions that were decided.
    requests: u64,
    /// One of them was for more than one permit.
    has_costs: bool,
    allowed: u64,
    waited: u64,
    refused: u64,
    /// Allowed requests that are over a limit in shadow.
    shadowed: u64,
    /// Other operations.
    others: u64,
    /// Events and lines that were not decided.
    pub(crate) errors: u64,
    /// Log lines that no policy matches.
    pub(crate) unmatched: u64,
    /// Their paths.
    pub(crate) unmatched_paths: UnmatchedPaths,
    /// Policies that match log lines and were not decided, because one was chosen: each with its number of lines.
    pub(crate) undecided: Vec<(String, u64)>,
    /// Number of times that a policy was not decided because too many guard one log line.
    pub(crate) left_out: u64,
    /// Log lines that came too late to be put in order.
    pub(crate) late: u64,
    /// Decisions of a server that its stream left out.
    pub(crate) unseen: u64,
    /// Decisions that let pass what the server refused, or the other way round.
    pub(crate) differing: u64,
    /// Budgets that were forgotten although they were not full, and requests without room for a budget of their own.
    pub(crate) evicted: u64,
    /// The instants of the first and the last event that was decided.
    span: Option<(Micros, Micros)>,
    policy: DecidedPolicies,
    keys: Keys,
    before: Busiest,
    after: Busiest,
    timeline: Timeline,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// The request passes, neither degraded nor diverted.
    pub(crate) passes: bool,
    /// The request is over a limit whose policy is in shadow.
    pub(crate) is_shadowed: bool,
    /// Time from its arrival until it passes.
    pub(crate) wait: Micros,
    /// Time from its arrival until its decision.
    pub(crate) delay: Micros,
}

/// The policies of the requests that were decided.
enum DecidedPolicies {
    None,
    One(Box<str>),
    Several,
}

/// The summary at the end.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// The policy of all requests, if it was one.
    #[serde(skip)]
    pub(crate) policy: Option<String>,
    /// Some requests were for more than one permit.
    #[serde(skip)]
    pub(crate) has_costs: bool,
    /// Checks, reservations, partial grants and acquisitions that were decided.
    pub(crate) requests: u64,
    allowed: u64,
    /// Allowed requests that had to wait.
    would_wait: u64,
    pub(crate) refused: u64,
    /// Allowed requests that are over a limit in shadow.
    would_be_refused_in_shadow: u64,
    other_operations: u64,
    errors: u64,
    unmatched: u64,
    /// Policies that match log lines and were not decided, because one was chosen.
    undecided_policies: Vec<UndecidedPolicy>,
    /// Number of times that a policy was not decided because too many guard one log line.
    policies_left_out: u64,
    late: u64,
    /// Decisions of a server that its stream left out.
    unseen: u64,
    /// Decisions that let pass what the server refused, or the other way round.
    differing: u64,
    evicted: u64,
    /// The input was read to its end.
    pub(crate) complete: bool,
    pub(crate) distinct_keys: u64,
    /// `distinct_keys` is exact; otherwise there are more.
    pub(crate) distinct_keys_exact: bool,
    pub(crate) first_at_us: Option<u64>,
    pub(crate) last_at_us: Option<u64>,
    pub(crate) top_refused: Vec<RefusedKey>,
    /// The most by which the counts of `top_refused` may be too high.
    pub(crate) top_refused_excess: u64,
    /// The second with the most requests.
    busiest_second_before: Option<BusySecond>,
    /// The second in which the most requests passed.
    busiest_second_after: Option<BusySecond>,
    pub(crate) timeline: TimeBuckets,
}

#[derive(Debug, Serialize)]
pub(crate) struct RefusedKey {
    pub(crate) policy: String,
    /// `None` is the budget that all share.
    pub(crate) key: Option<String>,
    pub(crate) refused: u64,
}

/// A policy that was not decided, because one policy was chosen for all lines.
#[derive(Clone, Debug, Serialize)]
pub struct UndecidedPolicy {
    /// Its name.
    pub policy: String,
    /// Number of lines that it matches.
    pub lines: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct BusySecond {
    at_us: u64,
    requests: u64,
}

/// Requests over time.
#[derive(Debug, Serialize)]
pub(crate) struct TimeBuckets {
    /// Length of a bucket.
    pub(crate) bucket_us: u64,
    /// The buckets in a row, empty ones included.
    pub(crate) buckets: Vec<CountedBucket>,
}

/// Requests of one bucket of time, by outcome.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct CountedBucket {
    /// Its beginning.
    pub(crate) at_us: u64,
    /// Passed at once.
    pub(crate) passed: u64,
    /// Passed after a wait.
    pub(crate) waited: u64,
    /// Did not pass.
    pub(crate) refused: u64,
}

impl ReplayTally {
    /// Returns counts of 0.
    pub(crate) fn new() -> Self {
        Self {
            requests: 0,
            has_costs: false,
            allowed: 0,
            waited: 0,
            refused: 0,
            shadowed: 0,
            others: 0,
            errors: 0,
            unmatched: 0,
            unmatched_paths: UnmatchedPaths::default(),
            undecided: Vec::new(),
            left_out: 0,
            late: 0,
            unseen: 0,
            differing: 0,
            evicted: 0,
            span: None,
            policy: DecidedPolicies::None,
            keys: Keys::new(),
            before: Busiest::default(),
            after: Busiest::default(),
            timeline: Timeline::new(BUCKETS_MAX),
        }
    }

    /// Counts a request for `cost` permits that came.
    pub(crate) fn arrived(&mut self, at: Micros, cost: Cost) {
        self.passes_by(at);
        self.has_costs |= cost != Cost::ONE;
        self.requests += 1;
        self.timeline.begin(at);
        self.before.add(at, at);
    }

    /// Counts a request that takes from the budget of `key` under `policy`, or `is_refused` there.
    pub(crate) fn count_budget(&mut self, policy: &str, key: Option<&[u8]>, is_refused: bool) {
        self.policy.add(policy);
        self.keys.add(policy, key, is_refused);
    }

    /// Counts the answer to the request that came at `at`.
    pub(crate) fn answered(&mut self, at: Micros, answered: &Answered) {
        let Answered { passes, is_shadowed, wait, delay } = *answered;
        let fate = match (passes, wait) {
            (false, _) => RequestFate::Refused,
            (true, Micros::ZERO) => RequestFate::Passed,
            (true, _) => RequestFate::Waited,
        };
        self.timeline.add(at, fate);
        self.refused += u64::from(!passes);
        self.allowed += u64::from(passes);
        self.waited += u64::from(fate == RequestFate::Waited);
        self.shadowed += u64::from(is_shadowed);
        if passes {
            self.after.add(at.plus(wait), at.plus(delay));
        }
    }

    /// Counts an event of `policy` that is not decided, because another policy was chosen.
    pub(crate) fn left_undecided(&mut self, policy: &str) {
        match self.undecided.iter_mut().find(|(name, _)| name == policy) {
            Some((_, events)) => *events += 1,
            None => self.undecided.push((policy.to_owned(), 1)),
        }
    }

    /// Takes back the count of a request that came but was not decided.
    pub(crate) fn withdrawn(&mut self) {
        self.requests -= 1;
    }

    /// Counts an operation other than a request.
    pub(crate) fn other(&mut self, at: Micros) {
        self.passes_by(at);
        self.others += 1;
    }

    /// Number of events that were read, decided or not.
    pub(crate) fn events(&self) -> u64 {
        self.requests + self.others + self.errors + self.unmatched
    }

    /// Checks that a policy matches one of the lines that could be read.
    ///
    /// # Errors
    /// [`UnreadableInput::Unmatched`].
    pub(crate) fn check_matched(&self) -> Result<(), UnreadableInput> {
        check_matched(self.unmatched, self.errors, self.events(), &self.unmatched_paths)
    }

    /// Returns the summary; `complete`: the input was read to its end.
    pub(crate) fn summary(&self, complete: bool) -> Summary {
        let (distinct, distinct_keys_exact) = self.keys.distinct();
        let busy = |busiest: &Busiest| {
            busiest
                .best()
                .map(|Second { at, count }| BusySecond { at_us: at.get(), requests: count })
        };
        let refused = self.keys.most_refused(LISTED_MAX).into_iter();
        let refused = refused.map(|keys::RefusalCount { count, policy, key }| RefusedKey {
            policy: policy.into(),
            key: key.map(|key| String::from_utf8_lossy(&key).into_owned()),
            refused: count,
        });
        let policy = match &self.policy {
            DecidedPolicies::One(policy) => Some(policy.to_string()),
            DecidedPolicies::None | DecidedPolicies::Several => None,
        };
        Summary {
            policy,
            has_costs: self.has_costs,
            requests: self.requests,
            allowed: self.allowed,
            would_wait: self.waited,
            refused: self.refused,
            would_be_refused_in_shadow: self.shadowed,
            other_operations: self.others,
            errors: self.errors,
            unmatched: self.unmatched,
            undecided_policies: self
                .undecided
                .iter()
                .map(|(policy, lines)| UndecidedPolicy::new(policy, *lines))
                .collect(),
            policies_left_out: self.left_out,
            late: self.late,
            unseen: self.unseen,
            differing: self.differing,
            evicted: self.evicted,
            complete,
            distinct_keys: distinct as u64,
            distinct_keys_exact,
            first_at_us: self.span.map(|(first, _)| first.get()),
            last_at_us: self.span.map(|(_, last)| last.get()),
            top_refused: refused.collect(),
            top_refused_excess: self.keys.refused_excess(),
            busiest_second_before: busy(&self.before),
            busiest_second_after: busy(&self.after),
            timeline: TimeBuckets::of(&self.timeline),
        }
    }

    fn passes_by(&mut self, at: Micros) {
        let (first, _) = self.span.unwrap_or((at, at));
        self.span = Some((first, at));
    }
}

impl DecidedPolicies {
    fn add(&mut self, policy: &str) {
        match self {
            Self::None => *self = Self::One(policy.into()),
            Self::One(one) if **one != *policy => *self = Self::Several,
            Self::One(_) | Self::Several => {}
        }
    }
}

impl UndecidedPolicy {
    pub(crate) fn new(policy: &str, lines: u64) -> Self {
        Self { policy: policy.to_owned(), lines }
    }
}

impl TimeBuckets {
    fn of(timeline: &Timeline) -> Self {
        let buckets = timeline.buckets().map(|(at, bucket)| {
            let timeline::TimeBucket { passed, waited, refused } = bucket;
            CountedBucket { at_us: at.get(), passed, waited, refused }
        });
        Self { bucket_us: timeline.width().get(), buckets: buckets.collect() }
    }
}

impl Summary {
    /// The zero of the instants of the input, concluded from the first.
    pub(crate) fn era(&self) -> Era {
        self.first_at_us.map_or(Era::Zero, |first| Era::of(Micros::new(first)))
    }

    /// The unit in which the first instant is one from 2000 to 2099, if that is not microseconds.
    pub(crate) fn looks_like(&self) -> Option<&'static str> {
        const YEARS_S: std::ops::Range<u64> = 946_684_800..4_102_444_800;
        let first = self.first_at_us?;
        match first {
            first if YEARS_S.contains(&first) => Some("seconds"),
            first if YEARS_S.contains(&(first / 1_000)) => Some("milliseconds"),
            _ => None,
        }
    }

    /// Writes the summary as text, with instants of `era`; `bad` names the lines or events that were not decided.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn write(
        &self,
        out: &mut dyn Write,
        input: &str,
        era: Era,
        bad: &str,
    ) -> io::Result<()> {
        write!(out, "{}: ", one_line(input))?;
        match self.first_at_us.zip(self.last_at_us) {
            None => writeln!(out, "no events")?,
            Some((first, last)) => {
                let (first, last) = (Micros::new(first), Micros::new(last));
                let utc = if era == Era::Unix { " UTC" } else { "" };
                let length = span(last.since(first));
                writeln!(out, "{} to {}{utc} ({length})", era.instant(first), era.instant(last))?;
            }
        }
        if !self.complete {
            writeln!(out, "the input could not be read to the end; results are partial")?;
        }
        writeln!(out)?;
        self.write_counts(out, bad)?;
        write_undecided(out, &self.undecided_policies)?;
        self.write_busiest(out, era)?;
        self.write_refused(out)
    }

    fn write_counts(&self, out: &mut dyn Write, bad: &str) -> io::Result<()> {
        let mut row = |name: &str, count: u64, note: &str| {
            let line = format!("{name:<30}{:>14}   {note}", thousands(count));
            writeln!(out, "{}", line.trim_end())
        };
        row("requests", self.requests, "")?;
        row("allowed", self.allowed, &percent(self.allowed, self.requests))?;
        row("  of these after a wait", self.would_wait, &percent(self.would_wait, self.requests))?;
        row("refused", self.refused, &percent(self.refused, self.requests))?;
        let more = if self.distinct_keys_exact { "" } else { "and more" };
        row("distinct keys", self.distinct_keys, more)?;
        for (name, count, note) in [
            (
                "  of these over in shadow",
                self.would_be_refused_in_shadow,
                "passed, would be refused",
            ),
            ("other operations", self.other_operations, ""),
            (bad, self.errors, "not decided; see standard error"),
            ("unmatched lines", self.unmatched, "no policy applies"),
            ("skipped policies", self.policies_left_out, TOO_MANY_GUARD),
            ("late lines", self.late, "too late, decided at the current time; see --reorder"),
            (
                "missing decisions",
                self.unseen,
                "NOT EXACT: the stream left them out (`weight`, lag)",
            ),
            ("different decisions", self.differing, "the server decided otherwise"),
            ("forgotten budgets", self.evicted, "NOT EXACT: raise --keys-max"),
        ] {
            if count > 0 {
                row(name, count, note)?;
            }
        }
        Ok(())
    }

    fn write_busiest(&self, out: &mut dyn Write, era: Era) -> io::Result<()> {
        for (name, busiest, unit) in [
            ("busiest second, before", self.busiest_second_before, "requests/s"),
            ("busiest second, after", self.busiest_second_after, "allowed/s"),
        ] {
            if let Some(BusySecond { at_us, requests }) = busiest {
                let at = era.instant(Micros::new(at_us));
                writeln!(out, "{name:<30}{:>14}   {unit} at {at}", thousands(requests))?;
            }
        }
        Ok(())
    }

    fn write_refused(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.top_refused.is_empty() {
            return Ok(());
        }
        writeln!(out, "\nmost refused keys")?;
        let one_policy =
            self.top_refused.iter().all(|key| key.policy == self.top_refused[0].policy);
        for RefusedKey { policy, key, refused } in &self.top_refused {
            let key = key.as_deref().map_or("(shared budget)".to_owned(), one_line);
            let policy = if one_policy { String::new() } else { format!("{policy}  ") };
            writeln!(out, "{:>14}  {policy}{key}", thousands(*refused))?;
        }
        if self.top_refused_excess > 0 {
            let excess = thousands(self.top_refused_excess);
            writeln!(out, "(very many keys: each count is up to {excess} too high)")?;
        }
        Ok(())
    }
}

/// Writes the policies that match lines and were not decided, because one was chosen.
pub(crate) fn write_undecided(
    out: &mut dyn Write,
    undecided: &[UndecidedPolicy],
) -> io::Result<()> {
    if undecided.is_empty() {
        return Ok(());
    }
    let named = undecided.iter().take(UNDECIDED_MAX);
    let named = named.map(|UndecidedPolicy { policy, lines }| {
        format!("{policy} ({} line{})", thousands(*lines), if *lines == 1 { "" } else { "s" })
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = if undecided.len() > UNDECIDED_MAX { ", …" } else { "" };
    let (policies, match_them, were) = match undecided.len() {
        1 => ("policy", "matches these lines", "was"),
        _ => ("policies", "match these lines", "were"),
    };
    writeln!(
        out,
        "\n{} further {policies} {match_them} and {were} not decided: {named}{more}",
        undecided.len()
    )
}
