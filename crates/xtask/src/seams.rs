//! Rules that the compiler does not check: wires that do not know one another, the one place that waits for decisions
//! of stores, and names of bounds.

/// A file: its path below the root of the project, and its text.
pub type File = (String, String);

/// The folder of the server's modules.
const SERVER: &str = "crates/server/src/";

/// Wires with a protocol of their own. The admin API uses HTTP.
const WIRES: &[&str] = &["http", "resp", "rls"];

/// The only file that waits for decisions of stores. Messages about leases (`lease`), and decisions that need no wait
/// (`decide_at_once`), do not pass it.
const ASKS: &str = "crates/sluicegate/src/engine/turn.rs";

/// Files that pass calls on to another store: the store that a server chose, and that of a simulated fleet.
const PASS_ON: &[&str] = &["crates/server/src/store.rs", "crates/sim/src/scripts.rs"];

/// Calls that make something that could grow without end, and take its bound.
const BOUNDED: &[&str] = &[
    "mpsc::channel(",
    "sync_channel(",
    "broadcast::channel(",
    "Semaphore::new(",
    "DefaultBodyLimit::max(",
];

/// Beginnings of the comments on bounds.
const OF_BOUNDS: &[&str] = &["Most ", "Longest ", "Largest ", "Maximum ", "At most "];

/// The violations of these rules in `files`, one line each.
pub fn problems(files: &[File]) -> Vec<String> {
    let sources: Vec<_> = files.iter().filter(|(path, _)| is_source(path)).collect();
    let server: Vec<_> = sources.iter().filter(|(path, _)| path.starts_with(SERVER)).collect();
    let mut problems = Vec::new();
    for (path, text) in &sources {
        let code = code(text);
        let asks = ["store.decide(", "store.decide_each(", ".charge_and_decide("]
            .iter()
            .any(|call| code.contains(call));
        let is_store = path.starts_with("crates/store/") || PASS_ON.contains(&path.as_str());
        if asks && !is_store && path != ASKS {
            problems.push(format!("{path} asks a store past {ASKS}"));
        }
        if has_boundless_queue(&code) {
            problems.push(format!("{path} has a queue without a bound"));
        }
        problems
            .extend(bounds(&code).map(|bound| {
                format!("{path}: `{bound}` is no constant whose name ends in `_MAX`")
            }));
        problems.extend(
            misnamed(text)
                .map(|name| format!("{path}: `{name}` is a bound whose name does not say `_MAX`")),
        );
    }
    for (path, text) in &server {
        let Some(wire) = wire_of(path) else { continue };
        for other in WIRES.iter().filter(|other| **other != wire) {
            let knows = code(text).contains(&format!("wire::{other}::"));
            if knows {
                problems.push(format!("{path}: the wire `{wire}` knows the wire `{other}`"));
            }
        }
    }
    problems
}

/// Returns whether `code` makes a queue without a bound; a channel for one reply does not count.
fn has_boundless_queue(code: &str) -> bool {
    let calls: Vec<_> = code.split("channel()").collect();
    let made = calls.split_last().map_or(&[][..], |(_, before)| before);
    code.contains("unbounded_channel") || made.iter().any(|before| !before.ends_with("oneshot::"))
}

/// The bounds in `code` that have no name, except 1.
fn bounds(code: &str) -> impl Iterator<Item = &str> {
    let given = BOUNDED.iter().flat_map(|call| code.split(call).skip(1));
    let given = given.filter_map(|rest| rest.split([')', '}', ';']).next()).map(str::trim);
    given.filter(|bound| !bound.is_empty() && !bound.ends_with("_MAX") && *bound != "1")
}

/// The constants of `text` whose comment describes a bound, but whose name does not end in `_MAX`.
fn misnamed(text: &str) -> impl Iterator<Item = &str> {
    let commented = text
        .split("\n\n")
        .flat_map(|part| part.split("/// ").skip(1).take(1).map(move |first| (first, part)));
    let bounds =
        commented.filter(|(first, _)| OF_BOUNDS.iter().any(|word| first.starts_with(word)));
    bounds.filter_map(|(_, part)| {
        let item = part.lines().map(str::trim_start).find(|line| !line.starts_with("//"))?;
        let name = item.split_once("const ")?.1.split_once(':')?.0;
        (!name.contains("_MAX") && !name.contains(' ') && !name.contains('(')).then_some(name)
    })
}

