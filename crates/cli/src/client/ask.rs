//! `sluicegate check`, `acquire`, `settle` and others: one request to a running server.
//!
//! The exit status (`exit.rs`) distinguishes a refusal from an error.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use axum::http::StatusCode;
use clap::{Args, Subcommand};
use serde::Serialize;
use sluicegate_kernel::Rate;
use sluicegate_kernel::limits::{COST_MAX, SPAN_MAX_US};
use sluicegate_server::config::Span;
use sluicegate_text::terminal::{self, OutputFormat};

use super::reply::{self, ClientVerb};
use super::target::{Target, URL};
use super::tls::TlsRoots;
use super::token::{TOKEN, TokenArgs};
use super::{http, print_coloured, print_line, whole};
use crate::exit;

/// Longest `--max-wait`, in ms: the longest span that the server can represent.
const MAX_WAIT_MS_MAX: u64 = SPAN_MAX_US / 1_000;

/// The problem of a request without a token, where one is required.
const NO_TOKEN: &str = "urn:sluicegate:problem:no-token";

/// The problem of a request by an app that may not use the policy, or without an app.
const NOT_CONFIGURED: &str = "urn:sluicegate:problem:not-configured";

/// A question about a budget.
#[derive(Debug, Subcommand)]
pub(crate) enum AskCommand {
    /// Take permits. Exit status: 0 allowed, 1 refused, 2 error.
    Check {
        #[command(flatten)]
        budget: BudgetArgs,
        #[command(flatten)]
        cost: CostArgs,
        /// Maximum wait, in whole milliseconds. If the request can pass within it, the permits are
        /// reserved and the answer tells how long to wait.
        #[arg(long, value_name = "DURATION")]
        max_wait: Option<Span>,
    },
    /// Show what the rules say to a check, without taking permits. Exit status: 0 within the limits, 1 over a limit,
    /// 2 error.
    ///
    /// `overflow` does not apply: over a limit, the answer is a refusal, also where a check would pass in shadow mode
    /// or wait in a queue.
    Peek {
        #[command(flatten)]
        budget: BudgetArgs,
        #[command(flatten)]
        cost: CostArgs,
    },
    /// Show which rules hold for a key and what each says to a check, without taking permits. Exit status as for peek.
    ///
    /// `overflow` does not apply: over a limit, the answer is a refusal, also where a check would pass in shadow mode
    /// or wait in a queue.
    Explain {
        #[command(flatten)]
        budget: BudgetArgs,
        #[command(flatten)]
        cost: CostArgs,
        /// Steady load of requests of one permit, such as 500/s: also show how long a full budget admits it, and
        /// how long it then takes to be full again.
        #[arg(long, value_name = "RATE")]
        at: Option<Rate>,
    },
    /// Give permits back.
    Refund {
        #[command(flatten)]
        budget: BudgetArgs,
        #[command(flatten)]
        cost: CostArgs,
    },
    /// Correct a check to its actual cost: permits are given back, or more are taken. Exit status: 0 settled, 1
    /// settled before, 2 error.
    Settle {
        #[command(flatten)]
        budget: BudgetArgs,
        /// Identifier of the settlement, 1 to 1024 bytes: a second one with it within an hour changes nothing.
        #[arg(long, value_name = "ID")]
        id: String,
        /// Number of permits that the check took, 1 to 2147483648.
        #[arg(long, value_name = "N", value_parser = whole(1..=COST_MAX))]
        charged: u64,
        /// Actual cost in permits, 0 to 2147483648.
        #[arg(long, value_name = "N", value_parser = whole(0..=COST_MAX))]
        cost: u64,
    },
    /// Hold a permit of a concurrency limit until it is released, or its time ends. Exit status: 0 held, 1 refused,
    /// 2 error.
    Acquire {
        #[command(flatten)]
        budget: BudgetArgs,
        #[command(flatten)]
        cost: CostArgs,
        /// Identifier of the permit, 1 to 1024 bytes. Default: the server makes one, and the answer has it.
        #[arg(long, value_name = "ID")]
        id: Option<String>,
    },
    /// Hold a permit for another `ttl`. Exit status: 0 held, 1 not held any more, 2 error.
    Renew {
        #[command(flatten)]
        budget: BudgetArgs,
        /// Identifier of the permit.
        #[arg(long, value_name = "ID")]
        id: String,
    },
    /// Give a held permit back. Exit status: 0 given back, 1 not held any more, 2 error.
    Release {
        #[command(flatten)]
        budget: BudgetArgs,
        /// Identifier of the permit.
        #[arg(long, value_name = "ID")]
        id: String,
    },
    /// Reset a key: a budget of its own is full again, but for permits that servers lease.
    ///
    /// Servers that lease permits of the key (`store.leases`) go on to spend those that they hold, for as long as the
    /// leases last; `explain` shows how many they are.
    Reset {
        #[command(flatten)]
        budget: BudgetArgs,
    },
}

/// The policy and the key of a budget, and the server that keeps it.
#[derive(Debug, Args)]
pub(crate) struct BudgetArgs {
    /// Name of the policy.
    policy: String,
    /// Key of the budget. Without it: one shared budget.
    key: Option<String>,
    /// Calling app, for policies that are restricted to certain apps.
    #[arg(long, value_name = "APP")]
    app: Option<String>,
    /// HTTP address of the server, or `unix:/path`.
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:8080",
        env = URL
    )]
    to: Target,
    #[command(flatten)]
    trust: TlsRoots,
    #[command(flatten)]
    token: TokenArgs,
    /// Maximum time to wait for the answer. Policies with a queue delay it.
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    timeout: Span,
    /// Output format.
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    output: OutputFormat,
}

