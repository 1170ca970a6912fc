//! Traces: a span for a decision and one for the call of its store, sent to a collector by OTLP.
//!
//! ```text
//! traceparent (http, rls) ─▶ span `decide` ─▶ span `store`      ─▶ queue ─▶ collector, over gRPC
//! ```
//!
//! Without a configured collector this costs one test a decision. A caller's trace goes on as the
//! caller decided, others are sampled. Spans that the collector does not take in time are dropped: no
//! request waits for it. No key is in any span.

use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::http::{HeaderMap, HeaderName};
use futures_util::future::Either;
use opentelemetry::propagation::{Extractor, TextMapPropagator};
use opentelemetry::trace::{
    FutureExt, SpanKind, Status, TraceContextExt, Tracer as _, TracerProvider,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracer, SdkTracerProvider,
};
use sluicegate::store::StoreError;
use sluicegate::{Admission, DecideError, Request};

use crate::protocol::Wire;
use crate::telemetry::{self, DecisionSource};

/// Maximum number of spans that wait for the collector; one is a kilobyte. Further ones are dropped.
const WAITING_MAX: usize = 4_096;

/// Maximum number of spans that are sent at a time.
const BATCH_MAX: usize = 512;

/// Interval between sends.
const EVERY: Duration = Duration::from_secs(1);

/// Longest time that the collector may take for a batch, and for the last one when the server ends.
const SEND_WAIT_MAX: Duration = Duration::from_secs(3);

/// The tracer of decisions, and its connection to the collector.
#[derive(Debug)]
pub(crate) struct Traces {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
    propagator: TraceContextPropagator,
}

/// The trace of a caller, if there is a collector.
#[derive(Debug)]
pub(crate) struct Parent(Option<Context>);

/// The tracer of a decision, found in the context by calls within it.
#[derive(Clone)]
pub(crate) struct DecisionTracer(SdkTracer);

impl Traces {
    /// Starts sending to the collector at `endpoint`. Of the traces that begin here, the fraction
    /// `sample` is sent. Must be called on a runtime.
    ///
    /// # Errors
    /// If `endpoint` is not a URL.
    pub(crate) fn start(endpoint: &str, sample: f64) -> Result<Self> {
        let exporter = SpanExporter::builder()
            .with_tonic()
            .with_endpoint(endpoint)
            .with_timeout(SEND_WAIT_MAX)
            .build()
            .context("trace.endpoint")?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(WAITING_MAX)
            .with_max_export_batch_size(BATCH_MAX)
            .with_scheduled_delay(EVERY)
            .build();
        let processor = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
        let resource = Resource::builder()
            .with_service_name("sluicegate")
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
            .build();
        let sampler = Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(sample)));
        let provider = SdkTracerProvider::builder()
            .with_span_processor(processor)
            .with_sampler(sampler)
            .with_resource(resource)
            .build();
        let tracer = provider.tracer("sluicegate");
        Ok(Self { provider, tracer, propagator: TraceContextPropagator::new() })
    }

    /// The trace that `headers` name, if there are `traces`.
    pub(crate) fn parent(traces: Option<&Self>, headers: &HeaderMap) -> Parent {
        Parent(traces.map(|traces| traces.propagator.extract(&HeaderExtractor(headers))))
    }

    /// Runs `deciding` in a span of its own.
    pub(crate) async fn decision(
        &self,
        wire: Wire,
        request: &Request<'_>,
        deciding: impl Future<Output = Result<Admission, DecideError>>,
    ) -> Result<Admission, DecideError> {
        let span = self.tracer.span_builder("decide").with_kind(SpanKind::Server);
        let context = Context::current_with_span(self.tracer.build(span));
        let context = context.with_value(DecisionTracer(self.tracer.clone()));
        let decided = deciding.with_context(context.clone()).await;
        let span = context.span();
        if span.is_recording() {
            span.set_attribute(KeyValue::new("sluicegate.wire", wire.name()));
            span.set_attributes(attributes(request, &decided));
            if let Err(DecideError::Store(error)) = &decided {
                span.set_status(Status::error(error.to_string()));
            }
        }
        decided
    }

    /// Sends the remaining spans. Blocks for [`SEND_WAIT_MAX`] at most.
    pub(crate) fn end(&self) {
        if let Err(error) = self.provider.shutdown_with_timeout(SEND_WAIT_MAX) {
            tracing::warn!("traces: the last spans were not exported: {error}");
        }
    }
}

impl Parent {
    /// Runs `passing` within that trace.
    pub(crate) fn over<F: Future>(self, passing: F) -> impl Future<Output = F::Output> {
        match self.0 {
            None => Either::Left(passing),
            Some(parent) => Either::Right(passing.with_context(parent)),
        }
    }
}

/// The tracer of the decision that runs now; none, if it is not traced.
pub(crate) fn within() -> Option<DecisionTracer> {
    Context::map_current(|context| context.get::<DecisionTracer>().cloned())
}

impl DecisionTracer {
    /// Runs `asking`, a call of the store, in a span of its own.
    pub(crate) async fn store<T>(
        self,
        asking: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Self(tracer) = self;
        let span = tracer.span_builder("store").with_kind(SpanKind::Client);
        let context = Context::current_with_span(tracer.build(span));
        let result = asking.with_context(context.clone()).await;
        if let Err(error) = &result {
            context.span().set_status(Status::error(error.to_string()));
        }
        result
    }
}

/// Attributes of a decision's span: no text that a client made up.
fn attributes(request: &Request<'_>, decided: &Result<Admission, DecideError>) -> Vec<KeyValue> {
    let policy = DecisionSource::of(request, decided.as_ref().err()).name();
    let mut found = vec![
        KeyValue::new("sluicegate.policy", policy.to_owned()),
        KeyValue::new("sluicegate.verb", request.verb.name()),
    ];
    match decided {
        Ok(Admission { answer, way, held }) => found.extend([
            KeyValue::new("sluicegate.result", telemetry::result_name(way, *held)),
            KeyValue::new("sluicegate.mode", answer.mode.name()),
            KeyValue::new("sluicegate.rule", answer.rule().to_owned()),
        ]),
        Err(_) => found.push(KeyValue::new("sluicegate.result", "error")),
    }
    found
}

/// Header fields, as the propagator reads them.
struct HeaderExtractor<'a>(&'a HeaderMap);

impl Extractor for HeaderExtractor<'_> {
    fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key)?.to_str().ok()
    }

    fn keys(&self) -> Vec<&str> {
        self.0.keys().map(HeaderName::as_str).collect()
    }
}
