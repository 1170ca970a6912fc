//! The catalog of a running server, by its admin API: signing in, apps, members, permits, tokens, accounts.
//!
//! ```text
//! login ─▶ password ─▶ the admin API ─▶ kept: a file for each server, with the session
//! apps, members, permits, tokens, accounts ─▶ client ─▶ the admin API, with that session
//! policies export, diff, apply ────▶ client (a token comes before the session)
//! ```

mod accounts;
mod apps;
pub(crate) mod client;
mod confirm;
mod kept;
mod login;
mod members;
mod password;
mod permits;
mod table;
mod tokens;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::client::{app, wait_for};
use client::LoginServer;

/// Arguments of a list of an app's items.
#[derive(Debug, Args)]
pub(crate) struct ListOfAppArgs {
    /// Name of the app.
    #[arg(long, value_name = "APP", value_parser = app)]
    app: String,
    #[command(flatten)]
    server: LoginServer,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// Commands about the catalog of a running server.
#[derive(Debug, Subcommand)]
pub(crate) enum AdminCommand {
    /// Sign in to the admin API of a server; other commands then use this login.
    Login(login::LoginArgs),
    /// Sign out, and remove the stored login.
    Logout(login::LogoutArgs),
    /// Show the account that is signed in, and its roles.
    Whoami(login::WhoamiArgs),
    /// List, create and delete the apps of a catalog.
    #[command(subcommand)]
    Apps(apps::AppsCommand),
    /// List, set and remove the members of an app.
    #[command(subcommand)]
    Members(members::MembersCommand),
    /// List the permits of a key that are held, and release one.
    #[command(subcommand)]
    Permits(permits::PermitsCommand),
    /// List, create and revoke the tokens of an app.
    #[command(subcommand)]
    Tokens(tokens::TokensCommand),
    /// List, create and delete accounts.
    #[command(subcommand)]
    Accounts(accounts::AccountsCommand),
}

/// Runs the command.
pub(crate) fn run(command: &AdminCommand) -> Result<ExitCode> {
    wait_for(async {
        match command {
            AdminCommand::Login(args) => login::login(args).await,
            AdminCommand::Logout(args) => login::logout(args).await,
            AdminCommand::Whoami(args) => login::whoami(args).await,
            AdminCommand::Apps(command) => apps::run(command).await,
            AdminCommand::Members(command) => members::run(command).await,
            AdminCommand::Permits(command) => permits::run(command).await,
            AdminCommand::Tokens(command) => tokens::run(command).await,
            AdminCommand::Accounts(command) => accounts::run(command).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}
