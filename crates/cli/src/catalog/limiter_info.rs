//! `sluicegate import rate-limiter-info`: the table in which others keep the token buckets of a limiter
//! on Redis, as policies.
//!
//! | column | becomes |
//! |---|---|
//! | `name` | `name` |
//! | `apps` | `apps`: names separated by commas, or a JSON array of them. Each is a whole name |
//! | `max_permits` | `burst`; a bucket begins full, there as here |
//! | `rate` | `rate`, a second; `0.5` is exact, too: `1/2s` |
//! | `created_by`, `updated_by` | a comment |
//!
//! A row that makes no sense is told with its column, and then nothing is printed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use csv::{ReaderBuilder, StringRecord, Trim};
use serde_json::{Value, json};
use sluicegate_control::{LimiterInfo, Url};
use sluicegate_policy::limits::{DOCUMENT_BYTES_MAX, POLICIES_MAX};
use sluicegate_policy::{Document, Policy};
use sluicegate_text::terminal;

use super::yaml;

/// The variable that says the database.
const FROM: &str = "SLUICEGATE_IMPORT_URL";

/// Errors that are told one by one; who has more wants to see these first.
const TOLD_MAX: usize = 20;

/// Most digits behind the point of a rate: a permit in eleven days.
const DECIMALS_MAX: usize = 6;

/// What can be said to `sluicegate import rate-limiter-info`.
#[derive(Args)]
pub(crate) struct LimiterInfoArgs {
    /// The rows as CSV, with a header line; `-` for standard input.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Database with the table: `mysql://USER:PASSWORD@HOST/DATABASE`. Set SLUICEGATE_IMPORT_URL
    /// instead if the URL contains a password.
    #[arg(long, value_name = "URL", conflicts_with = "csv")]
    from: Option<String>,
}

/// A row, and what it is called in errors.
struct NamedRow {
    place: String,
    row: LimiterInfo,
}

