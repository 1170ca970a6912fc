//! The memory store with ten million keys, beside governor's map of keys.

use std::hash::{BuildHasher, RandomState};
use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use governor::Quota;
use governor::clock::QuantaClock as PeerClock;
use governor::state::keyed::DashMapStateStore;
use sluicegate::store::MemoryStore;
use sluicegate::{Cost, KeyedRateLimiter, Micros, QuantaClock, Rate, TokenBucket, Verb};
use sluicegate_kernel::{Moment, RuleSet};
use sluicegate_store::{Quota as KeyQuota, RuleOrigin, StoreRequest};

use crate::measure::{Case, Work};

/// Number of keys that every limiter of these tables holds.
pub const KEYS: u64 = 10_000_000;

/// Limit of keys of our store: more than there are, so that nothing is evicted.
const KEYS_MAX: usize = 16_000_000;

/// All keys are one policy's.
const QUOTA: KeyQuota<'static> = KeyQuota::of("orders");

/// Keys requested before a trace begins again: many more than a processor caches.
const TRACE: usize = 4_000_000;

/// So much that every check is allowed, and written, ...
const BURST: u32 = 1_000_000;

/// ... and so slowly refilled that no budget is full again, and thus forgotten, before the end.
const PERIOD: Duration = Duration::from_secs(3_600);

const CHECK: Verb = Verb::Check { cost: Cost::ONE };

/// A limiter with text keys.
pub trait Keyed: Send + Sync {
    /// Takes one permit of `key`, and returns whether there was one.
    #[expect(clippy::ptr_arg, reason = "governor borrows its own type of key")]
    fn try_acquire(&self, key: &String) -> bool;
}

/// The limiter that is measured.
#[derive(Clone, Copy, Debug)]
pub enum Peer {
    /// Sluicegate's memory store.
    Sluicegate,
    /// Governor with the fast hash that its documentation recommends.
    GovernorAhash,
    /// Governor with its default hash.
    Governor,
}

impl Peer {
    /// All peers.
    pub const ALL: [Self; 3] = [Self::Sluicegate, Self::GovernorAhash, Self::Governor];

    /// Returns the name in the tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sluicegate => "sluicegate",
            Self::GovernorAhash => "governor with ahash",
            Self::Governor => "governor",
        }
    }

    /// Returns the peer with the name `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|peer| peer.name() == name)
    }

    /// A limiter without keys. All of them read the processor's counter at every decision.
    ///
    /// # Errors
    /// If the limiter cannot be made.
    pub fn limiter(self) -> anyhow::Result<Arc<dyn Keyed>> {
        Ok(match self {
            Self::Sluicegate => Arc::new(ours()?),
            Self::GovernorAhash => Arc::new(governor::<ahash::RandomState>()),
            Self::Governor => Arc::new(governor::<RandomState>()),
        })
    }
}

fn rule() -> anyhow::Result<TokenBucket> {
    Ok(TokenBucket::new(Rate::new(1, PERIOD)?, BURST.into())?)
}

fn ours() -> anyhow::Result<KeyedRateLimiter<str>> {
    Ok(KeyedRateLimiter::with_rules(
        [("rule", rule()?.into())],
        KEYS_MAX,
        Arc::new(QuantaClock::new()),
    )?)
}

impl Keyed for KeyedRateLimiter<str> {
    fn try_acquire(&self, key: &String) -> bool {
        KeyedRateLimiter::try_acquire(self, key)
    }
}

type Governor<S> = governor::RateLimiter<String, DashMapStateStore<String, S>, PeerClock>;

fn governor<S: BuildHasher + Clone + Default>() -> Governor<S> {
    let burst = NonZeroU32::new(BURST).expect("it is not zero");
    let quota = Quota::with_period(PERIOD).expect("it is not zero").allow_burst(burst);
    governor::RateLimiter::new(quota, DashMapStateStore::default(), PeerClock::default())
}

impl<S: BuildHasher + Clone + Send + Sync> Keyed for Governor<S> {
    fn try_acquire(&self, key: &String) -> bool {
        self.check_key(key).is_ok()
    }
}

/// Key number `key`: 20 bytes.
pub fn key(key: u64) -> String {
    format!("user:{key:015}")
}

/// The distribution of requests over keys.
#[derive(Clone, Copy, Debug)]
enum Draw {
    Uniform,
    /// The k-th most frequent key about 1/k as often as the first.
    Zipf,
}

