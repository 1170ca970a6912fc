//! The promises of the Redis client, tested on real servers with real faults.
#![cfg(feature = "redis")]

mod acl;
mod cluster;
mod fake;
mod faults;
mod kind;
mod login;
mod sentinel;
mod standalone;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use sluicegate_store::redis::{LuaScript, RedisClient, RedisConfig, RedisError, ScriptArgs};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Adds the first argument to each key; replies `BOOM` for that key instead if it is `boom`, and the error of a
/// replica if it is `readonly`. It uses the commands that the script of the limits uses, and no others.
const COUNT: &str = r"
local replies = {}
for i, key in ipairs(KEYS) do
  local by = ARGV[2 * i - 1]
  if by == 'boom' then
    replies[i] = redis.error_reply('BOOM as asked')
  elseif by == 'readonly' then
    replies[i] = redis.error_reply('READONLY as asked')
  else
    redis.call('TIME')
    local count = (tonumber(redis.call('GET', key)) or 0) + tonumber(by)
    redis.call('SET', key, string.format('%.0f', count), 'PX', 600000)
    replies[i] = string.format('%.0f', count)
  end
end
if #KEYS == 1 then return replies[1] end
return replies
";

static COUNT_SHA1: LazyLock<String> =
    LazyLock::new(|| sha1_smol::Sha1::from(COUNT).digest().to_string());

/// The delay from which a call counts as late: timers tick in milliseconds, and machines have other work.
const GRACE: Duration = Duration::from_millis(5);

fn script() -> LuaScript {
    LuaScript { text: COUNT, sha1: &COUNT_SHA1 }
}

fn start(url: &str) -> RedisClient {
    let config: RedisConfig = url.parse().expect("a URL of the test");
    RedisClient::start(&config, script()).expect("a configuration of the test")
}

/// Returns a client with its connections made.
async fn connect(url: &str) -> Arc<RedisClient> {
    let client = start(url);
    client.ready().await.expect("the server of the test is there");
    Arc::new(client)
}

fn ask(key: impl AsRef<str>, by: &str) -> ScriptArgs {
    let key = Bytes::from(format!("sg:{}", key.as_ref()));
    ScriptArgs { key, args: [Bytes::from(by.to_owned()), Bytes::new()] }
}

/// Adds one to `key`, and returns the count.
async fn count(client: &RedisClient, key: impl AsRef<str>) -> Result<u64, RedisError> {
    let reply = client.eval(ask(key, "1"), client.deadline()).await?;
    Ok(number(&reply))
}

fn number(reply: &Bytes) -> u64 {
    let text = std::str::from_utf8(reply).expect("the script replies in digits");
    text.parse().expect("the script replies in digits")
}

/// A clock that stands while the machine does not let this process run.
///
/// A tick of 1 ms that comes more than 2 ms late stops the clock for the time that it was late, so that a busy
/// machine does not distort the measurement of the client.
#[derive(Clone)]
struct CalmClock {
    stood_us: Arc<AtomicU64>,
}

impl CalmClock {
    const TICK: Duration = Duration::from_millis(1);
    const LATE: Duration = Duration::from_millis(2);

    /// Starts the clock, and its ticks, which run as a task of `tasks`.
    fn start(tasks: &mut JoinSet<Vec<Record>>, stop: tokio::sync::watch::Receiver<bool>) -> Self {
        let stood_us = Arc::new(AtomicU64::new(0));
        let clock = Self { stood_us: Arc::clone(&stood_us) };
        tasks.spawn(async move {
            while !*stop.borrow() {
                let due = Instant::now() + Self::TICK + Self::LATE;
                tokio::time::sleep(Self::TICK).await;
                let late = Instant::now().saturating_duration_since(due);
                let late = u64::try_from(late.as_micros()).expect("tests end");
                stood_us.fetch_add(late, Ordering::Relaxed);
            }
            Vec::new()
        });
        clock
    }

    fn now(&self) -> Instant {
        Instant::now() - Duration::from_micros(self.stood_us.load(Ordering::Relaxed))
    }
}

/// The result of a call, and its time by the clock of its load.
#[derive(Debug)]
struct Record {
    begun: Instant,
    took: Duration,
    result: Result<u64, RedisError>,
}

/// Load in the background: some tasks, each with one call at a time.
struct Load {
    tasks: JoinSet<Vec<Record>>,
    clock: CalmClock,
    until: tokio::sync::watch::Sender<bool>,
}

impl Load {
    /// Starts `callers` of `client`; each pauses for `pause` between calls.
    fn start(client: &Arc<RedisClient>, callers: usize, pause: Duration) -> Self {
        let (until, stop) = tokio::sync::watch::channel(false);
        let mut tasks = JoinSet::new();
        let clock = CalmClock::start(&mut tasks, stop.clone());
        for caller in 0..callers {
            let (client, stop, clock) = (Arc::clone(client), stop.clone(), clock.clone());
            tasks.spawn(async move {
                let mut records = Vec::new();
                while !*stop.borrow() {
                    let begun = clock.now();
                    let result = count(&client, format!("{{load-{caller}}}")).await;
                    let took = clock.now().saturating_duration_since(begun);
                    records.push(Record { begun, took, result });
                    tokio::time::sleep(pause).await;
                }
                records
            });
        }
        Self { tasks, clock, until }
    }

    /// Returns the time by the clock of the records.
    fn now(&self) -> Instant {
        self.clock.now()
    }

    async fn stop(self) -> Vec<Record> {
        self.until.send_replace(true);
        let mut records: Vec<_> = self.tasks.join_all().await.into_iter().flatten().collect();
        records.sort_by_key(|record| record.begun);
        records
    }
}

/// Returns whether a call failed because the machine of the test was too slow for its deadline.
fn is_slow(error: &RedisError) -> bool {
    matches!(error, RedisError::Overloaded { .. } | RedisError::Timeout { .. })
}

/// Returns the time that 99 of 100 calls take at most.
fn p99(records: &[Record]) -> Duration {
    let mut times: Vec<_> = records.iter().map(|record| record.took).collect();
    times.sort();
    times[times.len() * 99 / 100]
}

/// Returns the time from `since` to the first success of a call that began then or later.
fn back_after(records: &[Record], since: Instant) -> Duration {
    let mut later = records.iter().filter(|record| record.begun >= since);
    let success = later.find(|record| record.result.is_ok()).expect("the service came back");
    success.begun + success.took - since
}

/// Waits until `happened`, for at most five seconds.
async fn until(what: &str, mut happened: impl AsyncFnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(5);
    while !happened().await {
        assert!(Instant::now() < limit, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
