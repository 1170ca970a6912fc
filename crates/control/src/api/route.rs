//! A route, without its handler: path, action and schemas.

use axum::http::Method;
use axum::routing::MethodFilter;

use crate::access::Action;

/// A route.
pub(super) struct Route {
    pub(super) method: Method,
    /// The path below the prefix.
    pub(super) path: &'static str,
    /// The action, which determines the permission.
    pub(super) action: Action,
    /// The status of its answer.
    pub(super) status: u16,
    /// The name of its body's schema, if it takes one.
    pub(super) asks: Option<&'static str>,
    /// The name of its answer's schema, if it has a body.
    pub(super) answers: Option<&'static str>,
    /// The route changes something that exists, and so takes `If-Match`.
    pub(super) is_versioned: bool,
    /// The OpenID Connect provider decides the query of the route.
    pub(super) is_called_back: bool,
}

impl Route {
    /// Returns whether the body may be the policy itself, as YAML.
    pub(super) fn takes_yaml(&self) -> bool {
        matches!(self.asks, Some("NewPolicy" | "PolicyDocument"))
    }

    /// Returns whether the body is a line of JSON with a log behind it.
    pub(super) fn takes_log(&self) -> bool {
        self.asks == Some("WhatIf")
    }

    /// Returns whether the answer may be the policy itself, as YAML.
    pub(super) fn gives_yaml(&self) -> bool {
        self.method == Method::GET && self.answers == Some("Policy")
    }

    /// Returns the method, for a router.
    pub(super) fn filter(&self) -> MethodFilter {
        MethodFilter::try_from(self.method.clone()).expect("the methods are those of HTTP")
    }
}
