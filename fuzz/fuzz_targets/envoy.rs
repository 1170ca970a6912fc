//! Any text is a configuration of envoyproxy/ratelimit or a list of errors; its import is two documents that fit each
//! other.

#![no_main]

use sluicegate_policy::descriptor::envoy::import;
use sluicegate_policy::{DescriptorTree, Document};

libfuzzer_sys::fuzz_target!(|text: &str| {
    if let Ok(import) = import([("c.yaml", text)]) {
        let policies = Document::parse(&import.policies).expect("it is a document");
        let tree = DescriptorTree::parse(&import.descriptors).expect("it is a tree");
        assert_eq!(policies.policies().len(), tree.policies().len());
    }
});
