//! The table `rate_limiter_info`, which configures the token buckets of another limiter on Redis.
//!
//! | column | becomes |
//! |---|---|
//! | `name` | `name` |
//! | `apps` | `apps`: names separated by commas, or a JSON array of them. Each is a whole name |
//! | `max_permits` | `burst`; a bucket begins full, there as here |
//! | `rate` | `rate`, a second; `0.5` is exact, too: `1/2s` |
//! | `created_by`, `updated_by` | a comment |
//!
//! If a row is malformed, nothing is imported.

use std::collections::BTreeMap;

use csv::{ReaderBuilder, StringRecord, Trim};
use serde_json::{Value, json};
use sluicegate_policy::limits::POLICIES_MAX;
use sluicegate_policy::{Policy, finding};
use sluicegate_text::terminal::one_line;

use crate::rates::{decimal, per_second};
use crate::{Imported, ImportedPolicy, Note};

/// A row, as text: the types of the columns differ from one table to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimiterInfo {
    /// `name`.
    pub name: Option<String>,
    /// `apps`.
    pub apps: Option<String>,
    /// `max_permits`.
    pub max_permits: Option<String>,
    /// `rate`, a second.
    pub rate: Option<String>,
    /// `created_by`.
    pub created_by: Option<String>,
    /// `updated_by`.
    pub updated_by: Option<String>,
}

/// A row, and its place in the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimiterRow<P> {
    /// The place.
    pub place: P,
    /// The row.
    pub row: LimiterInfo,
}

/// A problem with a cell: its column, and the problem.
type CellError = (&'static str, String);

/// Turns a cell into a value of a policy.
type CellParser = fn(&str) -> Result<Value, String>;

pub(crate) fn import(text: &str) -> Result<Imported, Vec<Note>> {
    let rows = rows_of_csv(text).map_err(|note| vec![note])?;
    let place = |line: &u64| format!("line {line}");
    import_rows(&rows, place, |line| Some(*line))
}

/// Imports rows.
///
/// # Errors
/// All problems of the rows, in their order.
pub fn import_rows<P>(
    rows: &[LimiterRow<P>],
    shown: impl Fn(&P) -> String,
    line: impl Fn(&P) -> Option<u64>,
) -> Result<Imported, Vec<Note>> {
    let (mut policies, mut wrong, mut names) = (Vec::new(), Vec::new(), BTreeMap::new());
    for LimiterRow { place, row } in rows {
        let mut note = |column: &str, problem: String| {
            let finding = finding!("import_cell", "{column}: {problem}", column, problem);
            wrong.push(Note::widens(line(place), finding));
        };
        match policy(row) {
            Ok(document) => {
                let (comment, line) = (comment(row), line(place));
                policies.push(ImportedPolicy { document, comment, line });
            }
            Err(bad) => bad.into_iter().for_each(|(column, problem)| note(column, problem)),
        }
        if let Some(name) = &row.name
            && let Some(earlier) = names.insert(name, place)
        {
            let problem = format!("`{}` is already the name at {}", one_line(name), shown(earlier));
            note("name", problem);
        }
    }
    if wrong.is_empty() { Ok(Imported { policies, ..Imported::default() }) } else { Err(wrong) }
}

/// The policy of one row.
fn policy(row: &LimiterInfo) -> Result<Value, Vec<CellError>> {
    let LimiterInfo { name, apps, max_permits, rate, created_by: _, updated_by: _ } = row;
    let mut bad = Vec::new();
    // A problem is replaced with a valid value, so that the other cells are checked, too.
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

/// The column that the value at `path` of a policy comes from.
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
        let wrong = |error| format!("`{}` is not a list of names: {error}", one_line(cell));
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
        _ => Err(format!("`{}` is not a whole number", one_line(cell))),
    }
}

fn rate_of(cell: &str) -> Result<Value, String> {
    let problem = || {
        let cell = one_line(cell);
        format!("`{cell}` is not a number of permits a second, such as `100` or `0.5`")
    };
    per_second(cell).map(Value::from).ok_or_else(problem)
}

/// The creator and last editor of the row, as a comment; `None` if the row names neither.
fn comment(row: &LimiterInfo) -> Option<String> {
    let by = [("created", &row.created_by), ("updated", &row.updated_by)];
    let by: Vec<_> = by
        .into_iter()
        .filter_map(|(what, who)| {
            let who = who.as_deref().filter(|who| !who.is_empty())?;
            Some(format!("{what} by {}", one_line(who)))
        })
        .collect();
    (!by.is_empty()).then(|| by.join(", "))
}

fn rows_of_csv(text: &str) -> Result<Vec<LimiterRow<u64>>, Note> {
    let unreadable = |error: csv::Error| {
        let line = error.position().map(csv::Position::line);
        if let csv::ErrorKind::UnequalLengths { expected_len, len, .. } = error.kind() {
            let (cells, columns) = (len, expected_len);
            let problem = finding!(
                "import_cells",
                "cells: `{cells}`; expected {columns}, as many as the first line has columns",
                cells,
                columns
            );
            return Note::widens(line, problem);
        }
        let problem = error.to_string();
        Note::widens(line, finding!("import_wrong", "{problem}", problem))
    };
    let mut csv = ReaderBuilder::new().trim(Trim::All).from_reader(text.as_bytes());
    let headers = csv.headers().map_err(unreadable)?.clone();
    let separator = [";", "\t", "|"].into_iter().find(|separator| {
        headers.len() == 1 && headers.get(0).is_some_and(|names| names.contains(separator))
    });
    if let Some(separator) = separator {
        let separator = if separator == "\t" { "TAB" } else { separator };
        let problem = finding!(
            "import_separator",
            "the columns are separated by `{separator}`; expected `,`",
            separator
        );
        return Err(Note::widens(1, problem));
    }
    let place = |column: &str| headers.iter().position(|name| name.eq_ignore_ascii_case(column));
    let required = |column: &str| {
        let missing =
            finding!("import_column", "column `{column}` is missing in the first line", column);
        place(column).ok_or(Note::widens(None, missing))
    };
    let columns =
        (required("name")?, required("apps")?, required("max_permits")?, required("rate")?);
    let by = (place("created_by"), place("updated_by"));
    let mut rows = Vec::new();
    for record in csv.records() {
        let record = record.map_err(unreadable)?;
        if rows.len() == POLICIES_MAX {
            let problem = finding!("import_rows", "more than {max} rows", max = POLICIES_MAX);
            return Err(Note::widens(None, problem));
        }
        let row = LimiterInfo {
            name: cell(&record, Some(columns.0)),
            apps: cell(&record, Some(columns.1)),
            max_permits: cell(&record, Some(columns.2)),
            rate: cell(&record, Some(columns.3)),
            created_by: cell(&record, by.0),
            updated_by: cell(&record, by.1),
        };
        let place = record.position().map_or(0, csv::Position::line);
        rows.push(LimiterRow { place, row });
    }
    Ok(rows)
}

/// A cell; `None` if it is empty or contains a database's form of null.
fn cell(record: &StringRecord, place: Option<usize>) -> Option<String> {
    let text = record.get(place?)?;
    (!matches!(text, "" | "NULL" | "\\N")).then(|| text.to_owned())
}