/// A sequence of keys, with one position that all threads share.
struct Trace {
    keys: Vec<String>,
    next: AtomicUsize,
}

impl Trace {
    fn new(draw: Draw) -> Arc<Self> {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let keys = (0..TRACE).map(|_| key(random.draw(draw))).collect();
        Arc::new(Self { keys, next: AtomicUsize::new(0) })
    }

    fn work(self: &Arc<Self>, limiter: &Arc<dyn Keyed>) -> Work {
        let (trace, limiter) = (Arc::clone(self), Arc::clone(limiter));
        Box::new(move |ops| {
            trace.for_each(ops, |key| {
                black_box(limiter.try_acquire(key));
            });
        })
    }

    fn for_each(&self, ops: u64, ask: impl FnMut(&String)) {
        let ops = usize::try_from(ops).expect("a round is short");
        let begin = self.next.fetch_add(ops, Ordering::Relaxed) % self.keys.len();
        self.keys[begin..].iter().chain(self.keys.iter().cycle()).take(ops).for_each(ask);
    }
}

struct Random(u64);

impl Random {
    /// Marsaglia's xorshift, 64 bits.
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank between 0 and the number of keys"
    )]
    fn draw(&mut self, draw: Draw) -> u64 {
        match draw {
            Draw::Uniform => self.next() % KEYS,
            Draw::Zipf => {
                let uniform = (self.next() >> 11) as f64 / (1_u64 << 53) as f64;
                let rank = (KEYS as f64).powf(uniform) as u64;
                // The frequent keys are spread among the others: the factor and the number of keys
                // have no common divisor.
                rank.wrapping_mul(2_654_435_761) % KEYS
            }
        }
    }
}

/// Every case of this table: all limiters hold all keys, in the same process.
///
/// # Errors
/// If a limiter cannot be made.
pub fn cases() -> anyhow::Result<Vec<Case>> {
    let full = |peer: Peer| {
        let limiter = peer.limiter()?;
        for number in 0..KEYS {
            limiter.try_acquire(&key(number));
        }
        anyhow::Ok(limiter)
    };
    let ours = full(Peer::Sluicegate)?;
    let (ahash, siphash) = (full(Peer::GovernorAhash)?, full(Peer::Governor)?);
    let (uniform, zipf) = (Trace::new(Draw::Uniform), Trace::new(Draw::Zipf));
    let case = |work, threads, trace: &Arc<Trace>, peer: (&'static str, &_), target| Case {
        work,
        threads,
        ours: trace.work(&ours),
        peer: Some((peer.0, trace.work(peer.1))),
        target,
    };
    let ahash = (Peer::GovernorAhash.name(), &ahash);
    let siphash = (Peer::Governor.name(), &siphash);
    Ok(vec![
        case("10 M keys, uniform", 1, &uniform, ahash, Some(0.30)),
        case("10 M keys, uniform", 1, &uniform, siphash, None),
        case("10 M keys, uniform", 2, &uniform, ahash, Some(0.35)),
        case("10 M keys, Zipf(1)", 1, &zipf, ahash, Some(0.70)),
        case("10 M keys, Zipf(1)", 2, &zipf, ahash, None),
        told_the_time(&uniform)?,
    ])
}

/// The store itself, as the engine calls it: with a policy, a key and the time as arguments.
fn told_the_time(trace: &Arc<Trace>) -> anyhow::Result<Case> {
    let (store, trace) = (MemoryStore::new(KEYS_MAX), Arc::clone(trace));
    let rules = Arc::new(RuleSet::single("rule", rule()?));
    let ask = move |key: &String, now: u64| {
        let request = StoreRequest {
            policy: "orders",
            key: key.as_bytes(),
            rules: &rules,
            verb: &CHECK,
            origin: RuleOrigin::default(),
            quota: QUOTA,
        };
        black_box(store.decide_now(&request, &Moment::new(Micros::new(now))).is_ok());
    };
    (0..KEYS).for_each(|number| ask(&key(number), 0));
    Ok(Case {
        work: "10 M keys, uniform, `MemoryStore::decide_now` told the time",
        threads: 1,
        ours: Box::new(move |ops| {
            let mut now = 0;
            trace.for_each(ops, |key| {
                now += 1;
                ask(key, now);
            });
        }),
        peer: None,
        target: None,
    })
}
