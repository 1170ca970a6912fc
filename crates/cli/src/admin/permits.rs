//! `sluicegate permits`: the permits of a key that are held, and the release of one whose holder is stuck.

use anyhow::Result;
use axum::http::Method;
use clap::{ArgGroup, Args, Subcommand};
use serde_json::{Value, json};
use sluicegate_text::terminal;

use super::client::{AdminClient, LoginServer};
use super::confirm::ConfirmArgs;
use super::table::{self, text};
use crate::client::http::encoded;
use crate::client::{app, print_line};

/// Commands for permits that are held.
#[derive(Debug, Subcommand)]
pub(crate) enum PermitsCommand {
    /// List the permits of a key that are held, and count the requests that wait for one.
    ///
    /// At most 100 are listed, those that lapse first: they were neither acquired nor renewed for the longest time.
    List(ListPermitsArgs),
    /// Release a permit whose holder is stuck; the next request that waits gets it.
    ///
    /// The holder goes on without the permit, and its next renewal reports that it is not held.
    Release(ReleasePermitArgs),
}

/// The budget whose permits are held.
#[derive(Debug, Args)]
pub(crate) struct HeldBudgetArgs {
    /// Name of the policy.
    policy: String,
    /// Key of the budget. Without it: one shared budget.
    key: Option<String>,
    /// Name of the app that owns the policy.
    #[arg(long, value_name = "APP", value_parser = app)]
    app: String,
}

/// Arguments of `sluicegate permits list`.
#[derive(Debug, Args)]
pub(crate) struct ListPermitsArgs {
    #[command(flatten)]
    budget: HeldBudgetArgs,
    #[command(flatten)]
    server: LoginServer,
    /// Print JSON, with the totals.
    #[arg(long)]
    json: bool,
}

/// Arguments of `sluicegate permits release`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("which").required(true).args(["permit", "id"])))]
pub(crate) struct ReleasePermitArgs {
    #[command(flatten)]
    budget: HeldBudgetArgs,
    /// Permit to release, as `sluicegate permits list` prints it: 32 hexadecimal digits.
    #[arg(long, value_name = "PERMIT")]
    permit: Option<String>,
    /// Permit to release, by the identifier that its client gave, 1 to 1024 bytes.
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Reason, for the audit.
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    server: LoginServer,
}

/// Runs the command.
pub(super) async fn run(command: &PermitsCommand) -> Result<()> {
    match command {
        PermitsCommand::List(args) => list(args).await,
        PermitsCommand::Release(args) => release(args).await,
    }
}

async fn list(args: &ListPermitsArgs) -> Result<()> {
    let ListPermitsArgs { budget, server, json } = args;
    let client = AdminClient::signed_in(server)?;
    let body = json!({ "key": budget.key });
    let held = client.json(Method::POST, &path(budget, "permits"), Some(body)).await?;
    if *json {
        return print_line(&held.to_string());
    }
    let items = held["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    table::print(false, items, ["PERMIT", "COST", "LAPSES IN"], row)?;
    let [total, held, waiting] = ["total", "held", "waiting"].map(|name| number(&held, name));
    print_line(&format!("held: {held} by {total} ids; requests that wait: {waiting}"))
}

/// The cells of a permit.
pub(super) fn row(held: &Value) -> [String; 3] {
    let lapses_s = number(held, "lapses_after_us").div_ceil(1_000_000);
    [text(held, "permit"), number(held, "cost").to_string(), format!("{lapses_s}s")]
}

async fn release(args: &ReleasePermitArgs) -> Result<()> {
    let ReleasePermitArgs { budget, permit, id, reason, confirm, server } = args;
    let client = AdminClient::signed_in(server)?;
    let named = terminal::one_line(permit.as_deref().or(id.as_deref()).unwrap_or_default());
    let of = terminal::one_line(&budget.policy);
    confirm.ask(&format!("release the permit {named} of {of}"))?;
    let mut body = json!({ "key": budget.key });
    match id {
        Some(id) => body["id"] = json!(id),
        None => body["permit"] = json!(permit),
    }
    let path = format!("{}?reason={}", path(budget, "release"), encoded(reason));
    client.send(Method::POST, &path, Some(body)).await?;
    print_line(&format!("released the permit {named} of {of}"))
}

fn path(HeldBudgetArgs { policy, app, .. }: &HeldBudgetArgs, what: &str) -> String {
    format!("/apps/{app}/policies/{}/keys/{what}", encoded(policy))
}

fn number(item: &Value, name: &str) -> u64 {
    item[name].as_u64().unwrap_or_default()
}
