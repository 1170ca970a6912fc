//! One connection to a server, and what is asked on it.

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
    /// Connects as `plan` says.
    ///
    /// # Errors
    /// If there is no server, or it does not speak that wire.
    pub(super) async fn connect(plan: &BenchPlan) -> Result<Self> {
        let stream = connect(&plan.addresses).await?;
        Ok(match plan.wire {
            BenchProtocol::Http => Self::Http(http::HttpConnection::new(stream, plan).await?),
            BenchProtocol::Resp => Self::Resp(resp::RespConnection::new(stream, plan).await?),
            BenchProtocol::Rls => Self::Rls(rls::RlsConnection::new(stream, plan).await?),
        })
    }

    /// Asks for all of `keys` at once, and says `answered` of the place of each, as its answer comes, and
    /// when that was.
    ///
    /// # Errors
    /// If the connection is of no more use. Those that were not answered are not known.
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

/// The key of this number is this and the number. Nobody's own keys look like that.
const KEY: &str = "bench:";
