//! `sluicegate apps`.

use anyhow::{Result, anyhow};
use axum::http::Method;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::client::{AdminClient, LoginServer, RefusedRequest};
use super::confirm::ConfirmArgs;
use super::table::{self, instant, text};
use crate::client::{app, print_line};

/// Commands for apps.
#[derive(Debug, Subcommand)]
pub(crate) enum AppsCommand {
    /// List the apps that you have a role in; administrators see all.
    List(ListAppsArgs),
    /// Create an app.
    Create(CreateAppArgs),
    /// Delete an app that never had a policy or a token.
    Delete(DeleteAppArgs),
}

/// Arguments of `sluicegate apps list`.
#[derive(Debug, Args)]
pub(crate) struct ListAppsArgs {
    #[command(flatten)]
    server: LoginServer,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Arguments of `sluicegate apps create`.
#[derive(Debug, Args)]
pub(crate) struct CreateAppArgs {
    /// Name of the app: 1 to 128 characters of `a-z`, `0-9`, `.`, `_` and `-`.
    #[arg(value_name = "APP", value_parser = app)]
    name: String,
    /// Description for people.
    #[arg(long, value_name = "TEXT", default_value = "")]
    description: String,
    /// Account that becomes an owner; can be repeated.
    #[arg(long, value_name = "ACCOUNT")]
    owner: Vec<String>,
    #[command(flatten)]
    server: LoginServer,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Arguments of `sluicegate apps delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteAppArgs {
    /// Name of the app.
    #[arg(value_name = "APP", value_parser = app)]
    name: String,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    server: LoginServer,
}

/// Runs the command.
pub(super) async fn run(command: &AppsCommand) -> Result<()> {
    match command {
        AppsCommand::List(args) => list(args).await,
        AppsCommand::Create(args) => create(args).await,
        AppsCommand::Delete(args) => delete(args).await,
    }
}

async fn list(args: &ListAppsArgs) -> Result<()> {
    let apps = AdminClient::signed_in(&args.server)?.list("/apps").await?;
    let columns = ["NAME", "CREATED", "DESCRIPTION"];
    table::print(args.json, &apps, columns, row)
}

/// The cells of an app.
pub(super) fn row(app: &Value) -> [String; 3] {
    [text(app, "name"), instant(app, "created_at"), text(app, "description")]
}

async fn create(args: &CreateAppArgs) -> Result<()> {
    let CreateAppArgs { name, description, owner, server, json } = args;
    let client = AdminClient::signed_in(server)?;
    let new = json!({ "name": name, "description": description, "owners": owner });
    let made = client.json(Method::POST, "/apps", Some(new)).await;
    let made = made.map_err(|error| match RefusedRequest::is_conflict(&error) {
        true => {
            anyhow!("cannot create the app {name}: {error}; `sluicegate apps list` shows all apps")
        }
        false => error,
    })?;
    print_line(&if *json { made.to_string() } else { format!("created the app {name}") })
}

async fn delete(args: &DeleteAppArgs) -> Result<()> {
    let DeleteAppArgs { name, confirm, server } = args;
    let client = AdminClient::signed_in(server)?;
    confirm.ask(&format!("delete the app {name} of {}", client.at()))?;
    client.delete_versioned(&format!("/apps/{name}")).await?;
    print_line(&format!("deleted the app {name}"))
}
