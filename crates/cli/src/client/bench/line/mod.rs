//! One connection to a server, and what is asked on it.

mod http;
mod resp;
mod rls;

use anyhow::Result;
use tokio::time::Instant;

use super::plan::{Plan, Spoken};
use super::tally::Outcome;
use crate::client::target::connect;

/// A connection.
#[derive(Debug)]
pub(super) enum Line {
    Http(http::HttpLine),
    Resp(resp::RespLine),
    Rls(rls::RlsLine),
}

impl Line {
    /// Connects as `plan` says.
    ///
    /// # Errors
    /// If there is no server, or it does not speak that wire.
    pub(super) async fn connect(plan: &Plan) -> Result<Self> {
        let stream = connect(&plan.addresses).await?;
        Ok(match plan.wire {
            Spoken::Http => Self::Http(http::HttpLine::new(stream, plan).await?),
            Spoken::Resp => Self::Resp(resp::RespLine::new(stream, plan).await?),
            Spoken::Rls => Self::Rls(rls::RlsLine::new(stream, plan).await?),
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
        answered: impl FnMut(usize, Instant, Outcome),
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
