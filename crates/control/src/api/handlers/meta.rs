//! The API itself, and the nodes.

use crate::api::ask::{Ask, Reply};
use crate::api::describe;
use crate::api::problem::Problem;

pub(in crate::api) async fn openapi(_: Ask) -> Result<Reply, Problem> {
    Ok(Reply::ok(&describe::openapi()))
}

pub(in crate::api) async fn nodes(ask: Ask) -> Result<Reply, Problem> {
    let nodes = ask.api.catalog.nodes(&ask.page()).await?;
    Ok(Reply::list(&ask, nodes, |node| node.name.clone()))
}
