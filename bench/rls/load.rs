//! The load: `h2load` on core 1, with a body that is prepared once.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use prost::Message as _;
use sluicegate_bench::served::on_core;

/// Connections, and streams on each at a time.
const CONNECTIONS: &str = "10";
const STREAMS: &str = "10";

/// Decisions of one case in one round: about a second of the server's time.
const DECISIONS: u64 = 100_000;

/// One request, ready to be sent again and again.
#[derive(Debug)]
pub(crate) struct Load {
    body: PathBuf,
}

impl Load {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let entry = Entry { key: "user".to_owned(), value: "203.0.113.77".to_owned() };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
        let message = RateLimitRequest {
            domain: "bench".to_owned(),
            descriptors: vec![descriptor],
            hits_addend: 0,
        };
        let message = message.encode_to_vec();
        let length = u32::try_from(message.len())?.to_be_bytes();
        let body = std::env::temp_dir().join(format!("sluicegate-bench-{}", std::process::id()));
        fs::write(&body, [&[0], &length[..], &message].concat())?;
        Ok(Self { body })
    }

    /// Sends a round's requests to the server at `port`, which must decide all of them. Returns their number.
    pub(crate) fn run(&self, port: u16) -> anyhow::Result<u64> {
        let url = format!(
            "http://127.0.0.1:{port}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
        );
        let body = self.body.to_str().context("the temporary folder has a plain name")?;
        let output = on_core("1", "h2load")
            .args(["-n", &DECISIONS.to_string()])
            .args(["-c", CONNECTIONS, "-m", STREAMS, "-d", body])
            .args(["-H", "content-type: application/grpc", "-H", "te: trailers", &url])
            .output()
            .context("taskset and h2load (Debian package nghttp2-client) must be installed")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let all = format!("{DECISIONS} succeeded, 0 failed, 0 errored, 0 timeout");
        ensure!(output.status.success() && said.contains(&all), "h2load says:\n{said}");
        Ok(DECISIONS)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        fs::remove_file(&self.body).ok();
    }
}
