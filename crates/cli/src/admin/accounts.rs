//! `sluicegate accounts`.

use anyhow::Result;
use axum::http::Method;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::client::{AdminClient, LoginServer};
use super::confirm::ConfirmArgs;
use super::password::PasswordArgs;
use super::table::{self, instant, text};
use crate::client::http::encoded;
use crate::client::print_line;

/// Commands for accounts.
#[derive(Debug, Subcommand)]
pub(crate) enum AccountsCommand {
    /// List all accounts.
    List(ListAccountsArgs),
    /// Create an account, with a password or for single sign-on.
    Create(CreateAccountArgs),
    /// Delete an account, and end its sessions.
    Delete(DeleteAccountArgs),
}

/// Arguments of `sluicegate accounts list`.
#[derive(Debug, Args)]
pub(crate) struct ListAccountsArgs {
    #[command(flatten)]
    server: LoginServer,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Arguments of `sluicegate accounts create`.
#[derive(Debug, Args)]
pub(crate) struct CreateAccountArgs {
    /// Name of the account: 1 to 128 letters, digits, `.`, `_`, `@`, `+` or `-`.
    #[arg(value_name = "ACCOUNT")]
    name: String,
    /// Make the account an administrator.
    #[arg(long)]
    admin: bool,
    /// OpenID Connect issuer and subject, such as `https://id.example.org|1234`: the account has no
    /// password.
    #[arg(long, value_name = "SUBJECT", conflicts_with = "password_file")]
    subject: Option<String>,
    #[command(flatten)]
    password: PasswordArgs,
    #[command(flatten)]
    server: LoginServer,
}

/// Arguments of `sluicegate accounts delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteAccountArgs {
    /// Name of the account.
    #[arg(value_name = "ACCOUNT")]
    name: String,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    server: LoginServer,
}

/// Runs the command.
pub(super) async fn run(command: &AccountsCommand) -> Result<()> {
    match command {
        AccountsCommand::List(args) => list(args).await,
        AccountsCommand::Create(args) => create(args).await,
        AccountsCommand::Delete(args) => delete(args).await,
    }
}

async fn list(args: &ListAccountsArgs) -> Result<()> {
    let accounts = AdminClient::signed_in(&args.server)?.list("/accounts").await?;
    let columns = ["NAME", "ADMINISTRATOR", "SIGN-IN", "LAST SIGN-IN"];
    table::print(args.json, &accounts, columns, row)
}

/// The cells of an account.
pub(super) fn row(account: &Value) -> [String; 4] {
    let is_admin = if account["is_admin"] == true { "yes" } else { "no" };
    let last = instant(account, "last_sign_in_at");
    [text(account, "name"), is_admin.to_owned(), way_in(account).to_owned(), last]
}

fn way_in(account: &Value) -> &'static str {
    let has = |name: &str| account[name] == true;
    match (has("is_disabled"), has("has_password"), account["subject"].is_string()) {
        (true, ..) => "disabled",
        (false, true, true) => "password, OpenID Connect",
        (false, true, false) => "password",
        (false, false, _) => "OpenID Connect",
    }
}

async fn create(args: &CreateAccountArgs) -> Result<()> {
    let CreateAccountArgs { name, admin, subject, password, server } = args;
    let client = AdminClient::signed_in(server)?;
    let mut new = json!({ "name": name, "is_admin": admin });
    match subject {
        Some(subject) => new["subject"] = json!(subject),
        None => new["password"] = json!(password.read(&format!("password of {name}: "), true)?),
    }
    client.json(Method::POST, "/accounts", Some(new)).await?;
    print_line(&format!("created the account {name}"))
}

async fn delete(args: &DeleteAccountArgs) -> Result<()> {
    let DeleteAccountArgs { name, confirm, server } = args;
    let client = AdminClient::signed_in(server)?;
    confirm.ask(&format!("delete the account {name} of {}", client.at()))?;
    client.delete_versioned(&format!("/accounts/{}", encoded(name))).await?;
    print_line(&format!("deleted the account {name}"))
}
