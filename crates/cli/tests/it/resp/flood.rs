//! Floods of random keys, in the memory of a server.

use super::Server;

/// Most keys that the server holds.
const KEYS_MAX: usize = 20_000;

/// Keys that are exhausted before the floods.
const VICTIMS: usize = 200;

/// Commands of one connection at a time: their answers fit into the buffers of the system.
const PIPELINE: usize = 500;

/// Number of these commands whose answer has this beginning.
fn answered(server: &Server, commands: &[String], beginning: &str) -> usize {
    let answers = |commands: &[String]| server.lines(&commands.join("\n"));
    commands.chunks(PIPELINE).map(|chunk| answers(chunk).matches(beginning).count()).sum()
}

#[test]
fn floods_by_every_door_give_no_exhausted_budget_back() {
    let server = Server::start_with(&["--keys-max", &KEYS_MAX.to_string()]);
    let allowed = "*8\r\n:1\r\n";
    let login = |victim: usize| format!("SG.CHECK login victim-{victim}");
    let victims: Vec<_> = (0..VICTIMS).map(login).collect();
    let exhaust: Vec<_> = (0..VICTIMS).map(|victim| login(victim) + " COST 5").collect();
    assert_eq!(answered(&server, &exhaust, allowed), VICTIMS);

    let flood = 0..2 * KEYS_MAX;
    let same: Vec<_> = flood.clone().map(|key| format!("SG.CHECK login {key}")).collect();
    let passed = answered(&server, &same, allowed);
    assert!(passed <= KEYS_MAX / 2 + 5, "{passed}: a quota, and one budget for all others");
    let other: Vec<_> = flood.clone().map(|key| format!("SG.CHECK hourly {key}")).collect();
    answered(&server, &other, allowed);
    let throttle = |key| format!("CL.THROTTLE {key} 0 1 31622400");
    let callers: Vec<_> = flood.map(throttle).collect();
    answered(&server, &callers, "*5\r\n:0\r\n");

    assert_eq!(answered(&server, &victims, allowed), 0, "of {VICTIMS}");
}
