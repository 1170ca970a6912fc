//! `sluicegate tokens`. The secret of a new token is the only thing on standard output, so that `> FILE`
//! makes a file of it.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use axum::http::Method;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sluicegate_control::access::Scope;
use sluicegate_net::file;
use sluicegate_text::terminal;

use super::ListOfAppArgs;
use super::client::{AdminClient, LoginServer};
use super::confirm::ConfirmArgs;
use super::kept::beside;
use super::table::{self, instant, instant_of, text};
use crate::client::http::encoded;
use crate::client::{app, print_line, whole};

/// Commands for tokens of an app.
#[derive(Debug, Subcommand)]
pub(crate) enum TokensCommand {
    /// List the tokens of an app, without their secrets.
    List(ListOfAppArgs),
    /// Create a token, and print its secret, which is shown only once.
    Create(CreateTokenArgs),
    /// Revoke a token; every node refuses it within a second.
    Revoke(RevokeTokenArgs),
}

/// Arguments of `sluicegate tokens create`.
#[derive(Debug, Args)]
pub(crate) struct CreateTokenArgs {
    /// Name of the app.
    #[arg(long, value_name = "APP", value_parser = app)]
    app: String,
    /// Name of the token, such as that of the program that uses it.
    #[arg(long, value_name = "NAME", value_parser = app)]
    name: String,
    /// Scope of the token; can be repeated, or a list separated by commas.
    #[arg(long, value_name = "SCOPE", required = true, value_delimiter = ',')]
    #[arg(value_parser = PossibleValuesParser::new(Scope::ALL.map(Scope::name)))]
    scope: Vec<String>,
    /// Days until the token expires, 1 to 731.
    #[arg(long, value_name = "DAYS", default_value_t = 90)]
    #[arg(value_parser = whole(1..=731))]
    days: u64,
    /// Write the secret to this file, which only you can read, instead of standard output. The file must not exist.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file of `--output` if it exists, with the secret in it.
    #[arg(long, requires = "output")]
    force: bool,
    #[command(flatten)]
    server: LoginServer,
    /// Print JSON, with the secret unless it goes to a file.
    #[arg(long)]
    json: bool,
}

/// Arguments of `sluicegate tokens revoke`.
#[derive(Debug, Args)]
pub(crate) struct RevokeTokenArgs {
    /// Identifier of the token, as `sluicegate tokens list` prints it.
    #[arg(value_name = "ID")]
    id: String,
    /// Name of the app.
    #[arg(long, value_name = "APP", value_parser = app)]
    app: String,
    #[command(flatten)]
    confirm: ConfirmArgs,
    #[command(flatten)]
    server: LoginServer,
}

/// Runs the command.
pub(super) async fn run(command: &TokensCommand) -> Result<()> {
    match command {
        TokensCommand::List(args) => list(args).await,
        TokensCommand::Create(args) => create(args).await,
        TokensCommand::Revoke(args) => revoke(args).await,
    }
}

async fn list(args: &ListOfAppArgs) -> Result<()> {
    let client = AdminClient::signed_in(&args.server)?;
    let tokens = client.list(&format!("/apps/{}/tokens", args.app)).await?;
    let columns = ["ID", "NAME", "SCOPES", "EXPIRES", "LAST USED", "REVOKED"];
    table::print(args.json, &tokens, columns, row)
}

/// The cells of a token.
pub(super) fn row(token: &Value) -> [String; 6] {
    let [expires, used, revoked] =
        ["expires_at", "used_at", "revoked_at"].map(|name| instant(token, name));
    [text(token, "id"), text(token, "name"), scopes(token), expires, used, revoked]
}

