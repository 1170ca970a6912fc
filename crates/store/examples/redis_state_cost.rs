//! The cost of a decision on a long state to Redis, in µs of its CPU.
//!
//! ```sh
//! cargo run --release -p sluicegate-store --features redis --example redis_state_cost
//! ```
//!
//! Each figure is `usec_per_call` of `EVALSHA`: the least of twenty times five calls on one key. It needs
//! a `redis-server`.

use std::error::Error;
use std::sync::Arc;

use sluicegate_kernel::{
    Concurrency, Cost, Micros, Moment, NamedRule, PermitId, Rule, RuleSet, SlidingLog,
    SlidingWindow, Verb,
};
use sluicegate_store::redis::codec::ScriptClock;
use sluicegate_store::redis::{RedisConfig, RedisStore};
use sluicegate_store::{Quota, RuleOrigin, Store, StoreRequest};
use sluicegate_testkit::{Client, Options, RedisServer};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const HOUR: Micros = Micros::from_secs(3_600);
const BEGIN_US: u64 = 1_800_000_000_000_000;

struct Bench {
    store: RedisStore,
    client: Client,
    now: u64,
}

#[tokio::main]
async fn main() -> Result<()> {
    let server = RedisServer::start(Options::default()).await?;
    let url = format!("{}?deadline_ms=10000", server.url());
    let config: RedisConfig = url.parse()?;
    let store = RedisStore::start(&config)?.with_clock(ScriptClock::Given);
    store.ready().await?;
    let client = server.client().await?;
    let mut bench = Bench { store, client, now: BEGIN_US };

    println!("| state | check | refused, dear | peek | peek when all but one is gone |");
    println!("|---|--:|--:|--:|--:|");
    for (length, rules) in [(300, 1), (1_000, 1), (2_350, 1), (120, 8)] {
        let rule = SlidingLog::new(length + 150, HOUR)?;
        bench.timed(&format!("sliding_log of {length}"), rule.into(), (length, rules)).await?;
    }
    for (length, rules) in [(100, 1), (1_000, 1), (100, 8)] {
        let rule = SlidingWindow::new(length + 150, HOUR, length)?;
        bench.timed(&format!("sliding_window of {length}"), rule.into(), (length, rules)).await?;
    }
    println!(
        "\n| permits held | acquire | renew | release | refused, dear | peek | peek when all but one is gone |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|");
    for held in [100, 300, 850] {
        bench.held(held).await?;
    }
    Ok(())
}

impl Bench {
    /// `rules` rules that remember as many requests as `length`, a second apart at the most.
    async fn timed(&mut self, name: &str, rule: Rule, (length, rules): (u64, u64)) -> Result<()> {
        let named = |place: u64| NamedRule { name: format!("r{place}").into(), rule: rule.clone() };
        let set = Arc::new(RuleSet::new((0..rules).map(named).collect())?);
        let (key, check) = (format!("{name} {rules}"), Verb::Check { cost: Cost::ONE });
        let apart = HOUR.get() * 9 / 10 / length;
        for _ in 0..length {
            self.now += apart;
            self.ask(&key, &set, &check).await?;
        }
        let all = Cost::new(length + 150)?;
        let checked = self.least(&key, &set, |_| check.clone()).await?;
        let refused = self.least(&key, &set, |_| Verb::Check { cost: all }).await?;
        let peek = |_| Verb::Peek { cost: Cost::ONE };
        let peeked = self.least(&key, &set, peek).await?;
        self.now += HOUR.get() - 2 * apart;
        let gone = self.least(&key, &set, peek).await?;
        self.now += HOUR.get();
        println!("| {rules} × {name} | {checked:.0} | {refused:.0} | {peeked:.0} | {gone:.0} |");
        Ok(())
    }

    async fn held(&mut self, held: u64) -> Result<()> {
        let set = RuleSet::single("held", Concurrency::new(held + 150, HOUR, 0)?);
        let (set, key) = (Arc::new(set), format!("held {held}"));
        let id = |number: u128| PermitId::named(&number.to_string());
        let acquire = |number| Verb::Acquire { cost: Cost::ONE, permit: id(number) };
        for permit in 0..held {
            self.now += 1_000;
            self.ask(&key, &set, &acquire(permit.into())).await?;
        }
        let all = Cost::new(held + 150)?;
        let mut figures = Vec::new();
        let one = u128::from(held);
        figures.push(self.least(&key, &set, |call| acquire(one + call)).await?);
        figures.push(self.least(&key, &set, |call| Verb::Renew { permit: id(call) }).await?);
        let release = |call| Verb::Release { permit: id(one / 2 + call) };
        figures.push(self.least(&key, &set, release).await?);
        let refused = |call| Verb::Acquire { cost: all, permit: id(1 << 64 | call) };
        figures.push(self.least(&key, &set, refused).await?);
        let peek = |_| Verb::Peek { cost: Cost::ONE };
        figures.push(self.least(&key, &set, peek).await?);
        self.now += HOUR.get() - 1;
        self.ask(&key, &set, &Verb::Renew { permit: id(50) }).await?;
        self.now += 1_000_000;
        figures.push(self.least(&key, &set, peek).await?);
        let figures: Vec<_> = figures.iter().map(|figure| format!("{figure:.0}")).collect();
        println!("| {held} | {} |", figures.join(" | "));
        Ok(())
    }

    /// Returns the least µs a call, of twenty times five.
    async fn least(
        &mut self,
        key: &str,
        rules: &Arc<RuleSet>,
        verb: impl Fn(u128) -> Verb,
    ) -> Result<f64> {
        let mut least = f64::MAX;
        for round in 0..20 {
            self.client.call(&["CONFIG", "RESETSTAT"]).await?;
            for call in 0..5 {
                self.ask(key, rules, &verb(5 * round + call)).await?;
            }
            let stats = self.client.call(&["INFO", "commandstats"]).await?.text();
            let line = stats.lines().find(|line| line.starts_with("cmdstat_evalsha:"));
            let figure = line.and_then(|line| line.split("usec_per_call=").nth(1));
            let figure = figure.and_then(|rest| rest.split(',').next()).ok_or("no such figure")?;
            least = least.min(figure.parse()?);
        }
        Ok(least)
    }

    async fn ask(&mut self, key: &str, rules: &Arc<RuleSet>, verb: &Verb) -> Result<()> {
        let key = key.as_bytes();
        let (origin, quota) = (RuleOrigin::default(), Quota::default());
        let request = StoreRequest { policy: "p", key, rules, verb, origin, quota };
        self.store.decide(&request, &Moment::new(Micros::new(self.now))).await?;
        Ok(())
    }
}
