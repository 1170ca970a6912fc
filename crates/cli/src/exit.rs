//! Exit statuses: one table for the code, the manual pages and `docs/cli.md`.

use std::process::ExitCode;

use sluicegate_text::terminal;

/// Exit status if nothing was decided or compared: no server, an unknown policy, an invalid command line.
pub(crate) const UNKNOWN: u8 = 2;

/// Exit status if the configuration or a file that it names is wrong (`EX_CONFIG` of sysexits.h): a restart cannot
/// help.
pub(crate) const CONFIG: u8 = 78;

/// Reports an invalid command line.
pub(crate) fn invalid(error: &anyhow::Error) -> ExitCode {
    terminal::print_error_line(format_args!("error: {error:#}"));
    ExitCode::from(UNKNOWN)
}

/// Each status, and what it means.
pub(crate) const STATUSES: [(u8, &str); 4] = [
    (
        0,
        "Success. `check`, `acquire`: the request is allowed, also in shadow mode. `peek`, `explain`: the request is within \
         the limits. `policies diff`: no changes. `audit verify`: intact.",
    ),
    (
        1,
        "The command failed. `check`, `acquire`: the request is refused. `peek`, `explain`: it is over a limit, also in \
         shadow mode. `renew`, `release`: the permit is \
         not held any more. `settle`: settled before. `health`, `status`: not ready. `replay`, `policies whatif`: too \
         little of the input could be read, or no policy matches a line of the log. `policies diff`: changes. `audit verify`: broken.",
    ),
    (
        UNKNOWN,
        "Invalid command line. `check`, `peek`, `explain`, `refund`, `settle`, `acquire`, `renew`, `release`, `reset`, \
         `policies diff`, `audit`: no answer, for example because there is no server or no such policy, or a file has a part of \
         the audit.",
    ),
    (
        CONFIG,
        "`serve`, `config check`: the configuration, the policies or another file that it names is wrong; a restart \
         without a change fails again.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_the_command_line_has_the_same_table() {
        let page = include_str!("../../../docs/cli.md");
        for (code, text) in STATUSES {
            assert!(page.contains(&format!("\n| {code} | {text} |\n")), "{code}: {text}");
        }
    }
}
