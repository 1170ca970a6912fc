//! The commands, as `COMMAND` lists them.

use super::error_reply::ErrorReply;
use super::reply::Replies;

/// The version of Redis whose protocol this is; clients choose the commands that they send by it.
pub(super) const REDIS_VERSION: &str = "7.2.0";

/// The description of a command for clients.
#[derive(Debug)]
struct CommandInfo {
    /// In lower case.
    name: &'static str,
    /// The words behind it: `key` is required, `[TOKEN value]` is optional.
    arguments: &'static str,
    /// The place of the key; 0: no key.
    key: u8,
    summary: &'static str,
}

const fn entry(
    name: &'static str,
    arguments: &'static str,
    key: u8,
    summary: &'static str,
) -> CommandInfo {
    CommandInfo { name, arguments, key, summary }
}

const COMMANDS: &[CommandInfo] = &[
    entry(
        "cl.throttle",
        "key max_burst count period [quantity]",
        1,
        "Takes permits by the limit in the command, as redis-cell.",
    ),
    entry(
        "sg.check",
        "policy key [COST n] [APP app] [MAXWAIT ms] [RULES json]",
        2,
        "Takes permits, or is refused.",
    ),
    entry(
        "sg.peek",
        "policy key [COST n] [APP app] [RULES json]",
        2,
        "Returns what the rules say to a check, without overflow, and takes nothing.",
    ),
    entry("sg.refund", "policy key [COST n] [APP app] [RULES json]", 2, "Gives permits back."),
    entry(
        "sg.reset",
        "policy key [APP app] [RULES json]",
        2,
        "Forgets the key: a budget of its own is full again.",
    ),
    entry(
        "sg.acquire",
        "policy key id [COST n] [MAXWAIT ms] [APP app] [RULES json]",
        2,
        "Holds a permit of a `concurrency` rule under the name `id`.",
    ),
    entry(
        "sg.renew",
        "policy key id [APP app] [RULES json]",
        2,
        "Holds a permit for another `ttl`.",
    ),
    entry("sg.release", "policy key id [APP app] [RULES json]", 2, "Gives a held permit back."),
    entry("auth", "[username] password", 0, "Logs in with a password or a token."),
    entry("client", "subcommand [argument]", 0, "Names this connection and describes it."),
    entry("command", "[subcommand] [name]", 0, "Describes the commands."),
    entry("discard", "", 0, "Ends a transaction that failed at its MULTI."),
    entry("echo", "message", 0, "Returns the message."),
    entry("exec", "", 0, "Ends a transaction that failed at its MULTI."),
    entry("hello", "[protover] [AUTH login] [SETNAME clientname]", 0, "Chooses the protocol."),
    entry("info", "[section]", 0, "Describes the server."),
    entry("multi", "", 0, "Fails: there are no transactions."),
    entry("ping", "[message]", 0, "Returns PONG, or the message."),
    entry("quit", "", 0, "Closes the connection."),
    entry("reset", "", 0, "Logs out, and begins as a new connection."),
    entry("select", "index", 0, "Succeeds for 0, the only database."),
];

/// Answers `COMMAND` with these words behind it.
pub(super) fn answer(words: &[&[u8]], replies: &mut Replies) -> Result<(), ErrorReply> {
    let Some((what, names)) = words.split_first() else {
        replies.array(COMMANDS.len());
        COMMANDS.iter().for_each(|entry| entry.write(replies));
        return Ok(());
    };
    match (&*what.to_ascii_uppercase(), names) {
        (b"COUNT", []) => replies.integer(COMMANDS.len() as u64),
        (b"LIST", []) => {
            replies.array(COMMANDS.len());
            COMMANDS.iter().for_each(|entry| replies.bulk(entry.name.as_bytes()));
        }
        (b"DOCS", []) => write_docs(COMMANDS.iter(), COMMANDS.len(), replies),
        (b"DOCS", names) => {
            let known: Vec<_> = names.iter().filter_map(|name| find(name)).collect();
            write_docs(known.iter().copied(), known.len(), replies);
        }
        (b"GETKEYS", [name, words @ ..]) => {
            let entry = find(name).ok_or_else(|| ErrorReply::err("Invalid command specified"))?;
            let key = entry.key_of(words)?;
            replies.array(1);
            replies.bulk(key);
        }
        (b"INFO", names) => {
            replies.array(names.len());
            for name in names {
                match find(name) {
                    Some(entry) => entry.write(replies),
                    None => replies.null_array(),
                }
            }
        }
        _ => {
            return Err(ErrorReply::err(
                "unknown subcommand, expected COMMAND COUNT, DOCS, GETKEYS, INFO or LIST",
            ));
        }
    }
    Ok(())
}

