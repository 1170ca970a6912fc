//! `redis-benchmark`, of the Redis project: fifty connections at once, pipelined or not.

use sluicegate_testkit::{Error, need};

use super::{Server, output, tool};

/// Commands of one run: a multiple of 64, so that exactly this many are sent.
const COMMANDS: u32 = 12_800;

/// Sends `words` [`COMMANDS`] times over fifty connections, `pipelined` at a time.
fn load(server: &Server, pipelined: u32, words: &[&str]) -> Result<(), Error> {
    let (commands, pipelined) = (COMMANDS.to_string(), pipelined.to_string());
    let mut tool = tool("redis-benchmark")?;
    tool.args(["-p", &server.port(), "-c", "50", "-n", &commands, "-P", &pipelined, "--csv"]);
    output(tool.args(words));
    Ok(())
}

#[test]
fn every_check_of_a_pipeline_is_charged_once() {
    let server = Server::start();
    for (pipelined, key) in [(1, "one"), (16, "sixteen"), (64, "sixty-four")] {
        need!(load(&server, pipelined, &["SG.CHECK", "hourly", key]));
        let left = 100_000 - COMMANDS;
        let said = server.lines(&format!("SG.PEEK hourly {key}"));
        assert!(said.starts_with(&format!("*8\r\n:1\r\n:100000\r\n:{left}\r\n")), "{said}");
    }
}

#[test]
fn every_throttle_of_a_pipeline_is_charged_once() {
    let server = Server::start();
    for (pipelined, key) in [(1, "one"), (16, "sixteen"), (64, "sixty-four")] {
        // One a day: nothing refills while the test runs.
        need!(load(&server, pipelined, &["CL.THROTTLE", key, "19999", "1", "86400"]));
        let (left, reset) = (20_000 - COMMANDS, u64::from(COMMANDS) * 86_400);
        let said = server.lines(&format!("CL.THROTTLE {key} 19999 1 86400 0"));
        // The time that the load took has passed.
        let expected = format!("*5\r\n:0\r\n:20000\r\n:{left}\r\n:-1\r\n:");
        let told = said.strip_prefix(&expected).and_then(|rest| rest.strip_suffix("\r\n+OK\r\n"));
        let told = told.and_then(|seconds| seconds.parse().ok());
        assert!(told.is_some_and(|seconds| (reset - 600..=reset).contains(&seconds)), "{said}");
    }
}

#[test]
fn over_the_limit_exactly_the_limit_passes() {
    let server = Server::start();
    need!(load(&server, 64, &["CL.THROTTLE", "k", "9999", "1", "86400"]));
    let said = server.lines("CL.THROTTLE k 9999 1 86400\nCL.THROTTLE k 19999 1 86400 0");
    let numbers: Vec<i64> =
        said.lines().filter_map(|line| line.strip_prefix(':')?.parse().ok()).collect();
    assert_eq!(numbers[..3], [1, 10_000, 0], "{said}");
    // With cost 0 under a larger limit, the answer shows how many were charged: not one more.
    assert_eq!(numbers[5..8], [0, 20_000, 10_000], "{said}");
}

#[test]
fn random_keys_have_budgets_of_their_own() {
    let server = Server::start();
    need!(load(
        &server,
        16,
        &["-r", "1000000", "CL.THROTTLE", "user:__rand_int__", "0", "1", "86400"]
    ));
    let said = server.lines("CL.THROTTLE nobody 0 1 86400");
    assert!(said.starts_with("*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:86400\r\n"), "{said}");
}
