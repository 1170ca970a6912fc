//! The differences between two sets of policies, printed as text or as JSON.

use std::io::Write;

use anyhow::{Context, Result};
use sluicegate::Micros;
use sluicegate_text::human::{Era, percent, span, thousands};
use sluicegate_text::terminal::{self, OutputFormat, one_line};

use crate::summary::{TOO_MANY_GUARD, write_undecided};

use super::tally::{AffectedKey, NamedPolicy, WhatifSummary};

/// Prints the differences on the log called `input`.
pub(super) fn print(summary: &WhatifSummary, input: &str, output: OutputFormat) -> Result<()> {
    let mut text = Vec::new();
    match output {
        OutputFormat::Text => write(&mut text, summary, input)?,
        OutputFormat::Json => {
            serde_json::to_writer_pretty(&mut text, summary)?;
            text.push(b'\n');
        }
    }
    terminal::print(&text).context("standard output")
}

fn write(out: &mut Vec<u8>, summary: &WhatifSummary, input: &str) -> Result<()> {
    write!(out, "{}: ", one_line(input))?;
    match summary.first_at_us.zip(summary.last_at_us) {
        None => writeln!(out, "no requests that a policy applies to")?,
        Some((first, last)) => {
            let (first, last) = (Micros::new(first), Micros::new(last));
            let (begin, end) = (Era::Unix.instant(first), Era::Unix.instant(last));
            writeln!(out, "{begin} to {end} UTC ({})", span(last.since(first)))?;
        }
    }
    if !summary.complete {
        writeln!(out, "the log could not be read to the end; results are partial")?;
    }
    writeln!(out)?;
    write_counts(out, summary)?;
    write_undecided(out, &summary.undecided_policies)?;
    write_policies(out, &summary.policies)?;
    write_keys(out, "newly refused", &summary.keys_newly_refused)?;
    write_keys(out, "no longer refused", &summary.keys_no_longer_refused)?;
    if summary.keys_excess > 0 {
        let excess = thousands(summary.keys_excess);
        writeln!(out, "(very many keys: each count is up to {excess} too high)")?;
    }
    Ok(())
}

fn write_counts(out: &mut Vec<u8>, summary: &WhatifSummary) -> Result<()> {
    let WhatifSummary { requests, unguarded, policies_left_out, errors, late, evicted, .. } =
        summary;
    let mut row = |name: &str, count: u64, note: &str| {
        let line = format!("{name:<30}{:>14}   {note}", thousands(count));
        writeln!(out, "{}", line.trim_end())
    };
    row("requests", *requests, "")?;
    for (name, count) in [
        ("refused today", summary.refused_today),
        ("refused by the new policies", summary.refused_new),
        ("  newly refused", summary.newly_refused),
        ("  no longer refused", summary.no_longer_refused),
    ] {
        row(name, count, &percent(count, *requests))?;
    }
    for (name, count, note) in [
        ("unguarded lines", *unguarded, "no policy applies, today or new"),
        ("bad lines", *errors, "not decided; see standard error"),
        ("skipped policies", *policies_left_out, TOO_MANY_GUARD),
        ("late lines", *late, "too late, decided at the current time; see --reorder"),
        ("forgotten budgets", *evicted, "NOT EXACT: too many keys"),
    ] {
        if count > 0 {
            row(name, count, note)?;
        }
    }
    Ok(())
}

fn write_policies(out: &mut Vec<u8>, policies: &[NamedPolicy]) -> Result<()> {
    if policies.is_empty() {
        return Ok(());
    }
    let width = policies.iter().map(|policy| policy.policy.len()).max().unwrap_or(0).max(6);
    writeln!(
        out,
        "\n{:<width$}  {:>12}  {:>12}  {:>12}  {:>12}  {:>13}  {:>17}",
        "policy", "today", "refused", "new", "refused", "newly refused", "no longer refused"
    )?;
    for NamedPolicy { policy, counts } in policies {
        let [today, refused, new, by_new, newly, no_longer] = [
            counts.today.requests,
            counts.today.refused,
            counts.new.requests,
            counts.new.refused,
            counts.newly_refused,
            counts.no_longer_refused,
        ]
        .map(thousands);
        writeln!(
            out,
            "{policy:<width$}  {today:>12}  {refused:>12}  {new:>12}  {by_new:>12}  {newly:>13}  {no_longer:>17}"
        )?;
    }
    Ok(())
}

fn write_keys(out: &mut Vec<u8>, what: &str, keys: &[AffectedKey]) -> Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nkeys {what} the most")?;
    for AffectedKey { policy, key, requests } in keys {
        let key = key.as_deref().map_or("(shared budget)".to_owned(), one_line);
        writeln!(out, "{:>14}  {policy}  {key}", thousands(*requests))?;
    }
    Ok(())
}
