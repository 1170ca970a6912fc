//! Envoy's rate limit service: each question a stream of one connection.

use anyhow::Result;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use sluicegate_server::wire::rls::{Asked, Client};
use tokio::time::Instant;

use super::super::plan::{Plan, Question};
use super::super::tally::Outcome;
use super::KEY;
use crate::client::target::Stream;
use crate::client::told;

/// A connection.
#[derive(Debug)]
pub(crate) struct RlsLine {
    client: Client,
    policy: String,
    app: Option<String>,
    hits: u32,
}

impl RlsLine {
    /// A connection on `stream`.
    pub(super) async fn new(stream: Stream, plan: &Plan) -> Result<Self> {
        let Question { policy, app, cost } = &plan.question;
        let client = Client::new(stream, &plan.to.authority()).await?;
        Ok(Self { client, policy: policy.clone(), app: app.clone(), hits: *cost })
    }

    /// See [`Line::ask`](super::Line::ask).
    pub(super) async fn ask(
        &mut self,
        keys: &[u64],
        mut answered: impl FnMut(usize, Instant, Outcome),
    ) -> Result<()> {
        let Self { client, policy, app, hits } = &*self;
        let (app, hits) = (app.as_deref(), *hits);
        let asking = keys.iter().enumerate().map(|(place, number)| {
            let (mut client, key) = (client.clone(), format!("{KEY}{number}"));
            async move { (place, client.ask(policy, &key, app, hits).await) }
        });
        let mut asking: FuturesUnordered<_> = asking.collect();
        while let Some((place, asked)) = asking.next().await {
            let outcome = match asked? {
                Asked::Ok => Outcome::Passed,
                Asked::OverLimit => Outcome::Refused,
                Asked::Error(problem) => Outcome::Failed(told::shortened(&problem)),
            };
            answered(place, Instant::now(), outcome);
        }
        Ok(())
    }
}