/// The words behind the command `name`, in lower case; empty for an unknown command.
pub(super) fn arguments_of(name: &str) -> &'static str {
    find(name.as_bytes()).map_or("", |entry| entry.arguments)
}

fn find(name: &[u8]) -> Option<&'static CommandInfo> {
    COMMANDS.iter().find(|entry| name.eq_ignore_ascii_case(entry.name.as_bytes()))
}

fn write_docs<'c>(
    entries: impl Iterator<Item = &'c CommandInfo>,
    count: usize,
    replies: &mut Replies,
) {
    replies.map(count);
    for entry in entries {
        replies.bulk(entry.name.as_bytes());
        entry.write_documentation(replies);
    }
}

impl CommandInfo {
    /// The arguments: a name, its token if it has one, and whether it is optional.
    fn arguments(&self) -> Vec<(&'static str, Option<&'static str>, bool)> {
        let (mut all, mut rest) = (Vec::new(), self.arguments);
        while !rest.is_empty() {
            let is_optional = rest.starts_with('[');
            let end = if is_optional { ']' } else { ' ' };
            let (argument, left) = rest.split_once(end).unwrap_or((rest, ""));
            let argument = argument.trim_start_matches('[');
            all.push(match argument.split_once(' ') {
                Some((token, name)) => (name, Some(token), is_optional),
                None => (argument, None, is_optional),
            });
            rest = left.trim_start();
        }
        all
    }

    /// The key among the words behind the name.
    fn key_of<'w>(&self, words: &[&'w [u8]]) -> Result<&'w [u8], ErrorReply> {
        let place = usize::from(self.key).checked_sub(1);
        let place = place.ok_or_else(|| ErrorReply::err("The command has no key arguments"))?;
        let needed = self.arguments().iter().filter(|(_, _, is_optional)| !is_optional).count();
        if words.len() < needed {
            return Err(ErrorReply::err("Invalid number of arguments specified for command"));
        }
        Ok(words[place])
    }

    /// Writes the command as `COMMAND INFO` does.
    fn write(&self, replies: &mut Replies) {
        let arguments = self.arguments();
        let needed = arguments.iter().filter(|(_, _, is_optional)| !is_optional).count() as u64 + 1;
        replies.array(6);
        replies.bulk(self.name.as_bytes());
        match arguments.iter().any(|(_, _, is_optional)| *is_optional) {
            true => replies.negative(needed),
            false => replies.integer(needed),
        }
        replies.array(1);
        replies.simple("fast");
        let key = u64::from(self.key);
        replies.integer(key);
        replies.integer(key);
        replies.integer(u64::from(key > 0));
    }

    /// Writes the command as `COMMAND DOCS` does.
    fn write_documentation(&self, replies: &mut Replies) {
        let arguments = self.arguments();
        replies.map(3 + usize::from(!arguments.is_empty()));
        for (field, text) in
            [("summary", self.summary), ("since", REDIS_VERSION), ("group", "sluicegate")]
        {
            replies.bulk(field.as_bytes());
            replies.bulk(text.as_bytes());
        }
        if arguments.is_empty() {
            return;
        }
        replies.bulk(b"arguments");
        replies.array(arguments.len());
        for (name, token, is_optional) in arguments {
            replies.map(2 + usize::from(token.is_some()) + usize::from(is_optional));
            for (field, text) in [("name", Some(name)), ("type", Some("string")), ("token", token)]
            {
                let Some(text) = text else { continue };
                replies.bulk(field.as_bytes());
                replies.bulk(text.as_bytes());
            }
            if is_optional {
                replies.bulk(b"flags");
                replies.array(1);
                replies.simple("optional");
            }
        }
    }
}
