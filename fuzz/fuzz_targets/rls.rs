//! Any bytes are a message of the rls wire with a request, or are refused.

#![no_main]

use std::sync::LazyLock;

use sluicegate_policy::{DescriptorTree, Document, PolicySet};

static TREE: LazyLock<DescriptorTree> = LazyLock::new(|| {
    let tree = "descriptors: [{ domain: d, entries: [{ key: '*k*' }, { key: l, value: v*w*x }], policy: p }]";
    DescriptorTree::parse(tree).expect("it is a tree")
});

static POLICIES: LazyLock<PolicySet> = LazyLock::new(|| {
    let document = "policies: [{ name: p, rules: [{ fixed_window: { limit: 1, window: 1s } }] }]";
    PolicySet::new(Document::parse(document).expect("it is a document"))
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = sluicegate_server::wire::rls::request_in(bytes, &TREE, &POLICIES);
});