/// What is wrong with a cell: its column, and the problem.
type CellError = (&'static str, String);

/// Makes of a cell what stands in a policy.
type CellParser = fn(&str) -> Result<Value, String>;

/// Imports the rows, and prints the policies.
pub(super) async fn run(args: &LimiterInfoArgs) -> Result<ExitCode> {
    let from = || args.from.clone().or_else(|| std::env::var(FROM).ok());
    let rows = match &args.csv {
        Some(path) => rows_of_csv(path)?,
        None => match from() {
            Some(url) => rows_of_database(&url).await?,
            None => bail!("nothing to import: expected --csv FILE, or --from URL or {FROM}"),
        },
    };
    match import(&rows) {
        Ok(text) => {
            // Whoever reads the text shall be able to rely on it.
            Document::parse(&text).context("the rows do not form valid policies")?;
            terminal::print(text.as_bytes()).context("standard output")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(errors) => {
            errors
                .iter()
                .take(TOLD_MAX)
                .for_each(|error| terminal::print_error_line(terminal::escaped(error)));
            if errors.len() > TOLD_MAX {
                terminal::print_error_line(format_args!("and {} more", errors.len() - TOLD_MAX));
            }
            terminal::print_error_line("error: nothing was imported");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// The policies of `rows` as a document, or everything that is wrong with them.
fn import(rows: &[NamedRow]) -> Result<String, Vec<String>> {
    let (mut policies, mut wrong, mut names) = (Vec::new(), Vec::new(), BTreeMap::new());
    for NamedRow { place, row } in rows {
        match policy(row) {
            Ok(policy) => policies.push((comment(row), policy)),
            Err(bad) => wrong.extend(
                bad.into_iter().map(|(column, problem)| format!("{place}: {column}: {problem}")),
            ),
        }
        if let Some(name) = &row.name
            && let Some(earlier) = names.insert(name, place)
        {
            let name = terminal::one_line(name);
            wrong.push(format!("{place}: name: `{name}` is already the name at {earlier}"));
        }
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    let commented = policies.iter().map(|(comment, policy)| (comment.clone(), policy));
    yaml::document(commented).map_err(|error| vec![error.to_string()])
}

/// The policy of one row.
fn policy(row: &LimiterInfo) -> Result<Value, Vec<CellError>> {
    let LimiterInfo { name, apps, max_permits, rate, created_by: _, updated_by: _ } = row;
    let mut bad = Vec::new();
    // In the place of what is wrong stands what is right: the other cells are looked at, too.
    let mut cell = |column, cell: &Option<String>, read: CellParser, right: Value| {
        let read = match cell.as_deref().filter(|cell| !cell.is_empty()) {
            Some(cell) => read(cell),
            None => Err("is missing".to_owned()),
        };
        read.unwrap_or_else(|problem| {
            bad.push((column, problem));
            right
        })
    };
    let name = cell("name", name, |name| Ok(name.into()), "name".into());
    let apps = cell("apps", apps, apps_of, json!(["app"]));
    let burst = cell("max_permits", max_permits, permits, 1.into());
    let rate = cell("rate", rate, rate_of, "1/s".into());
    let bucket = json!({ "rate": rate, "burst": burst });
    let policy = json!({ "name": name, "apps": apps, "rules": [{ "token_bucket": bucket }] });
    if let Err(errors) = Policy::parse_one(&policy.to_string()) {
        let errors = errors.errors().iter();
        bad.extend(errors.map(|error| (column(error.path()), error.problem().to_owned())));
    }
    if bad.is_empty() { Ok(policy) } else { Err(bad) }
}

/// The column from which what is at `path` of a policy was made.
fn column(path: &str) -> &'static str {
    match path {
        path if path.starts_with("apps") => "apps",
        path if path.ends_with(".rate") => "rate",
        path if path.starts_with("rules") => "max_permits",
        _ => "name",
    }
}

/// A list separated by commas, or a JSON array.
fn apps_of(cell: &str) -> Result<Value, String> {
    let apps: Vec<String> = if cell.starts_with('[') {
        let wrong =
            |error| format!("`{}` is not a list of names: {error}", terminal::one_line(cell));
        serde_json::from_str(cell).map_err(wrong)?
    } else {
        cell.split(',').map(|app| app.trim().to_owned()).filter(|app| !app.is_empty()).collect()
    };
    if apps.is_empty() {
        return Err("has no app, so that nothing could use the policy".to_owned());
    }
    Ok(apps.into())
}

fn permits(cell: &str) -> Result<Value, String> {
    match decimal(cell) {
        Some((permits, 1)) => Ok(permits.into()),
        _ => Err(format!("`{}` is not a whole number", terminal::one_line(cell))),
    }
}

fn rate_of(cell: &str) -> Result<Value, String> {
    match decimal(cell) {
        Some((permits, 1)) => Ok(format!("{permits}/s").into()),
        Some((permits, seconds)) => Ok(format!("{permits}/{seconds}s").into()),
        None => {
            let cell = terminal::one_line(cell);
            Err(format!("`{cell}` is not a number of permits a second, such as `100` or `0.5`"))
        }
    }
}

/// `2.50` as `5/2`: a fraction in lowest terms.
fn decimal(text: &str) -> Option<(u64, u64)> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = whole == "0" || !whole.starts_with('0');
    if !is_number(whole) || !is_number(decimals) || !is_plain {
        return None;
    }
    let decimals = decimals.trim_end_matches('0');
    if decimals.len() > DECIMALS_MAX {
        return None;
    }
    let per = 10_u64.pow(u32::try_from(decimals.len()).ok()?);
    let units: u64 = if decimals.is_empty() { 0 } else { decimals.parse().ok()? };
    let units = whole.parse::<u64>().ok()?.checked_mul(per)?.checked_add(units)?;
    let (mut divisor, mut rest) = (per, units % per);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    Some((units / divisor, per / divisor))
}

/// Who answers for it.
fn comment(row: &LimiterInfo) -> Option<String> {
    let by = [("created", &row.created_by), ("updated", &row.updated_by)];
    let by: Vec<_> = by
        .into_iter()
        .filter_map(|(what, who)| {
            let who = who.as_deref().filter(|who| !who.is_empty())?;
            Some(format!("{what} by {}", terminal::one_line(who)))
        })
        .collect();
    (!by.is_empty()).then(|| by.join(", "))
}

async fn rows_of_database(url: &str) -> Result<Vec<NamedRow>> {
    let url: Url = url.parse().context("--from")?;
    let rows = LimiterInfo::read(&url).await.context("--from")?;
    let named = |(place, row): (usize, LimiterInfo)| {
        let name = terminal::one_line(row.name.as_deref().unwrap_or_default());
        NamedRow { place: format!("row {} (`{name}`)", place + 1), row }
    };
    Ok(rows.into_iter().enumerate().map(named).collect())
}

fn rows_of_csv(path: &Path) -> Result<Vec<NamedRow>> {
    let shown = terminal::input(path);
    let input: Box<dyn io::Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(path).with_context(|| format!("cannot read {shown}"))?),
    };
    let mut bytes = Vec::new();
    let read = input.take(DOCUMENT_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    read.with_context(|| format!("cannot read {shown}"))?;
    if bytes.len() > DOCUMENT_BYTES_MAX {
        bail!("{shown}: more than {DOCUMENT_BYTES_MAX} bytes");
    }
    let mut csv = ReaderBuilder::new().trim(Trim::All).from_reader(&*bytes);
    let headers = csv.headers().with_context(|| shown.clone())?.clone();
    let place = |column: &str| headers.iter().position(|name| name.eq_ignore_ascii_case(column));
    let required = |column: &str| {
        place(column)
            .with_context(|| format!("{shown}: column `{column}` is missing in the first line"))
    };
    let columns =
        (required("name")?, required("apps")?, required("max_permits")?, required("rate")?);
    let by = (place("created_by"), place("updated_by"));
    let mut rows = Vec::new();
    for record in csv.records() {
        let record = record.with_context(|| shown.clone())?;
        if rows.len() == POLICIES_MAX {
            bail!("{shown}: more than {POLICIES_MAX} rows");
        }
        let line = record.position().map_or(0, csv::Position::line);
        let row = LimiterInfo {
            name: cell(&record, Some(columns.0)),
            apps: cell(&record, Some(columns.1)),
            max_permits: cell(&record, Some(columns.2)),
            rate: cell(&record, Some(columns.3)),
            created_by: cell(&record, by.0),
            updated_by: cell(&record, by.1),
        };
        rows.push(NamedRow { place: format!("{shown}:{line}"), row });
    }
    Ok(rows)
}

/// A cell; what databases write for nothing is nothing.
fn cell(record: &StringRecord, place: Option<usize>) -> Option<String> {
    let text = record.get(place?)?;
    (!matches!(text, "" | "NULL" | "\\N")).then(|| text.to_owned())
}

impl std::fmt::Debug for LimiterInfoArgs {
    /// There may be a password in it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LimiterInfoArgs").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_exact_fractions() {
        for (text, expected) in [
            ("100", Some((100, 1))),
            ("20.00", Some((20, 1))),
            ("0.5", Some((1, 2))),
            ("2.50", Some((5, 2))),
            ("0.000001", Some((1, 1_000_000))),
            ("0", Some((0, 1))),
            ("0.3333333", None),
            ("1e3", None),
            ("-1", None),
            ("+1", None),
            ("05", None),
            (".5", None),
            ("5.", None),
            ("", None),
            ("99999999999999999999", None),
            ("18446744073709551615.5", None),
        ] {
            assert_eq!(decimal(text), expected, "{text}");
        }
    }
}
