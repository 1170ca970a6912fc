//! Tips for arguments that people try first: the parser knows only what it has.

use clap::Error;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// A command, the beginning of an argument that it does not have (empty: one without a name), and the tip.
const TIPS: [(&str, &str, &str); 13] = [
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
    ("replay", "--log", "the log is an argument: `sluicegate replay --policies FILE LOG`"),
];

/// A command, a word behind it that is none of its commands, and the tip.
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

/// `error` of the command line `words`, with the tip that there is for it.
pub(crate) fn with_tip(mut error: Error, words: &[String]) -> Error {
    let commands = words.iter().skip(1).take_while(|word| !word.starts_with('-'));
    let commands = commands.map(String::as_str).collect::<Vec<_>>().join(" ");
    let kind = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => return error,
    };
    let Some(ContextValue::String(given)) = error.get(kind) else { return error };
    if kind == ContextKind::InvalidSubcommand {
        let fits = |(command, word, _): &&(&str, &str, &str)| {
            given == word && commands.starts_with(format!("{command} {word}").trim_start())
        };
        if let Some((_, _, tip)) = COMMANDS.iter().find(fits) {
            let tip = ContextValue::StyledStrs(vec![StyledStr::from(*tip)]);
            // A near word is none of the meaning.
            error.remove(ContextKind::SuggestedSubcommand);
            error.insert(ContextKind::Suggested, tip);
        }
        return error;
    }
    let fits = |(command, argument, _): &&(&str, &str, &str)| {
        let is_named = given.starts_with('-');
        let is_command = commands == *command || commands.starts_with(&format!("{command} "));
        is_command && if argument.is_empty() { !is_named } else { given.starts_with(argument) }
    };
    if let Some((_, _, tip)) = TIPS.iter().find(fits) {
        let tip = ContextValue::StyledStrs(vec![StyledStr::from(*tip)]);
        error.insert(ContextKind::Suggested, tip);
    }
    error
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
            ("replay --log access.log", Some(TIPS[12].2)),
            ("-v", Some("`-V` prints the version")),
            ("serve --port 80", Some("`--listen 127.0.0.1:8080`")),
            ("serve -c a.toml", Some("`--config FILE`")),
            ("validate a.yaml", Some(CHECK)),
            ("policies lint a.yaml", Some("use `sluicegate policies check FILE`")),
            ("policies list", Some(LIST)),
            ("serve --polices x", None),
        ] {
            let words: Vec<_> =
                ["sluicegate"].into_iter().chain(line.split(' ')).map(str::to_owned).collect();
            let error = super::super::command().try_get_matches_from(&words).expect_err(line);
            let shown = with_tip(error, &words).to_string();
            assert_eq!(
                shown.contains("tip: ") && tip.is_some_and(|tip| shown.contains(tip)),
                tip.is_some(),
                "{shown}"
            );
        }
    }
}