async fn create(args: &CreateTokenArgs) -> Result<()> {
    let CreateTokenArgs { app, name, scope, days, output, force, server, json } = args;
    if let Some(output) = output.as_deref().filter(|output| !force && output.exists()) {
        // Checked before the token is created: its secret would be lost.
        bail!("--output: {} exists; use --force to replace it", output.display());
    }
    if let Some(output) = output {
        // The secret would also be lost if the file could not be written.
        let beside = beside(output);
        let opened = OpenOptions::new().write(true).create(true).truncate(true).open(&beside);
        opened.with_context(|| format!("--output: cannot write to {}", output.display()))?;
        fs::remove_file(&beside).ok();
    }
    let client = AdminClient::signed_in(server)?;
    let new = json!({ "name": name, "scopes": scope, "expires_in_days": days });
    let path = format!("/apps/{app}/tokens");
    let mut made = client.json(Method::POST, &path, Some(new)).await?;
    let secret = text(&made, "secret");
    if secret.is_empty() || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
        bail!("{} did not answer like an admin address", client.at());
    }
    let id = text(&made, "id");
    let lost = |place: &str| {
        format!(
            "the token was created, but cannot be written to {place}: run `sluicegate tokens revoke \
             {id} --app {app}`"
        )
    };
    if let Some(output) = output {
        let write = |file: &mut std::fs::File| writeln!(file, "{secret}");
        file::replace(output, &beside(output), write)
            .with_context(|| lost(&output.display().to_string()))?;
    }
    match (output, *json) {
        (Some(_), true) => {
            made.as_object_mut().and_then(|made| made.remove("secret"));
            print_line(&made.to_string())
        }
        (None, true) => print_line(&made.to_string()).with_context(|| lost("standard output")),
        (Some(output), false) => {
            let made = terminal::escaped(&described(&made));
            print_line(&format!("{made}; its secret is in {}", terminal::input(output)))
        }
        (None, false) => {
            terminal::print_error_line(format_args!(
                "{}; its secret is shown only once:",
                described(&made)
            ));
            print_line(&secret).with_context(|| lost("standard output"))
        }
    }
}

async fn revoke(args: &RevokeTokenArgs) -> Result<()> {
    let RevokeTokenArgs { id, app, confirm, server } = args;
    let client = AdminClient::signed_in(server)?;
    check_is_valid(&client.list(&format!("/apps/{app}/tokens")).await?, id, app)?;
    confirm.ask(&format!("revoke the token {id} of {app}"))?;
    let path = format!("/apps/{app}/tokens/{}", encoded(id));
    client.send(Method::DELETE, &path, None).await?;
    print_line(&format!("revoked the token {id} of {app}"))
}

/// Checks that one of `tokens` has the identifier `id` and is not revoked. An unlisted identifier is left to the
/// server.
///
/// # Errors
/// The token was revoked, or `id` is the name of tokens; the error then lists their identifiers.
fn check_is_valid(tokens: &[Value], id: &str, app: &str) -> Result<()> {
    if let Some(token) = tokens.iter().find(|token| token["id"] == *id) {
        return match token["revoked_at"].as_i64() {
            Some(at) => bail!("the token {id} of {app} was revoked at {} already", instant_of(at)),
            None => Ok(()),
        };
    }
    let valid = |token: &&Value| token["name"] == *id && token["revoked_at"].is_null();
    let ids: Vec<_> = tokens.iter().filter(valid).map(|token| text(token, "id")).collect();
    match &ids[..] {
        [] => Ok(()),
        [named] => bail!(
            "`{id}` is the name of a token, not its ID: run `sluicegate tokens revoke {} --app {app}`",
            terminal::one_line(named)
        ),
        several => bail!(
            "`{id}` is the name of {} tokens: revoke each by its ID, {}",
            several.len(),
            terminal::escaped(&several.join(", "))
        ),
    }
}

/// `created the token web of shop (check, refund), which expires 2026-01-31 12:00 UTC`.
fn described(token: &Value) -> String {
    let [name, app] = ["name", "app"].map(|field| text(token, field));
    let (scopes, expires) = (scopes(token), instant(token, "expires_at"));
    format!("created the token {name} of {app} ({scopes}), which expires {expires}")
}

fn scopes(token: &Value) -> String {
    let scopes = token["scopes"].as_array().into_iter().flatten();
    scopes.filter_map(Value::as_str).collect::<Vec<_>>().join(", ")
}
