//! Lists for people and for programs.

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;
use sluicegate_text::terminal;

use crate::client::print_line;

/// Prints `items` as a JSON array on one line, or each as a row of a table.
///
/// # Errors
/// If standard output cannot be written.
pub(super) fn print<const N: usize>(
    is_json: bool,
    items: &[Value],
    heads: [&str; N],
    row: impl Fn(&Value) -> [String; N],
) -> Result<()> {
    if is_json {
        return print_line(&serde_json::to_string(items)?);
    }
    print_line(table(heads, items.iter().map(row).collect()).trim_end())
}

/// Columns are as wide as their widest cell; cells are on one line each.
fn table<const N: usize>(heads: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut lines = vec![heads.map(str::to_owned)];
    lines.extend(rows.into_iter().map(|row| row.map(|cell| terminal::one_line(&cell))));
    let widest = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| widest(column).unwrap_or_default());
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

/// A text of an item, empty if it has none.
pub(super) fn text(item: &Value, name: &str) -> String {
    item[name].as_str().unwrap_or_default().to_owned()
}

/// An instant of an item, `-` if it has none: `2026-01-31 12:00 UTC`.
pub(super) fn instant(item: &Value, name: &str) -> String {
    item[name].as_i64().map_or_else(|| "-".to_owned(), instant_of)
}

/// Milliseconds since 1970 as `2026-01-31 12:00 UTC`.
pub(super) fn instant_of(ms: i64) -> String {
    let at = Timestamp::from_millisecond(ms);
    at.map_or_else(|_| "-".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::admin::{accounts, apps, members, permits, tokens};

    /// Items of the schemas that the admin API describes, with a value in every field.
    fn full_item(name: &str) -> Value {
        let page = include_str!("../../../../docs/openapi-admin.json");
        let page: Value = serde_json::from_str(page).expect("the page is JSON");
        let fields = page["components"]["schemas"][name]["properties"].as_object();
        let value = |(name, field): (&String, &Value)| {
            let kinds =
                [&field["type"], &field["type"][0]].map(|kind| kind.as_str().unwrap_or_default());
            let value = if kinds.contains(&"integer") {
                json!(1_800_000_000_000_i64)
            } else if kinds.contains(&"boolean") {
                json!(true)
            } else if kinds.contains(&"array") {
                json!(["some"])
            } else {
                json!("some")
            };
            (name.clone(), value)
        };
        fields.expect("the schema has fields").iter().map(value).collect()
    }

    #[test]
    fn every_column_is_made_of_fields_that_the_admin_api_has() {
        let rows = [
            ("Account", accounts::row(&full_item("Account")).to_vec()),
            ("App", apps::row(&full_item("App")).to_vec()),
            ("HeldPermit", permits::row(&full_item("HeldPermit")).to_vec()),
            ("Member", members::row(&full_item("Member")).to_vec()),
            ("Token", tokens::row(&full_item("Token")).to_vec()),
        ];
        for (name, cells) in rows {
            let is_filled = |cell: &String| !matches!(cell.as_str(), "" | "-" | "no");
            assert!(cells.iter().all(is_filled), "{name}: {cells:?}");
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_no_cell_leaves_its_line() {
        let row = |name: &str, text: &str| [name.to_owned(), text.to_owned()];
        let shown = table(["NAME", "TEXT"], vec![row("a", "x\ny"), row("longer", "")]);
        assert_eq!(shown, "NAME    TEXT\na       x\\ny\nlonger\n");
    }

    #[test]
    fn an_instant_is_in_utc() {
        assert_eq!(instant_of(1_800_000_000_000), "2027-01-15 08:00 UTC");
    }
}