/// Returns whether the file is shipped code, not a test.
fn is_source(path: &str) -> bool {
    let is_rust = path.starts_with("crates/") && path.contains("/src/") && path.ends_with(".rs");
    // This crate contains the texts that are searched for.
    let is_ours = path.starts_with("crates/xtask/");
    is_rust && !is_ours && !path.contains("/tests/") && !path.ends_with("/tests.rs")
}

/// `text` without its unit tests and comments.
pub(crate) fn code(text: &str) -> String {
    let shipped = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = shipped.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

fn wire_of(path: &str) -> Option<&str> {
    let within = path.strip_prefix(SERVER)?.strip_prefix("wire/")?;
    WIRES.iter().find(|wire| within.starts_with(&format!("{wire}/"))).copied()
}

pub(crate) fn is_of_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || char == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(files: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        problems(&files.iter().map(file).collect::<Vec<_>>())
    }

    #[test]
    fn a_wire_that_knows_another_is_found() {
        let text = "use crate::wire::rls::RateLimits;\n";
        let found = problems_of(&[("crates/server/src/wire/http/serve.rs", text)]);
        let expected = "crates/server/src/wire/http/serve.rs: the wire `http` knows the wire `rls`";
        assert_eq!(found, [expected]);
        assert_eq!(problems_of(&[("crates/server/src/wire/rls/mod.rs", text)]), [""; 0]);
        assert_eq!(problems_of(&[("crates/server/src/wire/http/serve/tests.rs", text)]), [""; 0]);
    }

    #[test]
    fn who_asks_a_store_past_the_turn_is_found() {
        let text = "let verdict = self.store.decide(&request, &at).await?;\n";
        let found = problems_of(&[("crates/sluicegate/src/engine/explain.rs", text)]);
        assert_eq!(
            found,
            [
                "crates/sluicegate/src/engine/explain.rs asks a store past crates/sluicegate/src/engine/turn.rs"
            ]
        );
        assert_eq!(problems_of(&[(ASKS, text)]), [""; 0]);
    }

    #[test]
    fn a_queue_without_a_bound_is_found() {
        for queue in ["mpsc::unbounded_channel()", "mpsc::channel()"] {
            let text = format!("let (sender, receiver) = {queue};\n");
            let found = problems_of(&[("crates/store/src/redis/lane.rs", &text)]);
            assert_eq!(found, ["crates/store/src/redis/lane.rs has a queue without a bound"]);
        }
    }

    #[test]
    fn a_bound_without_a_name_is_found() {
        for bound in ["1_024", "config.places", "PLACES"] {
            let text = format!("let places = Semaphore::new({bound});\n");
            let found = problems_of(&[("crates/control/src/places.rs", &text)]);
            let problem = format!("`{bound}` is no constant whose name ends in `_MAX`");
            assert_eq!(found, [format!("crates/control/src/places.rs: {problem}")]);
        }
        let text = "let places = Semaphore::new(PLACES_MAX);\nlet reply = mpsc::sync_channel(1);\n";
        assert_eq!(problems_of(&[("crates/control/src/places.rs", text)]), [""; 0]);
    }

    #[test]
    fn a_bound_whose_name_does_not_say_so_is_found() {
        let text =
            "/// Most places at a time: each takes 64 KiB.\npub(crate) const PLACES: usize = 8;\n";
        let found = problems_of(&[("crates/control/src/places.rs", text)]);
        let problem = "`PLACES` is a bound whose name does not say `_MAX`";
        assert_eq!(found, [format!("crates/control/src/places.rs: {problem}")]);
        let text = text.replace("PLACES", "PLACES_MAX");
        assert_eq!(problems_of(&[("crates/control/src/places.rs", &text)]), [""; 0]);
    }
}
