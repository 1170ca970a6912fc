//! The groups of commands that `sluicegate --help` lists.

use clap::Command;

use super::header;

/// Each group with its commands. Every command is in one: a test compares them with the parser.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Serve", &["init", "serve", "config"]),
    (
        "Ask",
        &["check", "peek", "explain", "refund", "settle", "acquire", "renew", "release", "reset"],
    ),
    ("Policies", &["policies", "replay", "import"]),
    (
        "Catalog",
        &["login", "logout", "whoami", "apps", "members", "permits", "tokens", "accounts", "audit"],
    ),
    ("Operate", &["health", "status", "top", "events", "bench", "redis-acl"]),
    ("Shell", &["completions", "man"]),
];

/// All groups: a heading, and a line for each command with the first sentence about it.
pub(super) fn listed(command: &Command) -> String {
    let names = GROUPS.iter().flat_map(|(_, names)| *names);
    let width = names.map(|name| name.len()).max().unwrap_or_default();
    let literal = command.get_styles().get_literal();
    let mut text = String::new();
    for (title, names) in GROUPS {
        text += &header(command, &format!("{title}:"));
        text.push('\n');
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let about = about.split(". ").next().unwrap_or_default();
            let space = " ".repeat(width - name.len() + 2);
            text += &format!("  {literal}{name}{literal:#}{space}{about}\n");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn every_command_is_in_one_group() {
        let command = Cli::command();
        let mut grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut names: Vec<_> = command.get_subcommands().map(Command::get_name).collect();
        grouped.sort_unstable();
        names.sort_unstable();
        assert_eq!(grouped, names);
    }

    #[test]
    fn no_line_is_longer_than_a_terminal_of_100_columns() {
        let command = Cli::command().styles(clap::builder::Styles::plain());
        for line in listed(&command).lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}
