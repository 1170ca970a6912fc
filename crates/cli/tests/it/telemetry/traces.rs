//! Spans of decisions, received by a collector.

use std::fs;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use sluicegate_testkit::{Options, RedisServer, need, until};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use super::{PATIENCE, Server};

/// A collector that keeps the spans that it receives.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans;
        let scopes = resources.into_iter().flat_map(|resource| resource.scope_spans);
        self.0.lock().expect("nobody panicked").extend(scopes.flat_map(|scope| scope.spans));
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    /// Starts a collector; the file configures a server for it.
    async fn start(sample: &str) -> (Self, tempfile::NamedTempFile) {
        let collector = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a free port");
        let address = listener.local_addr().expect("it is bound");
        let service = TraceServiceServer::new(collector.clone());
        let serving = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(TcpListenerStream::new(listener));
        tokio::spawn(serving);
        let config = tempfile::NamedTempFile::new().expect("there is room for files");
        let text = format!("[trace]\nendpoint = 'http://{address}'\nsample = {sample}\n");
        fs::write(config.path(), text).expect("it can be written");
        (collector, config)
    }

    /// Waits for `count` spans, and returns them in the order of their beginning.
    async fn spans(&self, count: usize) -> Vec<Span> {
        let all = async || {
            let spans = self.0.lock().expect("nobody panicked");
            (spans.len() >= count).then(|| spans.clone())
        };
        let mut spans = until("the spans arrive", PATIENCE, all).await.expect("they do");
        spans.sort_by_key(|span| span.start_time_unix_nano);
        spans
    }
}

fn attribute<'s>(span: &'s Span, name: &str) -> Option<&'s str> {
    let found = span.attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(value) => Some(value),
        _ => None,
    }
}

const TRACE: [u8; 16] = [0xaa; 16];

/// `traceparent` of a caller that traces, and of one that does not.
const SAMPLED: &str = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-01";
const UNSAMPLED: &str = "00-cccccccccccccccccccccccccccccccc-bbbbbbbbbbbbbbbb-00";

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_goes_on_with_the_trace_of_its_caller_into_the_store() {
    let redis = need!(RedisServer::start(Options::default()).await);
    let (collector, config) = Collector::start("0.0").await;
    let path = config.path().to_str().expect("a plain name");
    let url = format!("redis://{}?deadline_ms=5000", redis.address());
    let server = Server::start_with(&["--config", path, "--store", &url], Stdio::inherit());
    server.check("login", "secret-key", &format!("traceparent: {UNSAMPLED}\r\n"));
    server.check("login", "secret-key", "");
    server.check("login", "secret-key", &format!("traceparent: {SAMPLED}\r\n"));
    server.rate_limit("login", "secret-key-too", Some(SAMPLED)).await;
    let spans = collector.spans(4).await;
    assert_eq!(spans.len(), 4, "{spans:?}");
    for (pair, wire, result) in [(&spans[..2], "http", "refused"), (&spans[2..], "rls", "allowed")]
    {
        let [decide, store] = pair else { panic!("two spans: {pair:?}") };
        assert_eq!((&*decide.name, &*store.name), ("decide", "store"));
        assert_eq!((&decide.trace_id[..], &store.trace_id[..]), (&TRACE[..], &TRACE[..]));
        assert_eq!(decide.parent_span_id, [0xbb; 8]);
        assert_eq!(store.parent_span_id, decide.span_id);
        let told = ["wire", "policy", "verb", "result", "mode", "rule"]
            .map(|name| attribute(decide, &format!("sluicegate.{name}")).expect("it is told"));
        assert_eq!(told[..2], [wire, "login"]);
        assert_eq!(told[3], result);
        assert_eq!((told[2], told[5]), ("check", "tries"));
    }
    assert!(!format!("{spans:?}").contains("secret-key"));
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_begin_here_for_callers_that_bring_none_and_the_last_are_sent_at_the_end() {
    let (collector, config) = Collector::start("1.0").await;
    let path = config.path().to_str().expect("a plain name");
    let mut server = Server::start_with(&["--config", path], Stdio::inherit());
    server.raw("resp", "SG.CHECK login bob\r\nSG.CHECK nope bob\r\nQUIT\r\n");
    server.process.signal("TERM");
    assert!(server.process.wait().expect("it ends").success());
    let spans = collector.spans(2).await;
    let of =
        |policy| spans.iter().find(|span| attribute(span, "sluicegate.policy") == Some(policy));
    let (known, unknown) = (of("login").expect("one"), of("(unknown)").expect("the other"));
    assert_eq!(attribute(known, "sluicegate.result"), Some("allowed"));
    assert_eq!(attribute(unknown, "sluicegate.result"), Some("error"));
    assert!(known.parent_span_id.is_empty() && known.trace_id != unknown.trace_id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_not_there_harms_nobody() {
    let config = tempfile::NamedTempFile::new().expect("there is room for files");
    fs::write(config.path(), "[trace]\nendpoint = 'http://127.0.0.1:1'\nsample = 1.0\n")
        .expect("it can be written");
    let path = config.path().to_str().expect("a plain name");
    let mut server = Server::start_with(&["--config", path], Stdio::null());
    for _ in 0..3 {
        server.check("login", "ann", "");
    }
    let (_, text) = server.see("/metrics", "");
    assert!(text.contains(r#"wire="http",result="allowed",mode="store"} 2"#), "{text}");
    server.process.signal("TERM");
    assert!(server.process.wait().expect("it ends").success());
}
