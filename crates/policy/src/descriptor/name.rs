//! Names of the policies that descriptors become.
//!
//! A name decides where usage is kept: it must be the same whenever the same configuration is read, in any order, and
//! no two descriptors can have one. It contains what people recognise, `messaging.message_type_marketing.to_number`;
//! where that is not enough (two descriptors would have that name, or it contains characters that a name cannot have) a
//! fingerprint of the descriptor follows.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use sluicegate_kernel::limits::NAME_BYTES_MAX;

use super::{DescriptorRoute, ValuePattern, join};

/// A `-` and the 16 digits of a fingerprint.
const FINGERPRINT_BYTES: usize = 17;

/// A name for each of `routes`, in their order.
pub(super) fn names<'r>(routes: impl IntoIterator<Item = &'r DescriptorRoute>) -> Vec<String> {
    let routes: Vec<_> = routes.into_iter().map(|route| (route, PlainName::of(route))).collect();
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, plain) in &routes {
        *count.entry(&plain.name).or_default() += 1;
    }
    let name = |(route, plain): &(&DescriptorRoute, PlainName)| {
        if plain.says_all && count[plain.name.as_str()] == 1 {
            return plain.name.clone();
        }
        let end = plain.name.len().min(NAME_BYTES_MAX - FINGERPRINT_BYTES);
        alloc::format!("{}-{:016x}", &plain.name[..end], fingerprint(route))
    };
    routes.iter().map(name).collect()
}

/// The readable part of a descriptor's name, in the letters of names.
struct PlainName {
    name: String,
    /// The name is the descriptor exactly: no character was left out or replaced, and it has no pattern.
    says_all: bool,
}

impl PlainName {
    fn of(route: &DescriptorRoute) -> Self {
        let mut plain = Self { name: String::new(), says_all: true };
        plain.push(&route.domain);
        for entry in &route.entries {
            plain.name.push('.');
            plain.push(entry.key.written());
            match &entry.value {
                ValuePattern::Any => {}
                ValuePattern::Exact(value) => {
                    plain.name.push('_');
                    plain.push(value);
                }
                ValuePattern::Glob { glob, .. } => {
                    plain.name.push('_');
                    plain.push(glob.only_prefix().unwrap_or(glob.text()));
                    plain.says_all = false;
                }
            }
        }
        plain.says_all &= plain.name.len() <= NAME_BYTES_MAX - FINGERPRINT_BYTES;
        plain
    }

    fn push(&mut self, text: &str) {
        for char in text.chars() {
            let put = match char.to_ascii_lowercase() {
                char @ ('a'..='z' | '0'..='9' | '.' | '_' | '-') => char,
                _ => '-',
            };
            self.says_all &= put == char;
            self.name.push(put);
        }
    }
}

/// FNV-1a, 64 bits, of everything that distinguishes a descriptor from others.
fn fingerprint(route: &DescriptorRoute) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut parts: Vec<&str> = alloc::vec![&*route.domain];
    for entry in &route.entries {
        parts.push(entry.key.written());
        parts.extend(match &entry.value {
            ValuePattern::Any => ["any", ""],
            ValuePattern::Exact(value) => ["exact", value],
            ValuePattern::Glob { glob, .. } => match glob.only_prefix() {
                Some(prefix) => ["prefix", prefix],
                None => ["pattern", glob.text()],
            },
        });
    }
    let text = join(parts).unwrap_or_default();
    text.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}