/// The number of permits.
#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    /// Number of permits, 1 to 2147483648.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = whole(1..=COST_MAX))]
    cost: u64,
}

/// The body of a request.
#[derive(Debug, Default, Serialize)]
pub(super) struct QuestionBody<'a> {
    pub(super) policy: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) app: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cost: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_wait_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) charged: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<String>,
}

impl QuestionBody<'_> {
    /// The body as JSON.
    pub(super) fn json(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers are always JSON")
    }
}

/// Asks, and prints the answer.
pub(super) async fn run(command: AskCommand) -> ExitCode {
    match ask(command).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            terminal::print_error_line(format_args!("error: {error:#}"));
            ExitCode::from(exit::UNKNOWN)
        }
    }
}

/// A command taken apart: its verb, its budget, and its fields.
struct ParsedCommand {
    verb: ClientVerb,
    budget: BudgetArgs,
    cost: Option<u64>,
    max_wait: Option<Span>,
    id: Option<String>,
    charged: Option<u64>,
    at: Option<Rate>,
}

impl From<AskCommand> for ParsedCommand {
    fn from(command: AskCommand) -> Self {
        let of = |verb, budget, cost: Option<CostArgs>| {
            let cost = cost.map(|cost| cost.cost);
            Self { verb, budget, cost, max_wait: None, id: None, charged: None, at: None }
        };
        match command {
            AskCommand::Check { budget, cost, max_wait } => {
                Self { max_wait, ..of(ClientVerb::Check, budget, Some(cost)) }
            }
            AskCommand::Peek { budget, cost } => of(ClientVerb::Peek, budget, Some(cost)),
            AskCommand::Explain { budget, cost, at } => {
                Self { at, ..of(ClientVerb::Explain, budget, Some(cost)) }
            }
            AskCommand::Refund { budget, cost } => of(ClientVerb::Refund, budget, Some(cost)),
            AskCommand::Reset { budget } => of(ClientVerb::Reset, budget, None),
            AskCommand::Acquire { budget, cost, id } => {
                Self { id, ..of(ClientVerb::Acquire, budget, Some(cost)) }
            }
            AskCommand::Renew { budget, id } => {
                Self { id: Some(id), ..of(ClientVerb::Renew, budget, None) }
            }
            AskCommand::Release { budget, id } => {
                Self { id: Some(id), ..of(ClientVerb::Release, budget, None) }
            }
            AskCommand::Settle { budget, id, charged, cost } => {
                let (id, charged, cost) = (Some(id), Some(charged), Some(cost));
                Self { id, charged, cost, ..of(ClientVerb::Settle, budget, None) }
            }
        }
    }
}

/// Sends the request and prints the answer. Returns whether the request passes, or is done.
async fn ask(command: AskCommand) -> Result<bool> {
    let ParsedCommand { verb, budget, cost, max_wait, id, charged, at } = command.into();
    let BudgetArgs { policy, key, app, to, trust, token, timeout: Span(timeout), output } = &budget;
    if policy.is_empty() {
        bail!("POLICY: is empty; expected the name of a policy, such as `login`");
    }
    let body = QuestionBody {
        policy,
        key: key.as_deref(),
        app: app.as_deref(),
        cost,
        max_wait_ms: max_wait.map(whole_ms).transpose()?,
        id: id.as_deref(),
        charged,
        at: at.map(|rate| rate.to_string()),
    };
    let mut request = http::post(verb.path(), body.json());
    let has_token = token.add(&mut request, to)?;
    let answer = http::send((to, trust), request, *timeout).await?;
    if reply::is_elsewhere(&answer) {
        bail!(
            "{to} has no {}: `--to` is the HTTP address, such as http://127.0.0.1:8080",
            verb.path()
        );
    }
    if answer.status == StatusCode::CONFLICT {
        print_line(&reply::problem(answer.status, &answer.body))?;
        return Ok(false);
    }
    if !answer.status.is_success() {
        let problem = reply::problem(answer.status, &answer.body);
        match reply::problem_type(&answer.body).as_deref() {
            Some(NO_TOKEN) if !has_token => bail!("{problem}; set --token-file or {TOKEN}"),
            Some(NOT_CONFIGURED) if !has_token && app.is_none() => bail!(
                "{problem}; name an app with --app, or send its token with --token-file or {TOKEN}"
            ),
            _ => bail!("{problem}"),
        }
    }
    let unclear = || format!("{to} did not answer with a decision");
    let excess = charged.unwrap_or_default().saturating_sub(cost.unwrap_or_default());
    let (passes, lines) = reply::read(verb, &answer.body, excess).with_context(unclear)?;
    match output {
        OutputFormat::Text if verb.decides() => {
            print_coloured(&reply::coloured(&lines, passes))?;
        }
        OutputFormat::Text => print_line(&lines)?,
        OutputFormat::Json => print_line(str::from_utf8(&answer.body).with_context(unclear)?)?,
    }
    Ok(passes)
}

/// The longest wait in ms, as the server takes it. Other values are not rounded, which would change how long the caller
/// waits.
fn whole_ms(span: Span) -> Result<u64> {
    let Span(duration) = span;
    match u64::try_from(duration.as_millis()) {
        Ok(ms) if duration.subsec_nanos().is_multiple_of(1_000_000) && ms <= MAX_WAIT_MS_MAX => {
            Ok(ms)
        }
        _ => bail!(
            "--max-wait: `{span}` is not a whole number of milliseconds 1..={MAX_WAIT_MS_MAX}"
        ),
    }
}
