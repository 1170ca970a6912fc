//! `sluicegate check`, `peek`, `refund`, `reset`: one question to a running server.
//!
//! The exit status (`exit.rs`) tells a refusal from an error.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde::Serialize;
use sluicegate_kernel::limits::{COST_MAX, SPAN_MAX_US};
use sluicegate_server::config::Span;
use sluicegate_text::terminal::{self, OutputFormat};

use super::reply::{self, ClientVerb, DecisionReply, ExplainReply};
use super::target::{Target, URL};
use super::tls::TlsRoots;
use super::token::TokenArgs;
use super::{http, print_coloured, print_line, whole};
use crate::exit;

/// Longest time that `--max-wait` may name: as far as the server can count, in ms.
const MAX_WAIT_MS_MAX: u64 = SPAN_MAX_US / 1_000;

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
    /// Show what a check would return, without taking permits. Exit status as for check.
    Peek {
        #[command(flatten)]
        budget: BudgetArgs,
        #[command(flatten)]
        cost: CostArgs,
    },
    /// Show which rules hold for a key and what each would return, without taking permits. Exit
    /// status as for check.
    Explain {
        #[command(flatten)]
        budget: BudgetArgs,
        #[command(flatten)]
        cost: CostArgs,
    },
    /// Give permits back.
    Refund {
        #[command(flatten)]
        budget: BudgetArgs,
        #[command(flatten)]
        cost: CostArgs,
    },
    /// Reset a key: its budget is full again.
    Reset {
        #[command(flatten)]
        budget: BudgetArgs,
    },
}

/// Whose budget, and where.
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

/// How much.
#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    /// Number of permits, 1 to 2147483648.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = whole(1..=COST_MAX))]
    cost: u64,
}

/// The body of a question.
#[derive(Debug, Serialize)]
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
}

impl QuestionBody<'_> {
    /// As it is sent.
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

/// Whether it passes, or is done.
async fn ask(command: AskCommand) -> Result<bool> {
    let (verb, budget, cost, max_wait) = match command {
        AskCommand::Check { budget, cost, max_wait } => {
            (ClientVerb::Check, budget, Some(cost.cost), max_wait)
        }
        AskCommand::Peek { budget, cost } => (ClientVerb::Peek, budget, Some(cost.cost), None),
        AskCommand::Explain { budget, cost } => {
            (ClientVerb::Explain, budget, Some(cost.cost), None)
        }
        AskCommand::Refund { budget, cost } => (ClientVerb::Refund, budget, Some(cost.cost), None),
        AskCommand::Reset { budget } => (ClientVerb::Reset, budget, None, None),
    };
    let BudgetArgs { policy, key, app, to, trust, token, timeout: Span(timeout), output } = &budget;
    let question = QuestionBody {
        policy,
        key: key.as_deref(),
        app: app.as_deref(),
        cost,
        max_wait_ms: max_wait.map(whole_ms).transpose()?,
    };
    let mut request = http::post(verb.path(), question.json());
    token.add(&mut request, to)?;
    let answer = http::send((to, trust), request, *timeout).await?;
    if reply::is_elsewhere(&answer) {
        bail!(
            "{to} has no {}: `--to` is the HTTP address, such as http://127.0.0.1:8080",
            verb.path()
        );
    }
    if !answer.status.is_success() {
        bail!("{}", reply::problem(answer.status, &answer.body));
    }
    let unclear = || format!("{to} did not answer with a decision");
    let (allowed, lines) = match verb {
        ClientVerb::Explain => {
            let explained: ExplainReply =
                serde_json::from_slice(&answer.body).with_context(unclear)?;
            (explained.decision.allowed, explained.lines())
        }
        _ => {
            let answered: DecisionReply =
                serde_json::from_slice(&answer.body).with_context(unclear)?;
            (answered.allowed, answered.line(verb))
        }
    };
    match output {
        OutputFormat::Text if matches!(verb, ClientVerb::Refund | ClientVerb::Reset) => {
            print_line(&lines)?;
        }
        OutputFormat::Text => print_coloured(&reply::coloured(&lines, allowed))?,
        OutputFormat::Json => print_line(str::from_utf8(&answer.body).with_context(unclear)?)?,
    }
    Ok(allowed || matches!(verb, ClientVerb::Refund | ClientVerb::Reset))
}

/// As the server takes it. What it cannot mean is not rounded: a caller would wait for longer than
/// it said, or not at all.
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
