//! Tests that wait by the clock on the wall.
//!
//! A test that sleeps is slow, and fails on a busy machine. Time is passed in, or tokio's clock is paused
//! (`start_paused`); what is left waits for another process, and is listed with its reason.

use crate::seams::{File, is_of_name};

/// Most reasons to wait: a longer list is a habit.
const REASONS_MAX: usize = 10;

/// The calls by which a test waits.
const WAITS: [&str; 2] = ["sleep(", "park_timeout("];

/// A file or folder whose tests wait.
struct KnownWait {
    place: &'static str,
    reason: &'static str,
}

/// The files and folders whose tests wait.
const KNOWN: &[KnownWait] = &[
    KnownWait {
        place: "crates/cli/tests/it/catalog/stage.rs",
        reason: "looks every 20 ms whether another process is ready",
    },
    KnownWait {
        place: "crates/cli/tests/it/catalog/traffic.rs",
        reason: "a server must not report within its second",
    },
    KnownWait {
        place: "crates/cli/tests/it/client/bench.rs",
        reason: "a server stands still for longer than a deadline",
    },
    KnownWait {
        place: "crates/cli/tests/it/replay/redis.rs",
        reason: "Redis is paused again and again while a replay asks it",
    },
    KnownWait {
        place: "crates/cli/tests/it/tls/renewal.rs",
        reason: "a server must live on after a signal",
    },
    KnownWait {
        place: "crates/control/tests/it/api/traffic.rs",
        reason: "an open stream ends when a grant does",
    },
    KnownWait {
        place: "crates/store/tests/it/redis_client",
        reason: "Redis, Sentinel and Cluster need their time to notice faults",
    },
    KnownWait {
        place: "crates/store/tests/it/redis_exact",
        reason: "the rate of a real Redis is measured in its seconds",
    },
    KnownWait {
        place: "crates/store/tests/it/redis_store/late.rs",
        reason: "looks every 20 ms whether late grants came back",
    },
    KnownWait {
        place: "crates/testkit/tests/kit/proxy.rs",
        reason: "delays of a proxy are delays of real bytes",
    },
];

/// The tests in `files` that wait and are not listed, and what is wrong with the list, one line each.
pub fn problems(files: &[File]) -> Vec<String> {
    compare(files, KNOWN)
}

fn compare(files: &[File], known: &[KnownWait]) -> Vec<String> {
    let waiting: Vec<_> = files.iter().filter(|(path, text)| waits(path, text)).collect();
    let is_of = |path: &str, place: &str| {
        path.strip_prefix(place).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let new =
        waiting.iter().filter(|(path, _)| !known.iter().any(|known| is_of(path, known.place)));
    let new = new.map(|(path, _)| {
        format!("{path}: a test waits by the wall's clock: pass time in, or list it with a reason")
    });
    let gone =
        known.iter().filter(|known| !waiting.iter().any(|(path, _)| is_of(path, known.place)));
    let gone = gone.map(|KnownWait { place, reason }| {
        format!("{place}: no test waits here: remove it from the list ({reason})")
    });
    let long = (known.len() > REASONS_MAX)
        .then(|| format!("{} reasons to wait are more than {REASONS_MAX}", known.len()));
    new.chain(gone).chain(long).collect()
}

/// Returns whether a test in this file waits.
fn waits(path: &str, text: &str) -> bool {
    let is_test = path.contains("/tests/") || path.ends_with("/tests.rs");
    let tests = if is_test { Some(text) } else { unit_tests(text) };
    let is_checked = path.ends_with(".rs") && !path.starts_with("crates/xtask/");
    tests.filter(|tests| is_checked && !tests.contains("start_paused")).is_some_and(|tests| {
        let lines = tests.lines().filter(|line| !line.trim_start().starts_with("//"));
        let calls = |line: &str, wait: &str| {
            line.match_indices(wait).any(|(at, _)| !line[..at].ends_with(is_of_name))
        };
        lines.into_iter().any(|line| WAITS.iter().any(|wait| calls(line, wait)))
    })
}

fn unit_tests(text: &str) -> Option<&str> {
    text.split_once("\n#[cfg(test)]\nmod tests {").map(|(_, tests)| tests)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REASON: &str = "another process needs its time";

    fn problems_of(files: &[(&str, &str)], known: &[KnownWait]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        compare(&files.iter().map(file).collect::<Vec<_>>(), known)
    }

    #[test]
    fn a_test_that_waits_is_found_unless_it_is_listed() {
        let waits = [
            ("crates/a/tests/it/b.rs", "tokio::time::sleep(SECOND).await;\n"),
            ("crates/a/src/c/tests.rs", "std::thread::park_timeout(SECOND);\n"),
            ("crates/a/src/d.rs", "\n#[cfg(test)]\nmod tests {\n    sleep(SECOND).await;\n}\n"),
        ];
        for (path, text) in waits {
            let found = format!(
                "{path}: a test waits by the wall's clock: pass time in, or list it with a reason"
            );
            assert_eq!(problems_of(&[(path, text)], &[]), [found]);
            assert_eq!(
                problems_of(&[(path, text)], &[KnownWait { place: path, reason: REASON }]),
                [""; 0]
            );
        }
        assert_eq!(
            problems_of(&waits[..1], &[KnownWait { place: "crates/a/tests", reason: REASON }]),
            [""; 0]
        );
    }

    #[test]
    fn paused_clocks_products_and_comments_do_not_wait() {
        let files = [
            (
                "crates/a/tests/it/b.rs",
                "#[tokio::test(start_paused = true)]\nsleep(SECOND).await;\n",
            ),
            ("crates/a/src/c.rs", "tokio::time::sleep(SECOND).await;\n"),
            ("crates/a/tests/it/d.rs", "// sleep(SECOND)\nno_sleep(SECOND);\n"),
        ];
        assert_eq!(problems_of(&files, &[]), [""; 0]);
    }

    #[test]
    fn a_list_that_is_too_long_or_out_of_date_is_found() {
        let gone =
            format!("crates/a/tests: no test waits here: remove it from the list ({REASON})");
        assert_eq!(
            problems_of(&[], &[KnownWait { place: "crates/a/tests", reason: REASON }]),
            [gone]
        );
        let file = [("crates/a/tests/it/b.rs", "sleep(SECOND).await;\n")];
        let long = "11 reasons to wait are more than 10";
        assert_eq!(
            problems_of(
                &file,
                &[0; 11].map(|_| KnownWait { place: "crates/a/tests", reason: REASON })
            ),
            [long]
        );
    }
}
