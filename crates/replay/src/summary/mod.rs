//! What a replay tells at its end: gathered in bounded memory, told to people or as data.

mod busiest;
pub(crate) mod keys;
pub(crate) mod timeline;

use std::io::{self, Write};

use serde::Serialize;
use sluicegate::{Cost, Decision, Micros};

use busiest::{Busiest, Second};
use keys::Keys;
use sluicegate_text::human::{Era, percent, span, thousands};
use sluicegate_text::terminal::one_line;
use timeline::{BUCKETS_MAX, RequestFate, Timeline};

/// Refused keys that are listed.
const LISTED_MAX: usize = 10;

/// What is counted while a replay runs.
pub(crate) struct ReplayTally {
    /// Checks, reservations, partial grants and acquisitions that were decided.
    requests: u64,
    /// Whether one of them was for more than one permit.
    has_costs: bool,
    allowed: u64,
    waited: u64,
    refused: u64,
    /// Other operations.
    others: u64,
    /// Events and lines that were not decided.
    pub(crate) errors: u64,
    /// Log lines that no policy matches.
    pub(crate) unmatched: u64,
    /// Log lines that came too late to be put in order.
    pub(crate) late: u64,
    /// Budgets that were forgotten although they were not full.
    pub(crate) evicted: u64,
    /// The instants of the first and the last event that was decided.
    span: Option<(Micros, Micros)>,
    policy: DecidedPolicies,
    keys: Keys,
    before: Busiest,
    after: Busiest,
    timeline: Timeline,
}

/// Whose requests were decided.
enum DecidedPolicies {
    None,
    One(Box<str>),
    Several,
}

/// What is told at the end.
#[derive(Debug, Serialize)]
pub(crate) struct Summary {
    /// The policy of all requests, if it was one.
    #[serde(skip)]
    pub(crate) policy: Option<String>,
    /// Whether some requests were for more than one permit.
    #[serde(skip)]
    pub(crate) has_costs: bool,
    /// Checks, reservations, partial grants and acquisitions that were decided.
    pub(crate) requests: u64,
    allowed: u64,
    /// Those of the allowed that had to wait.
    would_wait: u64,
    pub(crate) refused: u64,
    other_operations: u64,
    errors: u64,
    unmatched: u64,
    late: u64,
    evicted: u64,
    /// Whether the input was read to its end.
    pub(crate) complete: bool,
    pub(crate) distinct_keys: u64,
    /// Otherwise there are more keys than that.
    pub(crate) distinct_keys_exact: bool,
    pub(crate) first_at_us: Option<u64>,
    pub(crate) last_at_us: Option<u64>,
    pub(crate) top_refused: Vec<RefusedKey>,
    /// By how much the counts of `top_refused` may be too high.
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

/// Requests of one bucket of time, by what became of them.
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
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self {
            requests: 0,
            has_costs: false,
            allowed: 0,
            waited: 0,
            refused: 0,
            others: 0,
            errors: 0,
            unmatched: 0,
            late: 0,
            evicted: 0,
            span: None,
            policy: DecidedPolicies::None,
            keys: Keys::new(),
            before: Busiest::default(),
            after: Busiest::default(),
            timeline: Timeline::new(BUCKETS_MAX),
        }
    }

    /// A request for `cost` permits comes.
    pub(crate) fn arrived(&mut self, at: Micros, cost: Cost) {
        self.passes_by(at);
        self.has_costs |= cost != Cost::ONE;
        self.requests += 1;
        self.before.add(at, at);
    }

    /// The request of `at` was decided, `delay` later.
    pub(crate) fn decided(
        &mut self,
        policy: &str,
        key: Option<&str>,
        decision: &Decision,
        (at, delay): (Micros, Micros),
    ) {
        let allowed = decision.allowed();
        self.policy.add(policy);
        self.keys.add(policy, key.map(str::as_bytes), !allowed);
        let wait = decision.wait().plus(delay);
        let fate = match (allowed, wait) {
            (false, _) => RequestFate::Refused,
            (true, Micros::ZERO) => RequestFate::Passed,
            (true, _) => RequestFate::Waited,
        };
        self.timeline.add(at, fate);
        match fate {
            RequestFate::Refused => self.refused += 1,
            RequestFate::Passed => self.allowed += 1,
            RequestFate::Waited => {
                (self.allowed, self.waited) = (self.allowed + 1, self.waited + 1);
            }
        }
        if allowed {
            self.after.add(at.plus(wait), at.plus(delay));
        }
    }

    /// A request that arrived was not decided after all.
    pub(crate) fn withdrawn(&mut self) {
        self.requests -= 1;
    }

    /// Something else than a request was done.
    pub(crate) fn other(&mut self, at: Micros) {
        self.passes_by(at);
        self.others += 1;
    }

    /// Events that were read, decided or not.
    pub(crate) fn events(&self) -> u64 {
        self.requests + self.others + self.errors + self.unmatched
    }

    /// What is told at the end; `complete` is whether the input was read to its end.
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
            other_operations: self.others,
            errors: self.errors,
            unmatched: self.unmatched,
            late: self.late,
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
    /// What the instants of the input are counted from, as far as one can tell.
    pub(crate) fn era(&self) -> Era {
        self.first_at_us.map_or(Era::Zero, |first| Era::of(Micros::new(first)))
    }

    /// Tells it to people, with instants of `era`; `bad` is what is not decided.
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
            ("other operations", self.other_operations, ""),
            (bad, self.errors, "not decided; see standard error"),
            ("unmatched lines", self.unmatched, "no policy applies"),
            ("late lines", self.late, "too late, decided at the current time; see --reorder"),
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
