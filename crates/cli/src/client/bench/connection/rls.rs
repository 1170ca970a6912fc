//! Envoy's rate limit service: each question a stream of one connection.

use anyhow::Result;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sluicegate_server::wire::rls::{RlsClient, RlsReply};
use tokio::time::Instant;

use super::super::plan::{BenchPlan, BenchRequest};
use super::super::tally::BenchOutcome;
use super::KEY;
use crate::client::reply;
use crate::client::target::ServerStream;

/// A connection.
#[derive(Debug)]
pub(crate) struct RlsConnection {
    client: RlsClient,
    policy: String,
    app: Option<String>,
    hits: u32,
}

impl RlsConnection {
    /// A connection on `stream`.
    pub(super) async fn new(stream: ServerStream, plan: &BenchPlan) -> Result<Self> {
        let BenchRequest { policy, app, cost } = &plan.question;
        let client = RlsClient::new(stream, &plan.to.authority()).await?;
        let client = match &plan.bearer {
            Some(bearer) => client.with_bearer(bearer)?,
            None => client,
        };
        Ok(Self { client, policy: policy.clone(), app: app.clone(), hits: *cost })
    }

    /// See [`BenchConnection::ask`](super::BenchConnection::ask).
    pub(super) async fn ask(
        &mut self,
        keys: &[u64],
        mut answered: impl FnMut(usize, Instant, BenchOutcome),
    ) -> Result<()> {
        let Self { client, policy, app, hits } = &*self;
        let (app, hits) = (app.as_deref(), *hits);
        let asking = keys.iter().enumerate().map(|(place, number)| {
            let (mut client, key) = (client.clone(), format!("{KEY}{number}"));
            async move { (place, client.ask(policy, &key, app, hits).await) }
        });
        let mut asking: FuturesUnordered<_> = asking.collect();
        while let Some((place, result)) = asking.next().await {
            let outcome = match result? {
                RlsReply::Ok => BenchOutcome::Passed,
                RlsReply::OverLimit => BenchOutcome::Refused,
                RlsReply::Error(problem) => BenchOutcome::Failed(reply::shortened(&problem)),
            };
            answered(place, Instant::now(), outcome);
        }
        Ok(())
    }
}
