//! Records of policies, as servers publish them (`spec/record.md`).

use sluicegate_policy::{Fallback, Leases, Overflow, Policy};
use sluicegate_store::redis::{
    KeyOverride, PolicyRecord, RecordOverflow, RecordResponse, RecordSettings,
};

/// Returns the record of `policy`: its compiled rules and settings, for programs that read no documents.
///
/// It lists the apps that the document names, or else the owner, or else `*` for every app.
pub fn record_of(policy: &Policy) -> PolicyRecord {
    let named = policy.named_apps().map(str::to_owned);
    let every = policy.says_every_app().then(|| "*".to_owned());
    let mut apps: Vec<_> = named.chain(every).collect();
    if apps.is_empty() {
        apps.push(policy.owner().unwrap_or("*").to_owned());
    }
    let settings = RecordSettings {
        apps,
        on_store_failure: policy.on_store_failure().word(),
        overflow: overflow(policy.overflow()),
        leases: policy.leases() != Leases::Off,
        key: policy.key().iter().map(ToString::to_string).collect(),
    };
    let overrides = policy.overrides();
    let overrides = overrides.map(|(key, own)| KeyOverride {
        key,
        rules: own.rules().set(),
        until: own.until(),
    });
    PolicyRecord::new(settings, policy.rules().set(), overrides)
}

fn overflow(overflow: &Overflow) -> RecordOverflow {
    match overflow {
        Overflow::Reject => RecordOverflow::Reject,
        Overflow::Shadow => RecordOverflow::Shadow,
        Overflow::Queue { max_wait } => RecordOverflow::Queue { max_wait_us: max_wait.get() },
        Overflow::Divert { target } => RecordOverflow::Divert { target: target.to_string() },
        Overflow::Degrade(Fallback::Tag(tag)) => {
            RecordOverflow::Degrade { tag: Some(tag.to_string()), response: None }
        }
        Overflow::Degrade(Fallback::Response { status, body, headers }) => {
            let headers = headers.iter().map(|(name, value)| (name.to_string(), value.to_string()));
            let (status, body, headers) = (*status, body.to_string(), headers.collect());
            RecordOverflow::Degrade {
                tag: None,
                response: Some(RecordResponse { status, body, headers }),
            }
        }
    }
}
