//! `sluicegate login`, `logout`, `whoami`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use axum::http::{Method, header};
use clap::Args;
use serde::Deserialize;
use serde_json::{Value, json};
use sluicegate_text::{private, terminal};

use super::client::{AdminClient, LoginServer};
use super::kept::StoredLogin;
use super::password::PasswordArgs;
use super::table::instant_of;
use crate::client::http::HttpAnswer;
use crate::client::print_line;
use crate::client::target::Target;
use crate::client::token::warn_if_overheard;

/// Largest file of a setup token, which has some 60 bytes.
const SETUP_BYTES_MAX: u64 = 1 << 10;

/// Arguments of `sluicegate login`.
#[derive(Debug, Args)]
pub(crate) struct LoginArgs {
    /// Name of the account. Default: that of the stored login.
    #[arg(long, value_name = "ACCOUNT")]
    name: Option<String>,
    /// Create the first account of a new catalog, with the setup token that the server printed at start or wrote
    /// to `catalog.setup_token_file`.
    #[arg(long, value_name = "TOKEN", requires = "name")]
    setup: Option<String>,
    /// File with the setup token for --setup, such as `catalog.setup_token_file`: arguments of a process can be seen by
    /// other users.
    #[arg(long, value_name = "FILE", requires = "name", conflicts_with = "setup")]
    setup_file: Option<PathBuf>,
    #[command(flatten)]
    password: PasswordArgs,
    #[command(flatten)]
    server: LoginServer,
}

/// Arguments of `sluicegate logout`.
#[derive(Debug, Args)]
pub(crate) struct LogoutArgs {
    #[command(flatten)]
    server: LoginServer,
}

/// Arguments of `sluicegate whoami`.
#[derive(Debug, Args)]
pub(crate) struct WhoamiArgs {
    #[command(flatten)]
    server: LoginServer,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// An account that is signed in.
#[derive(Deserialize)]
struct Me {
    name: String,
    is_admin: bool,
    roles: std::collections::BTreeMap<String, String>,
    idle_until: i64,
    ends_at: i64,
}

/// Signs in, and stores the session.
pub(super) async fn login(args: &LoginArgs) -> Result<()> {
    let LoginArgs { name, setup, setup_file, password, server } = args;
    let at = &server.admin.to;
    let name = match name {
        Some(name) => name.clone(),
        None => {
            let stored = StoredLogin::load(at)?.map(|login| login.account);
            stored.with_context(|| format!("no login for {at} yet: set --name"))?
        }
    };
    let of_file = setup_file.as_deref().map(setup_token).transpose()?;
    let setup = setup.as_ref().or(of_file.as_ref());
    let password = password.read(&format!("password of {name} at {at}: "), setup.is_some())?;
    warn_if_overheard(at, "password");
    let client = AdminClient::signing_in(server);
    if let Some(token) = setup {
        let first = json!({ "token": token, "account": name, "password": password });
        client.send(Method::POST, "/setup", Some(first)).await?;
    }
    let credentials = json!({ "account": name, "password": password });
    let answer = match client.send(Method::POST, "/session", Some(credentials)).await {
        Err(_) if setup.is_none() && is_setup_due(&client).await => bail!(
            "the catalog of {at} has no accounts yet: use --setup TOKEN, with the token that the server printed at start"
        ),
        answer => answer?,
    };
    let me = read(at, &answer)?;
    let cookie = session_of(&answer).with_context(|| format!("{at} returned no session"))?;
    let path = StoredLogin { account: me.name.clone(), cookie }.save(at)?;
    print_line(&format!("signed in: {}", described(at, &me)))?;
    print_line(&format!("the login is stored in {}", terminal::input(&path)))
}

/// True while a catalog has no account.
async fn is_setup_due(client: &AdminClient<'_>) -> bool {
    let meta = client.send(Method::GET, "/meta", None).await;
    let meta = meta.ok().and_then(|answer| serde_json::from_slice::<Value>(&answer.body).ok());
    meta.is_some_and(|meta| meta["setup_due"] == true)
}

/// The setup token in the file at `path`.
fn setup_token(path: &Path) -> Result<String> {
    let text = private::read_text(path, SETUP_BYTES_MAX)
        .with_context(|| format!("--setup-file: cannot read {}", path.display()))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// Ends the session, and removes it here in any case, also if it cannot be read.
pub(super) async fn logout(args: &LogoutArgs) -> Result<()> {
    let at = &args.server.admin.to;
    let ended = match AdminClient::signed_in(&args.server) {
        Ok(client) => client.send(Method::DELETE, "/session", None).await.map(drop),
        Err(error) => Err(error),
    };
    if StoredLogin::remove(at)? {
        ended.context("the login was removed here, but the server did not confirm the sign-out")?;
    } else {
        ended?;
    }
    print_line(&format!("signed out of {at}"))
}

/// Shows the account of the stored login.
pub(super) async fn whoami(args: &WhoamiArgs) -> Result<()> {
    let at = &args.server.admin.to;
    let client = AdminClient::signed_in(&args.server)?;
    let answer = client.send(Method::GET, "/session", None).await?;
    let me = read(at, &answer)?;
    if args.json {
        return print_line(str::from_utf8(&answer.body).context("the answer is not text")?);
    }
    print_line(&described(at, &me))?;
    for (app, role) in &me.roles {
        print_line(&format!("{}: {}", terminal::one_line(app), terminal::one_line(role)))?;
    }
    Ok(())
}

fn read(at: &Target, answer: &HttpAnswer) -> Result<Me> {
    serde_json::from_slice(&answer.body)
        .with_context(|| format!("{at} did not answer like an admin address"))
}

/// The cookie that the answer sets: `name=value`, without its attributes.
fn session_of(answer: &HttpAnswer) -> Option<String> {
    let set = answer.headers.get(header::SET_COOKIE)?.to_str().ok()?;
    let pair = set.split(';').next()?.trim();
    pair.contains('=').then(|| pair.to_owned())
}

/// `ann (administrator) at 127.0.0.1:8082, until 2026-01-31 12:00 UTC`.
fn described(at: &Target, Me { name, is_admin, idle_until, ends_at, .. }: &Me) -> String {
    let rank = if *is_admin { " (administrator)" } else { "" };
    let until = instant_of(*idle_until.min(ends_at));
    format!("{}{rank} at {at}, until {until} if it is not used", terminal::one_line(name))
}
