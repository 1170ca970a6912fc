//! The least that a Redis user must be allowed for this client to work.

use super::config::{RedisConfig, Topology};

/// The name of the user if the URL names none.
const USER: &str = "sluicegate";

/// What every key begins with.
const KEYS: &str = "~sg:*";

/// The line of an ACL file (Redis 6.2 or later, Valkey) for the user that `config` logs in as:
/// the commands that the client and its script use, on its own keys, and nothing else. Put the
/// password in the place of `PASSWORD`.
///
/// What stands after `user` is also what `ACL SETUSER` takes.
pub fn acl(config: &RedisConfig) -> String {
    let mut commands = vec!["evalsha", "script|load", "get", "set", "del", "time", "ping"];
    match config.topology() {
        Topology::Standalone(_) => {}
        Topology::Sentinel { .. } => commands.push("role"),
        Topology::Cluster { .. } => commands.extend(["cluster|slots", "asking"]),
    }
    if config.database != 0 {
        commands.push("select");
    }
    let user = config.login.user.as_deref().unwrap_or(USER);
    line(user, &[KEYS, "resetchannels"], &commands)
}

/// The same for the Sentinels, which have users of their own; `None` without Sentinels.
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
            "user app reset on >PASSWORD ~sg:* resetchannels -@all +evalsha +script|load +get \
             +set +del +time +ping +select"
        );
        assert_eq!(sentinel_acl(&config), None);
        let config: RedisConfig = "redis+cluster://h".parse().expect("a good URL");
        assert!(acl(&config).ends_with("+ping +cluster|slots +asking"));
    }
}
