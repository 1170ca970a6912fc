//! The effect of joining decisions: decisions per second, their latency, and the server's CPU time
//! for each, with a number of decisions in flight and keys drawn at random.
//!
//! ```sh
//! redis-server --port 7777 --save '' &
//! cargo run --release -p sluicegate-store --features redis --example redis_load -- \
//!   'redis://127.0.0.1:7777?deadline_ms=1000' 64
//! ```
//!
//! It prints the `redis-benchmark` command that makes the same calls of the same script, one key
//! each, from as many clients.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sluicegate_store::redis::{LuaScript, RedisClient, RedisConfig, ScriptArgs, Topology};
use sluicegate_testkit::Client;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A rate limiter of the smallest kind (GCRA) over any number of keys: 1000/s, burst 100.
const SCRIPT: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local replies = {}
for i, key in ipairs(KEYS) do
  local tat = tonumber(redis.call('GET', key) or now)
  if tat < now then tat = now end
  local wait = tat + 1000 - 100000 - now
  if wait <= 0 then
    redis.call('SET', key, string.format('%.0f', tat + 1000), 'PX', 200)
    wait = 0
  end
  replies[i] = string.format('%.0f', wait)
end
if #KEYS == 1 then return replies[1] end
return replies
";

const KEYS: u32 = 100_000;
const ROUND: Duration = Duration::from_secs(2);

fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or("redis://127.0.0.1:6379?deadline_ms=1000".into());
    let in_flight = std::env::args().nth(2).map_or(Ok(64), |number| number.parse())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(&url, in_flight))
}

async fn measure(url: &str, in_flight: usize) -> Result<(), Box<dyn Error>> {
    let sha1 = sha1_smol::Sha1::from(SCRIPT).digest().to_string().leak();
    let script = LuaScript { text: SCRIPT, sha1 };
    println!(
        "redis-benchmark -c {in_flight} -n 200000 -r {KEYS} EVALSHA {sha1} 1 sg:__rand_int__ r a"
    );
    println!("in flight {in_flight}");
    println!("connections  joined_max  decisions/s  p50 us  p99 us  joined  server us/decision");
    let joint = if url.contains('?') { '&' } else { '?' };
    for connections in [1, 2, 4] {
        for joined_max in [1, 4, 16, 64] {
            let url = format!("{url}{joint}connections={connections}&joined_max={joined_max}");
            let config: RedisConfig = url.parse()?;
            let client = Arc::new(RedisClient::start(&config, script)?);
            client.ready().await?;
            let cpu_before = server_cpu_us(&config).await?;
            let begun = Instant::now();
            let mut times = load(&client, in_flight).await;
            let elapsed = begun.elapsed();
            let cpu = server_cpu_us(&config).await? - cpu_before;
            times.sort_unstable();
            let stats = client.stats();
            let decisions = times.len() as f64;
            println!(
                "{connections:11}  {joined_max:10}  {:11.0}  {:6}  {:6}  {:6.1}  {:18.2}",
                decisions / elapsed.as_secs_f64(),
                times[times.len() / 2].as_micros(),
                times[times.len() * 99 / 100].as_micros(),
                stats.calls as f64 / stats.batches as f64,
                cpu / decisions,
            );
        }
    }
    Ok(())
}

/// The time that each decision took, with `in_flight` of them under way for a while.
async fn load(client: &Arc<RedisClient>, in_flight: usize) -> Vec<Duration> {
    let mut callers = JoinSet::new();
    let end = Instant::now() + ROUND;
    for seed in 0..in_flight {
        let client = Arc::clone(client);
        callers.spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed as u64);
            let mut times = Vec::new();
            loop {
                let begun = Instant::now();
                if begun >= end {
                    return times;
                }
                let key = Bytes::from(format!("sg:{:012}", random.u32(..KEYS)));
                let args = [Bytes::from_static(b"r"), Bytes::from_static(b"a")];
                let reply = client.eval(ScriptArgs { key, args }, client.deadline()).await;
                reply.expect("the server of the measurement answers");
                times.push(begun.elapsed());
            }
        });
    }
    callers.join_all().await.into_iter().flatten().collect()
}

/// The CPU time that the server has used.
async fn server_cpu_us(config: &RedisConfig) -> Result<f64, Box<dyn Error>> {
    let Topology::Standalone(address) = config.topology() else {
        return Err("a single server is measured".into());
    };
    let mut client = Client::connect(address.to_string().parse()?).await?;
    let info = client.call(&["INFO", "cpu"]).await?.text();
    let seconds = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        line.parse::<f64>().ok()
    };
    let user = seconds("used_cpu_user:").ok_or("no CPU time")?;
    Ok(1e6 * (user + seconds("used_cpu_sys:").ok_or("no CPU time")?))
}
