//! The least that a Redis user must be allowed for this client to work.

use super::address::Topology;
use super::announcements::CALLS_CHANNEL;
use super::config::RedisConfig;
use super::publish::POLICIES_CHANNEL;

/// The name of the user if the URL names none.
const USER: &str = "sluicegate";

/// The name of the user for programs that decide in Redis themselves.
const PROGRAM: &str = "sluicegate-program";

/// The pattern of all keys.
const KEYS: &str = "~sg:*";

/// The commands for publishing policies.
const PUBLISHING: &[&str] =
    &["hget", "hset", "hdel", "hlen", "unlink", "rename", "pexpire", "persist", "publish"];

/// The commands for reading policies; `PUBLISH`, by which a program calls requests that wait for a permit elsewhere; and
/// `ECHO`, by which phpredis checks that a persistent connection is alive.
const READING: &[&str] = &["hget", "hgetall", "hscan", "hlen", "publish", "unsubscribe", "echo"];

/// Returns the line of an ACL file (Redis 6.2 or later, Valkey) for the user that `config` logs in as: the
/// commands that the client and its scripts use, on its own keys and its own channel, and nothing else.
/// Replace `PASSWORD` by the password.
///
/// The part after `user` is also what `ACL SETUSER` takes.
pub fn acl(config: &RedisConfig) -> String {
    let user = config.login.user.as_deref().unwrap_or(USER);
    of_data(config, user, PUBLISHING)
}

/// Returns the ACL line for programs that decide in Redis themselves and read the policies there.
pub fn program_acl(config: &RedisConfig) -> String {
    of_data(config, PROGRAM, READING)
}

fn of_data(config: &RedisConfig, user: &str, policies: &[&'static str]) -> String {
    let mut commands = vec!["evalsha", "script|load", "get", "set", "del", "time", "ping"];
    commands.extend(["hmget", "subscribe"]);
    commands.extend(policies);
    match config.topology() {
        Topology::Standalone(_) => {}
        Topology::Sentinel { .. } => commands.push("role"),
        Topology::Cluster { .. } => commands.extend(["cluster|slots", "asking"]),
    }
    if config.database != 0 {
        commands.push("select");
    }
    let (policies, calls) = (format!("&{POLICIES_CHANNEL}"), format!("&{CALLS_CHANNEL}"));
    line(user, &[KEYS, "resetchannels", &policies, &calls], &commands)
}

/// Returns the ACL line for the Sentinels, which have users of their own; `None` without Sentinels.
pub fn sentinel_acl(config: &RedisConfig) -> Option<String> {
    let Topology::Sentinel { .. } = config.topology() else { return None };
    let user = config.sentinel_login.user.as_deref().unwrap_or(USER);
    Some(line(user, &["resetchannels", "&+switch-master"], &["sentinel|master", "subscribe"]))
}

fn line(user: &str, reach: &[&str], commands: &[&str]) -> String {
    let mut line = format!("user {user} reset on >PASSWORD {} -@all", reach.join(" "));
    for command in commands {
        line.push_str(" +");
        line.push_str(command);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_what_the_topology_needs_and_no_password() {
        let config: RedisConfig = "redis://app:hunter2@h/3".parse().expect("a good URL");
        assert_eq!(
            acl(&config),
            "user app reset on >PASSWORD ~sg:* resetchannels &sg:policies &sg:calls -@all +evalsha \
             +script|load +get +set +del +time +ping +hmget +subscribe +hget +hset +hdel +hlen \
             +unlink +rename +pexpire +persist +publish +select"
        );
        assert_eq!(
            program_acl(&config),
            "user sluicegate-program reset on >PASSWORD ~sg:* resetchannels &sg:policies &sg:calls -@all \
             +evalsha +script|load +get +set +del +time +ping +hmget +subscribe +hget +hgetall \
             +hscan +hlen +publish +unsubscribe +echo +select"
        );
        assert_eq!(sentinel_acl(&config), None);
        let config: RedisConfig = "redis+cluster://h".parse().expect("a good URL");
        assert!(acl(&config).ends_with("+publish +cluster|slots +asking"));
        assert!(program_acl(&config).ends_with("+unsubscribe +echo +cluster|slots +asking"));
    }
}
