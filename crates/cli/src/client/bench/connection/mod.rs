//! One connection to a server, and the requests on it.

mod http;
mod resp;
mod rls;

use anyhow::Result;
use tokio::time::Instant;

use super::plan::{BenchPlan, BenchProtocol};
use super::tally::BenchOutcome;
use crate::client::target::connect;

/// A connection.
#[derive(Debug)]
pub(super) enum BenchConnection {
    Http(http::HttpConnection),
    Resp(resp::RespConnection),
    Rls(rls::RlsConnection),
}

impl BenchConnection {
    /// Connects according to `plan`.
    ///
    /// # Errors
    /// If there is no server, or it does not use that protocol.
    pub(super) async fn connect(plan: &BenchPlan) -> Result<Self> {
        let stream = connect(&plan.addresses).await?;
        Ok(match plan.wire {
            BenchProtocol::Http => Self::Http(http::HttpConnection::new(stream, plan).await?),
            BenchProtocol::Resp => Self::Resp(resp::RespConnection::new(stream, plan).await?),
            BenchProtocol::Rls => Self::Rls(rls::RlsConnection::new(stream, plan).await?),
        })
    }

    /// Asks for all of `keys` at once, and calls `answered` with the index of each key, the time of its answer, and the
    /// outcome.
    ///
    /// # Errors
    /// If the connection can no longer be used. The outcomes of unanswered requests are unknown.
    pub(super) async fn ask(
        &mut self,
        keys: &[u64],
        answered: impl FnMut(usize, Instant, BenchOutcome),
    ) -> Result<()> {
        match self {
            Self::Http(line) => line.ask(keys, answered).await,
            Self::Resp(line) => line.ask(keys, answered).await,
            Self::Rls(line) => line.ask(keys, answered).await,
        }
    }
}

/// Prefix of keys, followed by a number; no other key begins like this.
const KEY: &str = "bench:";
