//! The API itself, and the nodes.

use crate::api::describe;
use crate::api::problem::ApiProblem;
use crate::api::request::{ApiRequest, ApiResponse};

pub(in crate::api) async fn openapi(_: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    Ok(ApiResponse::ok(&describe::openapi()))
}

pub(in crate::api) async fn nodes(ask: ApiRequest) -> Result<ApiResponse, ApiProblem> {
    let nodes = ask.api.catalog.nodes(&ask.page()).await?;
    Ok(ApiResponse::list(&ask, nodes, |node| node.name.clone()))
}
