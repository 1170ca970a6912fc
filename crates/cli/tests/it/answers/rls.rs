//! RLS: a request is a domain, its hits, and descriptors of `key=value` between bars.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tonic::transport::{Channel, Endpoint};

use super::{compare, server, without_times};

#[test]
fn rls_answers_as_it_is_written() {
    let server = server();
    let runtime = tokio::runtime::Runtime::new().expect("there are threads");
    let url = format!("http://{}", server.address("rls"));
    let endpoint = Endpoint::from_shared(url).expect("it is a URL");
    let channel = runtime.block_on(endpoint.connect()).expect("it listens");
    let mut client = RateLimitServiceClient::new(channel);
    compare("rls.txt", |asked| runtime.block_on(answer(&mut client, asked)));
}

async fn answer(client: &mut RateLimitServiceClient<Channel>, asked: &str) -> String {
    let (head, descriptors) = asked.split_once(" | ").expect("it has a descriptor");
    let (domain, hits) = head.split_once(' ').expect("it says its hits");
    let descriptors = descriptors.split(" | ").map(descriptor).collect();
    let hits_addend = hits.parse().expect("a number");
    let request = RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend };
    match client.should_rate_limit(request).await {
        Ok(answered) => {
            let answered = format!("{:#?}", answered.into_inner());
            without_times(&answered, &["seconds: ", "nanos: ", "value: \""])
        }
        Err(status) => format!("{:?}: {}", status.code(), status.message()),
    }
}

fn descriptor(text: &str) -> RateLimitDescriptor {
    let entry = |entry: &str| {
        let (key, value) = entry.split_once('=').expect("key=value");
        Entry { key: key.to_owned(), value: value.to_owned() }
    };
    let entries = text.split(',').map(entry).collect();
    RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }
}
