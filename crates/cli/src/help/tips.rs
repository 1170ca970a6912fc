//! Tips for arguments that people often try, but that the parser does not have.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};
use sluicegate_text::terminal;

/// A command, the beginning of an argument that it does not have (empty: one without a name), and the tip.
const TIPS: [(&str, &str, &str); 19] = [
    ("", "-v", "`-V` prints the version; `serve --log-level debug` logs more"),
    ("serve", "--port", "the address is an option: `--listen 127.0.0.1:8080`"),
    ("serve", "-p", "the address is an option: `--listen 127.0.0.1:8080`"),
    ("serve", "-c", "the configuration is an option: `--config FILE`"),
    ("serve", "", "policies are an option: `--policies FILE`"),
    ("check", "--policy", POLICY),
    ("peek", "--policy", POLICY),
    ("explain", "--policy", POLICY),
    ("refund", "--policy", POLICY),
    ("reset", "--policy", POLICY),
    ("tokens create", "--expires", "use `--days N`, 1 to 731"),
    ("tokens create", "", "the name is an option: `--name NAME`"),
    (
        "accounts create",
        "--role",
        "`--admin` makes an administrator; a role is one in an app: `sluicegate members set ACCOUNT --app APP --role owner`",
    ),
    ("check", "--key", POLICY),
    ("peek", "--key", POLICY),
    ("explain", "--key", POLICY),
    ("refund", "--key", POLICY),
    ("reset", "--key", POLICY),
    ("replay", "--log", "the log is an argument: `sluicegate replay --policies FILE LOG`"),
];

/// A command, a word after it that is not one of its subcommands, and the tip.
const COMMANDS: [(&str, &str, &str); 8] = [
    ("", "validate", CHECK),
    ("", "lint", CHECK),
    ("", "test", CHECK),
    ("policies", "validate", "use `sluicegate policies check FILE`"),
    ("policies", "lint", "use `sluicegate policies check FILE`"),
    ("policies", "list", LIST),
    ("policies", "ls", LIST),
    ("policies", "get", LIST),
];

const CHECK: &str = "use `sluicegate policies check FILE` for policies, `sluicegate config check` for the configuration";

const LIST: &str =
    "use `sluicegate policies export --app APP` with a catalog, `sluicegate status` without one";

const POLICY: &str = "the policy is an argument, and the key after it: `POLICY [KEY]`";

/// A command, an option that it lacks, and the tip.
const MISSING: [(&str, &str, &str); 1] = [(
    "policies whatif",
    "--policies",
    "today's policies are `--policies FILE`, or with `--app APP` those of a server",
)];

/// Most commands that a tip names as those that have an option.
const NAMED_MAX: usize = 3;

