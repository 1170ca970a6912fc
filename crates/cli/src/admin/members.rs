//! `sluicegate members`.

use anyhow::Result;
use axum::http::Method;
use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use serde_json::{Value, json};

use super::ListOfAppArgs;
use super::client::{AdminClient, LoginServer};
use super::confirm::ConfirmArgs;
use super::table::{self, instant, text};
use crate::client::http::encoded;
use crate::client::{app, print_line};

/// Commands for members of an app.
#[derive(Debug, Subcommand)]
pub(crate) enum MembersCommand {
    /// List the members of an app.
    List(ListOfAppArgs),
    /// Give an account a role in an app.
    Set(SetMemberArgs),
    /// Take the role of an account in an app away.
    Remove(RemoveMemberArgs),
}

/// Arguments of `sluicegate members set`.
#[derive(Debug, Args)]
pub(crate) struct SetMemberArgs {
    /// Name of the account.
    account: String,
    /// Name of the app.
    #[arg(long, value_name = "APP", value_parser = app)]
    app: String,
    /// Role of the account: viewers see policies, owners change them.
    #[arg(long, value_enum)]
    role: MemberRole,
    /// Change the role even if the app is left without an owner.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    server: LoginServer,
}

/// Arguments of `sluicegate members remove`.
#[derive(Debug, Args)]
pub(crate) struct RemoveMemberArgs {
    /// Name of the account.
    account: String,
    /// Name of the app.
    #[arg(long, value_name = "APP", value_parser = app)]
    app: String,
    /// Remove the account even if the app is left without an owner.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    server: LoginServer,
}

/// A role in an app.
#[derive(Clone, Copy, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MemberRole {
    /// Sees the policies.
    Viewer,
    /// Changes the policies, members and tokens.
    Owner,
}

/// Runs the command.
pub(super) async fn run(command: &MembersCommand) -> Result<()> {
    match command {
        MembersCommand::List(args) => list(args).await,
        MembersCommand::Set(args) => set(args).await,
        MembersCommand::Remove(args) => remove(args).await,
    }
}

async fn list(args: &ListOfAppArgs) -> Result<()> {
    let client = AdminClient::signed_in(&args.server)?;
    let members = client.list(&format!("/apps/{}/members", args.app)).await?;
    table::print(args.json, &members, ["ACCOUNT", "ROLE", "SINCE"], row)
}

/// The cells of a member.
pub(super) fn row(member: &Value) -> [String; 3] {
    [text(member, "account"), text(member, "role"), instant(member, "since")]
}

async fn set(args: &SetMemberArgs) -> Result<()> {
    let SetMemberArgs { account, app, role, force, server } = args;
    let client = AdminClient::signed_in(server)?;
    let role = json!({ "role": role });
    client.send(Method::PUT, &path(app, account, *force), Some(role.clone())).await?;
    let role = text(&role, "role");
    print_line(&format!("{account} is now {} {role} of {app}", article(&role)))
}

async fn remove(args: &RemoveMemberArgs) -> Result<()> {
    let RemoveMemberArgs { account, app, force, confirm, server } = args;
    let client = AdminClient::signed_in(server)?;
    confirm.ask(&format!("remove {account} from the members of {app}"))?;
    client.send(Method::DELETE, &path(app, account, *force), None).await?;
    print_line(&format!("{account} is no longer a member of {app}"))
}

fn path(app: &str, account: &str, force: bool) -> String {
    format!("/apps/{app}/members/{}?force={force}", encoded(account))
}

fn article(role: &str) -> &'static str {
    if role.starts_with('o') { "an" } else { "a" }
}
