//! The name of a history, or of a part of it, in one line: `s3-6f3a9c20-n2k1-f3.7-l0-t2213`.
//!
//! `s3`, `h4` for hot keys, `q1` for quotas, `e1` for edits of them, or `p2` for permits that are held, is the version of
//! the generator. Then come the seed, the most nodes and keys, the faults and loads that are kept (without the part: all),
//! the last instant in ms, and `r` if the scripts of Redis execute each call too.

use std::fmt;
use std::str::FromStr;

/// The part of a history that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Nodes at most.
    pub nodes: usize,
    /// Keys at most.
    pub keys: usize,
    /// The numbers of the faults that are kept; `None`: all.
    pub faults: Option<Vec<u32>>,
    /// The numbers of the loads that are kept; `None`: all.
    pub loads: Option<Vec<u32>>,
    /// The latest instant at which something begins, µs.
    pub until_us: u64,
    /// Keys are hot, and leased.
    pub leases: bool,
    /// The subject of the history.
    pub subject: HistorySubject,
    /// The generator that makes the plan.
    pub generation: Generation,
    /// The scripts of Redis execute each call as well as the kernel.
    pub scripts: bool,
}

/// The subject of a history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistorySubject {
    /// Rules of rates and windows; keys may be hot.
    #[default]
    Rates,
    /// A quota whose usage does not flow out; such keys are hot.
    Quota,
    /// A quota that other rules replace for a while, and outages around it.
    Edits,
    /// Permits that are held: acquired, renewed and released.
    Permits,
}

/// A generator of plans. Each one adds to the draws of the one before, so that older tokens keep their plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Generation {
    /// Single requests, outages, edits of limits.
    First,
    /// Batches, clients that go away, bounded calls.
    Second,
    /// Edits that change the number of rules, three rules, stores that refuse, slow clocks, time after the last fault.
    #[default]
    Third,
}

/// A history: a seed, and the part of it that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryToken {
    /// The seed.
    pub seed: u64,
    /// The part that is kept.
    pub cut: Cut,
}

/// The names of generators: of fleets without leases, and of those with hot keys.
const NAMES: [(&str, Generation, bool); 6] = [
    ("s1", Generation::First, false),
    ("h2", Generation::First, true),
    ("s2", Generation::Second, false),
    ("h3", Generation::Second, true),
    ("s3", Generation::Third, false),
    ("h4", Generation::Third, true),
];

/// The generators of histories of quotas, of their edits and of permits, with their versions.
const QUOTA: &str = "q1";
const EDITS: &str = "e1";
const PERMITS: &str = "p2";

impl Cut {
    /// Returns whether the fault of this number is kept.
    pub fn has_fault(&self, number: u32) -> bool {
        self.faults.as_ref().is_none_or(|kept| kept.contains(&number))
    }

    /// Returns whether the load of this number is kept.
    pub fn has_load(&self, number: u32) -> bool {
        self.loads.as_ref().is_none_or(|kept| kept.contains(&number))
    }
}

impl Default for Cut {
    fn default() -> Self {
        Self {
            nodes: usize::MAX,
            keys: usize::MAX,
            faults: None,
            loads: None,
            until_us: u64::MAX,
            leases: false,
            subject: HistorySubject::default(),
            generation: Generation::default(),
            scripts: false,
        }
    }
}

impl HistoryToken {
    /// Returns the whole history of a seed. In each third one, keys are hot.
    pub fn of(seed: u64) -> Self {
        Self { seed, cut: Cut { leases: seed % 3 == 1, ..Cut::default() } }
    }

    /// Returns the whole history of a quota.
    pub fn of_quota(seed: u64) -> Self {
        Self { seed, cut: Cut { leases: true, subject: HistorySubject::Quota, ..Cut::default() } }
    }

    /// Returns the whole history of a quota that is edited.
    pub fn of_edits(seed: u64) -> Self {
        Self { seed, cut: Cut { leases: true, subject: HistorySubject::Edits, ..Cut::default() } }
    }

    /// Returns the whole history of permits that are held.
    pub fn of_permits(seed: u64) -> Self {
        Self { seed, cut: Cut { subject: HistorySubject::Permits, ..Cut::default() } }
    }

    /// Returns the history, in which the scripts of Redis execute each call too.
    #[must_use]
    pub fn with_scripts(self) -> Self {
        Self { cut: Cut { scripts: true, ..self.cut }, ..self }
    }
}

impl fmt::Display for HistoryToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, cut } = self;
        let Cut { nodes, keys, faults, loads, until_us, leases, subject, generation, scripts } =
            cut;
        let mut named = NAMES.iter().filter(|(_, of, hot)| (of, hot) == (generation, leases));
        let version = match subject {
            HistorySubject::Rates => named.next().expect("each generator has a name").0,
            HistorySubject::Quota => QUOTA,
            HistorySubject::Edits => EDITS,
            HistorySubject::Permits => PERMITS,
        };
        write!(f, "{version}-{seed:x}")?;
        if *nodes < usize::MAX || *keys < usize::MAX {
            write!(f, "-n{nodes}k{keys}")?;
        }
        for (letter, kept) in [('f', faults), ('l', loads)] {
            if let Some(kept) = kept {
                let kept: Vec<_> = kept.iter().map(u32::to_string).collect();
                write!(f, "-{letter}{}", kept.join("."))?;
            }
        }
        if *until_us < u64::MAX {
            write!(f, "-t{}", until_us / 1_000)?;
        }
        if *scripts {
            write!(f, "-r")?;
        }
        Ok(())
    }
}

impl FromStr for HistoryToken {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("token: `{text}` is not like `s3-6f3a9c20-n2k1-f3.7-l0-t2213`");
        let mut parts = text.trim().trim_start_matches("SIM=").split('-');
        let version = parts.next().ok_or_else(wrong)?;
        let named = NAMES.iter().find(|(name, ..)| *name == version);
        let mut cut = match named {
            Some(&(_, generation, leases)) => Cut { leases, generation, ..Cut::default() },
            None if version == QUOTA => Self::of_quota(0).cut,
            None if version == EDITS => Self::of_edits(0).cut,
            None if version == PERMITS => Self::of_permits(0).cut,
            None => return Err(wrong()),
        };
        let seed = parts.next().and_then(|seed| u64::from_str_radix(seed, 16).ok());
        let seed = seed.ok_or_else(wrong)?;
        for part in parts {
            let (letter, rest) = part.split_at_checked(1).ok_or_else(wrong)?;
            match letter {
                "n" => {
                    let (nodes, keys) = rest.split_once('k').ok_or_else(wrong)?;
                    cut.nodes = nodes.parse().map_err(|_| wrong())?;
                    cut.keys = keys.parse().map_err(|_| wrong())?;
                }
                "f" => cut.faults = Some(numbers(rest).ok_or_else(wrong)?),
                "l" => cut.loads = Some(numbers(rest).ok_or_else(wrong)?),
                "t" => cut.until_us = rest.parse::<u64>().map_err(|_| wrong())? * 1_000,
                "r" if rest.is_empty() => cut.scripts = true,
                _ => return Err(wrong()),
            }
        }
        Ok(Self { seed, cut })
    }
}

fn numbers(text: &str) -> Option<Vec<u32>> {
    text.split('.').filter(|number| !number.is_empty()).map(|number| number.parse().ok()).collect()
}