/// Adds the tip, if there is one, to `error` of the command line `words` of `program`.
pub(crate) fn with_tip(mut error: Error, words: &[String], program: &Command) -> Error {
    let (path, command) = command_of(words, program);
    let given = |error: &Error, kind| match error.get(kind) {
        Some(ContextValue::String(given)) => given.clone(),
        Some(ContextValue::Strings(given)) => given.join(" "),
        _ => String::new(),
    };
    let tip = match error.kind() {
        ErrorKind::UnknownArgument => {
            let given = given(&error, ContextKind::InvalidArg);
            // An option is never meant as a value.
            error.remove(ContextKind::Suggested);
            let is_near = error.get(ContextKind::SuggestedArg).is_some();
            let known = tip_of_argument(&path, &given);
            known.or_else(|| {
                if is_near { None } else { tip_of_other(&path, &given, command, program) }
            })
        }
        ErrorKind::InvalidSubcommand => {
            let given = given(&error, ContextKind::InvalidSubcommand);
            let fits =
                |(command, word, _): &&(&str, &str, &str)| path == *command && given == *word;
            let tip = COMMANDS.iter().find(fits).map(|(_, _, tip)| (*tip).to_owned());
            if tip.is_some() {
                // A similar word does not have the same meaning.
                error.remove(ContextKind::SuggestedSubcommand);
            }
            tip
        }
        ErrorKind::MissingRequiredArgument => {
            let lacks = given(&error, ContextKind::InvalidArg);
            let fits = |(command, option, _): &&(&str, &str, &str)| {
                path == *command && lacks.contains(option)
            };
            MISSING.iter().find(fits).map(|(_, _, tip)| (*tip).to_owned())
        }
        _ => None,
    };
    if let Some(tip) = tip {
        let tip = ContextValue::StyledStrs(vec![StyledStr::from(tip)]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
}

/// The command that `words` name, and its path: `tokens create`.
fn command_of<'c>(words: &[String], program: &'c Command) -> (String, &'c Command) {
    let (mut path, mut command) = (Vec::new(), program);
    for word in words.iter().skip(1) {
        let Some(sub) = command.find_subcommand(word) else { break };
        path.push(sub.get_name().to_owned());
        command = sub;
    }
    (path.join(" "), command)
}

/// The tip for an argument that people often try.
fn tip_of_argument(path: &str, given: &str) -> Option<String> {
    let fits = |(command, argument, _): &&(&str, &str, &str)| {
        let is_named = given.starts_with('-');
        path == *command
            && if argument.is_empty() { !is_named } else { given.starts_with(argument) }
    };
    TIPS.iter().find(fits).map(|(_, _, tip)| (*tip).to_owned())
}

/// The tip for an argument that is an option here, or an option of a few other commands, those of its group first.
fn tip_of_other(path: &str, given: &str, command: &Command, program: &Command) -> Option<String> {
    let has = |command: &Command, long: &str| {
        command.get_arguments().any(|arg| arg.get_long() == Some(long))
    };
    let shown = terminal::one_line(given);
    match given {
        _ if !given.starts_with('-') => match given.parse::<u64>() {
            Ok(_) if has(command, "cost") => {
                Some(format!("the cost is an option: `--cost {shown}`"))
            }
            _ if has(command, "file") => Some(format!("the file is an option: `--file {shown}`")),
            _ => None,
        },
        "--json" if has(command, "output") => Some("use `--output json`".to_owned()),
        "--output" if has(command, "json") => Some("use `--json`".to_owned()),
        "-f" | "--force" if has(command, "yes") => {
            Some("`--yes` does not ask for confirmation".to_owned())
        }
        "-y" | "--yes" => Some("the command does not ask for confirmation".to_owned()),
        _ => {
            let long = given.strip_prefix("--")?;
            let mut others = Vec::new();
            with_option(program, long, &mut Vec::new(), &mut others);
            let group = path.rsplit_once(' ').map(|(group, _)| format!("{group} "));
            let is_near = |other: &String| {
                group.as_ref().is_some_and(|group| other.starts_with(group.as_str()))
            };
            if others.iter().any(is_near) {
                others.retain(is_near);
            }
            // An option of many commands says little.
            let is_known = (1..=NAMED_MAX).contains(&others.len());
            let named = others.iter().map(|other| format!("`{other}`")).collect::<Vec<_>>();
            is_known.then(|| format!("`--{long}` is an option of {}", named.join(", ")))
        }
    }
}

/// Adds the paths of the commands below `command` that have the option `long`.
fn with_option(command: &Command, long: &str, path: &mut Vec<String>, found: &mut Vec<String>) {
    for sub in command.get_subcommands() {
        path.push(sub.get_name().to_owned());
        if sub.get_arguments().any(|arg| arg.get_long() == Some(long)) {
            found.push(path.join(" "));
        }
        with_option(sub, long, path, found);
        path.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_try_first_gets_a_tip() {
        for (line, tip) in [
            ("serve policies.yaml", Some("policies are an option: `--policies FILE`")),
            ("check --policy login alice", Some(POLICY)),
            ("tokens create --app a --expires 30d", Some("use `--days N`, 1 to 731")),
            ("tokens create --app a web", Some("the name is an option: `--name NAME`")),
            ("replay --log access.log", Some(TIPS[18].2)),
            ("-v", Some("`-V` prints the version")),
            ("serve --port 80", Some("`--listen 127.0.0.1:8080`")),
            ("serve -c a.toml", Some("`--config FILE`")),
            ("validate a.yaml", Some(CHECK)),
            ("policies lint a.yaml", Some("use `sluicegate policies check FILE`")),
            ("policies list", Some(LIST)),
            ("serve --polices x", Some("a similar argument exists")),
            ("serve --nothing x", None),
            (
                "accounts create bea --role admin",
                Some("`--admin` makes an administrator; a role is one in an"),
            ),
            (
                "accounts create --role admin bea",
                Some("`sluicegate members set ACCOUNT --app APP --role owner`"),
            ),
            ("check login alice --json", Some("use `--output json`")),
            ("apps list --output json", Some("use `--json`")),
            ("check login alice 3", Some("the cost is an option: `--cost 3`")),
            ("policies apply p.yaml --app shop", Some("the file is an option: `--file p.yaml`")),
            (
                "policies apply -f p.yaml --app shop --yes",
                Some("the command does not ask for confirmation"),
            ),
            ("tokens revoke 1 --app shop --force", Some("`--yes` does not ask for confirmation")),
            ("check login --key alice", Some(POLICY)),
            ("apps create shop --scope check", Some("`--scope` is an option of `tokens create`")),
            ("audit verify --app shop", Some("`--app` is an option of `audit export`\n")),
            ("status --output json", None),
            (
                "policies whatif -f new.yaml --log a.log",
                Some("today's policies are `--policies FILE`, or with"),
            ),
        ] {
            let words: Vec<_> =
                ["sluicegate"].into_iter().chain(line.split(' ')).map(str::to_owned).collect();
            let error = crate::cli::command().try_get_matches_from(&words).expect_err(line);
            let shown = with_tip(error, &words, &crate::cli::command()).to_string();
            assert!(!shown.contains("as a value"), "{shown}");
            assert_eq!(shown.contains("  tip: "), tip.is_some(), "{shown}");
            assert!(tip.is_none_or(|tip| shown.contains(tip)), "{shown}");
        }
    }
}
