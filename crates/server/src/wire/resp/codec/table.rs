//! The commands that there are, as `COMMAND` lists them.

use super::refusal::Refusal;
use super::reply::Replies;

/// What a client may want to know of a command.
#[derive(Debug)]
struct Entry {
    /// In lower case.
    name: &'static str,
    /// Its words, with its name; negative: at least so many.
    arity: i64,
    /// The place of the key; 0: it has none.
    key: i64,
}

const fn entry(name: &'static str, arity: i64, key: i64) -> Entry {
    Entry { name, arity, key }
}

const COMMANDS: &[Entry] = &[
    entry("cl.throttle", -5, 1),
    entry("sg.check", -3, 2),
    entry("sg.peek", -3, 2),
    entry("sg.refund", -3, 2),
    entry("sg.reset", -3, 2),
    entry("sg.acquire", -4, 2),
    entry("sg.renew", -4, 2),
    entry("sg.release", -4, 2),
    entry("auth", -2, 0),
    entry("client", -2, 0),
    entry("command", -1, 0),
    entry("echo", 2, 0),
    entry("hello", -1, 0),
    entry("info", -1, 0),
    entry("ping", -1, 0),
    entry("quit", -1, 0),
    entry("reset", 1, 0),
    entry("select", 2, 0),
];

/// Answers `COMMAND` with these words behind it.
pub(super) fn answer(words: &[&[u8]], replies: &mut Replies) -> Result<(), Refusal> {
    let Some((what, names)) = words.split_first() else {
        replies.array(COMMANDS.len());
        COMMANDS.iter().for_each(|entry| entry.write(replies));
        return Ok(());
    };
    if what.eq_ignore_ascii_case(b"COUNT") && names.is_empty() {
        replies.integer(COMMANDS.len());
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
        return Err(Refusal::err("COMMAND knows COUNT, DOCS and INFO"));
    }
    Ok(())
}

impl Entry {
    fn write(&self, replies: &mut Replies) {
        let Self { name, arity, key } = *self;
        replies.array(6);
        replies.bulk(name.as_bytes());
        replies.integer(arity);
        replies.array(1);
        replies.simple("fast");
        replies.integer(key);
        replies.integer(key);
        replies.integer(i64::from(key > 0));
    }
}
