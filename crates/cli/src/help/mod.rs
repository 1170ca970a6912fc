//! Additions to `--help` and the manual pages: groups of commands, examples, exit statuses, variables and files.
//!
//! ```text
//! Cli::command() ─▶ with_groups ─┬─▶ the parser, --help, completions
//!   groups, examples ────────────┘
//!   manual ─▶ pages: the same command, and the tables as sections
//! ```

mod examples;
mod groups;
mod manual;
mod tips;

use clap::Command;
use clap::builder::StyledStr;
use clap_complete::engine::ArgValueCompleter;

use crate::names;
pub(crate) use manual::write_pages;
pub(crate) use tips::with_tip;

/// The whole command line with groups and examples.
pub(crate) fn with_groups(command: Command) -> Command {
    let command = with_more(command, &mut Vec::new());
    let groups = groups::listed(&command);
    let (usage, options) = (header(&command, "Usage:"), header(&command, "Options:"));
    command.help_template(StyledStr::from(format!(
        "{{about-with-newline}}\n{usage} {{usage}}\n\n{groups}{options}\n{{options}}{{after-help}}"
    )))
}

/// The argument that is the name of a policy, in every command that has one.
const POLICY: &str = "policy";

/// Adds examples and completions of names to `command` and its subcommands; `path` has the names above it.
fn with_more(mut command: Command, path: &mut Vec<String>) -> Command {
    let names: Vec<_> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        path.push(name.clone());
        command = command.mut_subcommand(&name, |sub| with_more(sub, path));
        path.pop();
    }
    command = command.mut_args(|arg| match arg.get_id() == POLICY {
        true => arg.add(ArgValueCompleter::new(names::candidates)),
        false => arg,
    });
    let lines = examples::of(&path.join(" "));
    let head = header(&command, "Examples:");
    let text = lines.iter().map(|line| format!("\n  {line}")).collect::<String>();
    command.after_help(StyledStr::from(format!("{head}{text}")))
}

/// A heading in the style of `command`; a stream other than a terminal drops the style.
fn header(command: &Command, text: &str) -> String {
    let style = command.get_styles().get_header();
    format!("{style}{text}{style:#}")
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::cli::{Cli, command};

    #[test]
    fn the_command_line_is_sound() {
        command().debug_assert();
    }

    /// The paths of all commands that run something.
    pub(super) fn leaves(command: &Command, path: &str, found: &mut Vec<String>) {
        let subcommands: Vec<_> = command.get_subcommands().collect();
        if subcommands.is_empty() {
            found.push(path.to_owned());
        }
        for sub in subcommands {
            let below = format!("{path} {}", sub.get_name());
            leaves(sub, below.trim(), found);
        }
    }

    #[test]
    fn every_command_has_two_or_three_examples_which_the_parser_accepts() {
        let mut paths = Vec::new();
        leaves(&Cli::command(), "", &mut paths);
        assert!(paths.len() > 40, "{paths:?}");
        for path in paths {
            let examples = examples::of(&path);
            assert!((2..=3).contains(&examples.len()), "{path}: {examples:?}");
            for line in examples {
                assert!(line.starts_with(&format!("sluicegate {path}")), "{path}: {line}");
                let words = line.split([';', '|', '>', '<']).next().expect("a split has a part");
                let parsed = Cli::try_parse_from(words.split_whitespace());
                assert!(parsed.is_ok(), "{line}: {}", parsed.expect_err("it is none"));
            }
        }
    }

    #[test]
    fn every_command_that_asks_a_server_takes_its_address_from_the_environment() {
        let mut pending = vec![Cli::command()];
        let mut asking = 0;
        while let Some(command) = pending.pop() {
            let to = command.get_arguments().find(|arg| arg.get_long() == Some("to"));
            // `bench` has a default for each protocol; it reads the variable itself.
            if let Some(to) = to.filter(|_| command.get_name() != "bench") {
                assert!(to.get_env().is_some(), "{}", command.get_name());
                asking += 1;
            }
            pending.extend(command.get_subcommands().cloned());
        }
        assert!(asking > 20, "{asking}");
    }
}
