//! Traces of decisions, for a collector of OTLP. A build without the feature `otel` has their configuration only.

#[cfg(not(feature = "otel"))]
mod absent;
#[cfg(feature = "otel")]
mod otlp;

#[cfg(not(feature = "otel"))]
pub(crate) use absent::{Parent, Traces, within};
#[cfg(feature = "otel")]
pub(crate) use otlp::{Parent, Traces, within};
