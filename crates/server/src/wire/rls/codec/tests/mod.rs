//! The codec by examples: requests in messages, and messages of decisions.

mod asks;
mod conformance;

use sluicegate::policy::{Document, PolicySet};
use sluicegate_policy::DescriptorTree;

use crate::wire::rls::proto::{Entry, RateLimitDescriptor, RateLimitRequest};

/// A descriptor of these entries.
fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).into(), value: (*value).into() };
    RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        ..RateLimitDescriptor::default()
    }
}

/// A message of these descriptors.
fn message(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
}

fn policies(text: &str) -> PolicySet {
    PolicySet::new(Document::parse(text).expect("it is a document"))
}

fn tree(text: &str) -> DescriptorTree {
    DescriptorTree::parse(text).expect("it is a tree")
}
