//! The commands that there are, as `COMMAND` lists them.

use super::error_reply::ErrorReply;
use super::reply::Replies;

/// What a client may want to know of a command.
#[derive(Debug)]
struct CommandInfo {
    /// In lower case.
    name: &'static str,
    words: Arity,
    /// The place of the key; 0: it has none.
    key: u64,
}

/// How many words a command has, with its name.
#[derive(Clone, Copy, Debug)]
enum Arity {
    Just(u64),
    AtLeast(u64),
}

use Arity::{AtLeast, Just};

const fn entry(name: &'static str, words: Arity, key: u64) -> CommandInfo {
    CommandInfo { name, words, key }
}

const COMMANDS: &[CommandInfo] = &[
    entry("cl.throttle", AtLeast(5), 1),
    entry("sg.check", AtLeast(3), 2),
    entry("sg.peek", AtLeast(3), 2),
    entry("sg.refund", AtLeast(3), 2),
    entry("sg.reset", AtLeast(3), 2),
    entry("sg.acquire", AtLeast(4), 2),
    entry("sg.renew", AtLeast(4), 2),
    entry("sg.release", AtLeast(4), 2),
    entry("auth", AtLeast(2), 0),
    entry("client", AtLeast(2), 0),
    entry("command", AtLeast(1), 0),
    entry("echo", Just(2), 0),
    entry("hello", AtLeast(1), 0),
    entry("info", AtLeast(1), 0),
    entry("ping", AtLeast(1), 0),
    entry("quit", AtLeast(1), 0),
    entry("reset", Just(1), 0),
    entry("select", Just(2), 0),
];

/// Answers `COMMAND` with these words behind it.
pub(super) fn answer(words: &[&[u8]], replies: &mut Replies) -> Result<(), ErrorReply> {
    let Some((what, names)) = words.split_first() else {
        replies.array(COMMANDS.len());
        COMMANDS.iter().for_each(|entry| entry.write(replies));
        return Ok(());
    };
    if what.eq_ignore_ascii_case(b"COUNT") && names.is_empty() {
        replies.integer(COMMANDS.len() as u64);
    } else if what.eq_ignore_ascii_case(b"DOCS") {
        // Nothing is told beside what the manual says.
        replies.map(0);
    } else if what.eq_ignore_ascii_case(b"INFO") {
        replies.array(names.len());
        for name in names {
            match COMMANDS.iter().find(|entry| name.eq_ignore_ascii_case(entry.name.as_bytes())) {
                Some(entry) => entry.write(replies),
                None => replies.null_array(),
            }
        }
    } else {
        return Err(ErrorReply::err("unknown subcommand, expected COMMAND COUNT, DOCS or INFO"));
    }
    Ok(())
}

impl CommandInfo {
    fn write(&self, replies: &mut Replies) {
        let Self { name, words, key } = *self;
        replies.array(6);
        replies.bulk(name.as_bytes());
        match words {
            Just(words) => replies.integer(words),
            AtLeast(words) => replies.negative(words),
        }
        replies.array(1);
        replies.simple("fast");
        replies.integer(key);
        replies.integer(key);
        replies.integer(u64::from(key > 0));
    }
}
