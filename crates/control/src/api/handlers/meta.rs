//! The API itself, and the nodes.

use crate::api::ask::{ApiRequest, ApiResponse};
use crate::api::describe;
use crate::api::problem::ApiProblem;

pub(in crate::api) async fn openapi(_: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    Ok(ApiResponse::ok(&describe::openapi()))
}

pub(in crate::api) async fn nodes(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let nodes = ask.api.catalog.nodes(&ask.page()).await?;
    Ok(ApiResponse::list(&ask, nodes, |node| node.name.clone()))
}
