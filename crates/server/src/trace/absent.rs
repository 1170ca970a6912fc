//! The types of traces in a build without the feature `otel`: no value of [`Traces`] exists.

use anyhow::{Result, bail};
use axum::http::HeaderMap;
use sluicegate::store::StoreError;
use sluicegate::{Admission, DecideError, Request};

use crate::protocol::Wire;

#[derive(Debug)]
pub(crate) enum Traces {}

/// The trace of a caller: none.
#[derive(Debug)]
pub(crate) struct Parent;

#[derive(Clone)]
pub(crate) enum DecisionTracer {}

impl Traces {
    /// Fails, since the build has no traces.
    ///
    /// # Errors
    /// Always.
    pub(crate) fn start(_: &str, _: f64) -> Result<Self> {
        bail!("trace.endpoint: traces are not built in")
    }

    pub(crate) const fn parent(_: Option<&Self>, _: &HeaderMap) -> Parent {
        Parent
    }

    /// Cannot be called, as the next one.
    pub(crate) async fn decision(
        &self,
        _: Wire,
        _: &Request<'_>,
        _: impl Future<Output = Result<Admission, DecideError>>,
    ) -> Result<Admission, DecideError> {
        match *self {}
    }

    pub(crate) fn end(&self) {
        match *self {}
    }
}

impl Parent {
    /// Returns `passing` as it is.
    pub(crate) const fn over<F: Future>(self, passing: F) -> F {
        passing
    }
}

/// The tracer of the decision that runs now: none.
pub(crate) const fn within() -> Option<DecisionTracer> {
    None
}

impl DecisionTracer {
    /// Cannot be called.
    pub(crate) async fn store<T>(
        self,
        _: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match self {}
    }
}
