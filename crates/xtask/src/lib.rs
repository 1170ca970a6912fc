//! The chores of this repository.
//!
//! | command | what it does |
//! |---|---|
//! | `vectors` | writes the kernel's answers and the schema into `spec/` |
//! | `vectors --check` | fails if they differ from the kernel |
//! | `texts` | writes `docs/texts.txt`, every text that users see, and `docs/findings.json`, those with codes |
//! | `texts --check` | fails if they differ from the code |
//! | `policies` | writes the tables of `docs/policies.md` |
//! | `policies --check` | fails if they differ from the schema |
//! | `protobuf` | writes the server's code of the protocols in `spec/proto`, and their descriptors |
//! | `protobuf --check` | fails if they differ from the protocols |
//! | `script` | writes the script of the Redis store, and its SHA-1, to `spec/redis` |
//! | `oracle` | answers vectors from standard input, a line each |
//! | `soak [DECISIONS]` | takes that many single decisions at 7/s, in release (10^9 by default) |
//! | `mutants [NAME]` | plants faults in a copy, each of which the simulator of a fleet must find (minutes each) |
//! | `tidy` | checks the rules of ARCHITECTURE.md (`tests/tidy.rs`): sizes, docs, arrows |

pub mod cargo;
pub mod circles;
pub mod dependencies;
pub mod doc_comments;
pub mod findings;
pub mod mutants;
pub mod oracle;
pub mod policies;
pub mod protobuf;
pub mod public_api;
pub mod seams;
mod shipped;
pub mod texts;
pub mod tuples;
pub mod type_names;
pub mod vectors;
pub mod waits;

use anyhow::{Result, bail};

/// Runs the chore in `args` and returns its report.
///
/// # Errors
/// If the chore fails or does not exist.
pub fn run(args: &[&str]) -> Result<String> {
    match args {
        ["vectors"] => vectors::write(),
        ["vectors", "--check"] => vectors::check(),
        ["texts"] => Ok(format!("{}\n{}", texts::write()?, findings::write()?)),
        ["texts", "--check"] => Ok(format!("{}\n{}", texts::check()?, findings::check()?)),
        ["policies"] => policies::write(),
        ["policies", "--check"] => policies::check(),
        ["protobuf"] => protobuf::write(),
        ["protobuf", "--check"] => protobuf::check(),
        ["soak"] => cargo::soak(cargo::SOAK_DECISIONS),
        ["soak", decisions] => cargo::soak(decisions.parse()?),
        ["oracle"] => oracle::run(std::io::stdin().lock(), std::io::stdout().lock()),
        ["script"] => cargo::script(),
        ["mutants"] => mutants::mutants(""),
        ["mutants", name] => mutants::mutants(name),
        ["tidy"] => cargo::tidy(),
        _ => bail!(
            "usage: cargo xtask vectors [--check] | texts [--check] | policies [--check] | protobuf [--check] | script | oracle | soak [DECISIONS] | mutants [NAME] | tidy"
        ),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn an_unknown_chore_is_told_which_there_are() {
        let problem = super::run(&["vector"]).unwrap_err().to_string();
        assert!(problem.contains("vectors [--check]"), "{problem}");
        assert!(super::run(&["soak", "many"]).is_err());
    }
}
