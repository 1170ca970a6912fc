//! Manual pages: the sections of each command, and examples, exit statuses, variables and files.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::examples;
use crate::exit::STATUSES;

/// Variables that commands read, and what each is for.
const VARIABLES: [(&str, &str); 9] = [
    ("SLUICEGATE_CONFIG", "Configuration file of `serve` and `config`, as --config."),
    (
        "SLUICEGATE__SECTION__KEY",
        "A setting of the configuration, such as SLUICEGATE__HTTP__LISTEN. It overrides the file; flags override it.",
    ),
    (
        "SLUICEGATE_URL",
        "HTTP address of the server for `check`, `peek`, `explain`, `refund`, `reset` and `bench http`, as --to.",
    ),
    (
        "SLUICEGATE_ADMIN_URL",
        "Admin address of the server for all other commands that ask one, as --to.",
    ),
    (
        "SLUICEGATE_TOKEN",
        "Token of an app, unless --token-file is set. It comes before the login that `login` stores.",
    ),
    ("SLUICEGATE_CATALOG_URL", "Database of the catalog for `audit`, as --catalog."),
    ("SLUICEGATE_IMPORT_URL", "Database for `import rate-limiter-info`, as --from."),
    (
        "XDG_CONFIG_HOME",
        "Directory of configurations, in which logins are stored. Default: ~/.config.",
    ),
    ("NO_COLOR", "If it is set, nothing has colours. By default, terminals show them."),
];

/// Files that commands read or write.
const FILES: [(&str, &str); 3] = [
    (
        "sluicegate.toml",
        "Configuration of `serve` and `config` if it is in the working directory and no other is set.",
    ),
    ("/etc/sluicegate/sluicegate.toml", "Configuration of the systemd service."),
    (
        "~/.config/sluicegate/logins/",
        "A file for each server with the session that `login` stored, readable by its owner only. It has no password.",
    ),
];

/// Writes a page for `command` and for each command below it to `directory`.
///
/// # Errors
/// Those of writing.
pub(crate) fn write_pages(command: Command, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_page(&command, &[], directory)
}

fn write_page(command: &Command, path: &[&str], directory: &Path) -> io::Result<()> {
    let page = Man::new(command.clone());
    let mut file = File::create(directory.join(page.get_filename()))?;
    page.render_title(&mut file)?;
    page.render_name_section(&mut file)?;
    page.render_synopsis_section(&mut file)?;
    page.render_description_section(&mut file)?;
    page.render_options_section(&mut file)?;
    if command.has_subcommands() {
        page.render_subcommands_section(&mut file)?;
    }
    more_sections(&path.join(" ")).to_writer(&mut file)?;
    file.flush()?;
    for sub in command.get_subcommands() {
        write_page(sub, &[path, &[sub.get_name()]].concat(), directory)?;
    }
    Ok(())
}

/// The sections that follow those of the parser.
fn more_sections(path: &str) -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["EXAMPLES"]);
    page.control("nf", []);
    page.text(
        examples::of(path).into_iter().map(|line| roman(format!("{line}\n"))).collect::<Vec<_>>(),
    );
    page.control("fi", []);
    let statuses = STATUSES.map(|(code, text)| (code.to_string(), text));
    list(&mut page, "EXIT STATUS", statuses.iter().map(|(code, text)| (code.as_str(), *text)));
    list(&mut page, "ENVIRONMENT", VARIABLES);
    list(&mut page, "FILES", FILES);
    page
}

fn list<'t>(page: &mut Roff, title: &str, items: impl IntoIterator<Item = (&'t str, &'t str)>) {
    page.control("SH", [title]);
    for (name, text) in items {
        page.control("TP", []);
        page.text([bold(name)]);
        page.text([roman(text)]);
    }
}
