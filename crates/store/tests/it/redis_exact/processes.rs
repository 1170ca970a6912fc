//! Small limits, to the last permit, from processes that do not know each other.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use sluicegate_kernel::{Micros, Rate, RuleSet, TokenBucket};
use sluicegate_testkit::{Options, RedisServer, need};

use crate::redis_exact::{connect, passes};

const PROCESSES: u64 = 8;
const TRIALS: u64 = 200;
const BURST_MAX: u64 = 39;

/// The variable that makes this very test one of the processes: the URL of the server.
const ROLE: &str = "SLUICEGATE_TEST_CLIENT_OF";

struct Client {
    process: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Client {
    fn start(url: &str) -> Self {
        let program = std::env::current_exe().expect("a test knows where it is");
        let mut process = Command::new(program)
            .args([
                "--exact",
                "redis_exact::processes::small_limits_are_exact_from_eight_processes",
            ])
            .arg("--nocapture")
            .env(ROLE, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a test can be started twice");
        let orders = process.stdin.take().expect("it was piped");
        let answers = BufReader::new(process.stdout.take().expect("it was piped"));
        Self { process, orders, answers }
    }

    fn tell(&mut self, trial: u64) {
        writeln!(self.orders, "{trial}").expect("the process listens");
    }

    fn admitted(&mut self) -> u64 {
        let mut line = String::new();
        while self.answers.read_line(&mut line).expect("the process answers") > 0 {
            if let Some(count) = line.trim().strip_prefix("admitted ") {
                return count.parse().expect("a number");
            }
            line.clear();
        }
        panic!("the process ended");
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Returns a burst of 1..=39, of which a permit flows back after weeks.
fn burst_of(trial: u64) -> u64 {
    trial % BURST_MAX + 1
}

fn rules_of(trial: u64) -> Arc<RuleSet> {
    let rate = Rate::new(1, Micros::from_secs(30 * 86_400)).expect("a rate");
    let bucket = TokenBucket::new(rate, burst_of(trial)).expect("a bucket");
    Arc::new(RuleSet::single("burst", bucket))
}

/// Runs a client process: for every trial that it reads, it takes all permits that it can get.
async fn obey(url: &str) {
    let store = connect(url).await;
    for order in std::io::stdin().lines() {
        let trial: u64 = order.expect("orders are text").parse().expect("a number");
        let (rules, key) = (rules_of(trial), trial.to_le_bytes());
        let mut admitted = 0;
        while passes(&store, &key, &rules).await {
            admitted += 1;
        }
        println!("admitted {admitted}");
    }
}

#[tokio::test]
async fn small_limits_are_exact_from_eight_processes() {
    if let Ok(url) = std::env::var(ROLE) {
        return obey(&url).await;
    }
    let redis = need!(RedisServer::start(Options::default()).await);
    let mut clients: Vec<_> = (0..PROCESSES).map(|_| Client::start(&redis.url())).collect();
    for trial in 0..TRIALS {
        clients.iter_mut().for_each(|client| client.tell(trial));
        let admitted: u64 = clients.iter_mut().map(Client::admitted).sum();
        assert_eq!(admitted, burst_of(trial), "trial {trial}");
    }
}
