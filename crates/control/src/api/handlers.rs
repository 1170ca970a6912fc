//! What is done, once it is known who asks and that they may.

pub(super) mod accounts;
pub(super) mod apps;
pub(super) mod audit;
pub(super) mod keys;
pub(super) mod meta;
#[cfg(feature = "oidc")]
pub(super) mod oidc;
pub(super) mod policies;
pub(super) mod sessions;
pub(super) mod tokens;

/// Nobody signs in elsewhere: as where it is not set up.
#[cfg(not(feature = "oidc"))]
pub(super) mod oidc {
    use crate::api::ask::{Ask, Reply};
    use crate::api::problem::Problem;

    pub(in crate::api) async fn login(_: Ask) -> Result<Reply, Problem> {
        Err(super::no_oidc())
    }

    pub(in crate::api) async fn callback(_: Ask) -> Result<Reply, Problem> {
        Err(super::no_oidc())
    }
}

fn no_oidc() -> super::problem::Problem {
    let status = axum::http::StatusCode::NOT_FOUND;
    super::problem::Problem::new(status, "nobody signs in elsewhere: `catalog.oidc` is not set up")
}
