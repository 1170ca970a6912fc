//! Loads: how often requests come, and for which keys.

use std::fmt;

use fastrand::Rng;

use crate::plan::SECOND;

/// Requests of a fleet: a Poisson process at each node.
pub(super) struct Load {
    /// Requests a second at an instant (s) and a node; at most `most`.
    pub(super) rate: Box<dyn Fn(f64, usize) -> f64 + Send + Sync>,
    pub(super) most: f64,
    pub(super) keys: KeyDistribution,
}

/// The distribution of requests over keys.
#[derive(Clone, Debug)]
pub(super) enum KeyDistribution {
    One,
    /// Each of this many keys is as likely.
    Uniform(usize),
    /// For each key, the probability of it and those before it.
    Zipf(Vec<f64>),
}

impl Load {
    /// Returns a load of `rate` requests a second at each node, all the time.
    pub(super) fn even(rate: f64) -> Self {
        Self { rate: Box::new(move |_, _| rate), most: rate, keys: KeyDistribution::One }
    }

    pub(super) fn varied(
        most: f64,
        rate: impl Fn(f64, usize) -> f64 + Send + Sync + 'static,
    ) -> Self {
        Self { rate: Box::new(rate), most, keys: KeyDistribution::One }
    }

    pub(super) fn of(self, keys: KeyDistribution) -> Self {
        Self { keys, ..self }
    }

    /// Returns the time until the next instant at which a request may come, µs.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "some seconds at most"
    )]
    pub(super) fn gap(&self, rng: &mut Rng) -> u64 {
        let gap = -(1.0 - rng.f64()).ln() / self.most * SECOND as f64;
        (gap as u64).max(1)
    }

    /// Returns whether a request does come at `now`, µs.
    pub(super) fn comes(&self, rng: &mut Rng, now: u64, node: usize) -> bool {
        rng.f64() * self.most < (self.rate)(now as f64 / SECOND as f64, node)
    }
}

impl KeyDistribution {
    /// Returns a distribution over `keys` keys, of which that of rank `k` is as likely as
    /// `1 / k^exponent`.
    pub(super) fn zipf(keys: u32, exponent: f64) -> Self {
        let weights = (1..=keys).map(|rank| f64::from(rank).powf(-exponent));
        let total: f64 = weights.clone().sum();
        let sums = weights.scan(0.0, |sum, weight| {
            *sum += weight / total;
            Some(*sum)
        });
        Self::Zipf(sums.collect())
    }

    pub(super) fn count(&self) -> usize {
        match self {
            Self::One => 1,
            Self::Uniform(count) => *count,
            Self::Zipf(sums) => sums.len(),
        }
    }

    pub(super) fn pick(&self, rng: &mut Rng) -> usize {
        match self {
            Self::One => 0,
            Self::Uniform(count) => rng.usize(0..*count),
            Self::Zipf(sums) => {
                let at = rng.f64();
                sums.partition_point(|sum| *sum < at).min(sums.len() - 1)
            }
        }
    }
}

impl fmt::Debug for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rate: _, most, keys } = self;
        write!(f, "{most}/s a node at most, {} keys", keys.count())
    }
}
