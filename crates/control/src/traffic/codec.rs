//! One bucket of a node as a row of the catalog keeps it: varints, deflated.
//!
//! ```text
//! body   = deflate(version policies*)
//! policy = name mask count* keys key*     a bit of the mask for each result that has a count
//! version                                 1, or 2 where a policy has more results than version 1 knew
//! key    = kind text at_least at_most     kind: 0 none, 1 whole, 2 cut
//! name, text = length bytes               every number is a varint (LEB128)
//! ```
//!
//! **One property that always holds**: a body has at most [`BODY_BYTES_MAX`] bytes, and its counts add up to
//! those that were given. What there is no room for is counted under `(other)`, the least busy first.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::{Counts, OTHER, PolicyCounts, RefusedKey};

/// Largest body: a day of full ones from 15 nodes is 159 MB.
pub const BODY_BYTES_MAX: usize = 16 << 10;

/// Largest text of a body: 2,000 policies with the longest names, and keys of a hundred of them.
const TEXT_BYTES_MAX: usize = 2 << 20;

/// Number of results in the first version: a body with these only can be read by older nodes.
const FIRST_RESULTS: usize = 8;
const FIRST_VERSION: u64 = 1;

/// A body with further results. A later program may have more of them: a reader leaves out those that it does not
/// know.
const VERSION: u64 = 2;

/// Packs `policies` into a body.
pub fn pack(policies: &[PolicyCounts]) -> Vec<u8> {
    let mut busiest: Vec<_> = policies.iter().collect();
    busiest.sort_by_key(|of| (of.policy != OTHER, u64::MAX - of.counts.decided()));
    if let Some(body) = packed(busiest.iter().copied()) {
        return body;
    }
    // Searches for the largest number that fits, between one that fits and one that does not.
    let (mut fits, mut exceeds) = (0, busiest.len());
    let mut best = joined(&busiest, 0).expect("one policy has room");
    while exceeds - fits > 1 {
        let kept = usize::midpoint(fits, exceeds);
        match joined(&busiest, kept) {
            Some(body) => (fits, best) = (kept, body),
            None => exceeds = kept,
        }
    }
    best
}

/// Packs the first `kept` of `busiest`, and the others as one.
fn joined(busiest: &[&PolicyCounts], kept: usize) -> Option<Vec<u8>> {
    let (kept, rest) = busiest.split_at(kept);
    let mut other = PolicyCounts { policy: OTHER.to_owned(), ..PolicyCounts::default() };
    let is_other = |of: &&&PolicyCounts| of.policy == OTHER;
    for of in rest.iter().chain(kept.iter().filter(is_other)) {
        other.counts.add(&of.counts);
    }
    let kept = kept.iter().copied().filter(|of| of.policy != OTHER);
    packed(kept.chain([&other]))
}

/// Packs all of `policies` into a body; none: they do not fit.
fn packed<'p>(policies: impl Iterator<Item = &'p PolicyCounts>) -> Option<Vec<u8>> {
    let (mut text, mut version) = (vec![0], FIRST_VERSION);
    for PolicyCounts { policy, counts, top } in policies {
        bytes(&mut text, policy.as_bytes());
        let counted = counts.0.iter().enumerate().filter(|(_, count)| **count > 0);
        let mask = counted.clone().fold(0, |mask, (place, _)| mask | 1_u64 << place);
        if mask >> FIRST_RESULTS > 0 {
            version = VERSION;
        }
        number(&mut text, mask);
        counted.for_each(|(_, count)| number(&mut text, *count));
        number(&mut text, top.len() as u64);
        for RefusedKey { key, key_is_cut, refused_at_least, refused_at_most } in top {
            number(&mut text, key.as_ref().map_or(0, |_| 1 + u64::from(*key_is_cut)));
            bytes(&mut text, key.as_deref().unwrap_or_default().as_bytes());
            number(&mut text, *refused_at_least);
            number(&mut text, *refused_at_most);
        }
    }
    text[0] = u8::try_from(version).expect("it is one byte");
    if text.len() > TEXT_BYTES_MAX {
        return None;
    }
    let mut body = DeflateEncoder::new(Vec::new(), Compression::fast());
    let body = body.write_all(&text).and_then(|()| body.finish()).expect("a Vec takes all bytes");
    (body.len() <= BODY_BYTES_MAX).then_some(body)
}

/// Unpacks the policies of a body; none: it is invalid.
pub fn unpack(body: &[u8]) -> Option<Vec<PolicyCounts>> {
    let mut text = Vec::new();
    DeflateDecoder::new(body).take(TEXT_BYTES_MAX as u64).read_to_end(&mut text).ok()?;
    let mut rest = text.as_slice();
    if !(FIRST_VERSION..=VERSION).contains(&take_number(&mut rest)?) {
        return None;
    }
    let mut policies = Vec::new();
    while !rest.is_empty() {
        let policy = take_text(&mut rest)?;
        let mask = take_number(&mut rest)?;
        let mut counts = Counts::default();
        for place in (0..64).filter(|place| mask >> place & 1 == 1) {
            let count = take_number(&mut rest)?;
            if let Some(known) = counts.0.get_mut(place) {
                *known = count;
            }
        }
        let mut top = Vec::new();
        for _ in 0..take_number(&mut rest)? {
            let (kind, key) = (take_number(&mut rest)?, take_text(&mut rest)?);
            let (refused_at_least, refused_at_most) =
                (take_number(&mut rest)?, take_number(&mut rest)?);
            let key = (kind > 0).then_some(key);
            top.push(RefusedKey { key, key_is_cut: kind == 2, refused_at_least, refused_at_most });
        }
        policies.push(PolicyCounts { policy, counts, top });
    }
    Some(policies)
}

fn number(text: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        text.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    text.push(number.to_le_bytes()[0]);
}

fn bytes(text: &mut Vec<u8>, bytes: &[u8]) {
    number(text, bytes.len() as u64);
    text.extend_from_slice(bytes);
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    let len = usize::try_from(take_number(rest)?).ok()?;
    let (text, behind) = rest.split_at_checked(len)?;
    *rest = behind;
    String::from_utf8(text.to_vec()).ok()
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

    use super::*;

    /// Returns numbers that do not repeat and cannot be deflated much.
    fn noise(number: u64) -> u64 {
        BuildHasherDefault::<DefaultHasher>::default().hash_one(number)
    }

    fn policy(policy: &str, counts: [u64; 9]) -> PolicyCounts {
        PolicyCounts { policy: policy.to_owned(), counts: Counts(counts), top: Vec::new() }
    }

    fn sum(policies: &[PolicyCounts]) -> Counts {
        let mut sum = Counts::default();
        policies.iter().for_each(|of| sum.add(&of.counts));
        sum
    }

    #[test]
    fn a_body_is_read_as_it_was_written() {
        let key = |key: Option<&str>, key_is_cut| RefusedKey {
            key: key.map(str::to_owned),
            key_is_cut,
            refused_at_least: 3,
            refused_at_most: u64::MAX,
        };
        let busy = PolicyCounts {
            top: vec![key(Some("ann"), false), key(Some("long"), true), key(None, false)],
            ..policy("orders", [1, 0, u64::MAX, 0, 127, 128, 0, 5, 9])
        };
        let policies = [busy, policy("(caller)", [0; 9])];
        assert_eq!(unpack(&pack(&policies)).unwrap(), policies);
        assert_eq!(unpack(&pack(&[])), Some(Vec::new()));
    }

    /// Returns a body with this text.
    fn body_of(text: &[u8]) -> Vec<u8> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn text_of(body: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        DeflateDecoder::new(body).read_to_end(&mut text).unwrap();
        text
    }

    #[test]
    fn nodes_of_other_versions_read_one_another() {
        // As the first version wrote it: `p` allowed 3 and refused 2.
        let first = [1, 1, b'p', 0b10_0001, 3, 2, 0];
        let known = policy("p", [3, 0, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(
            unpack(&body_of(&first)),
            Some(vec![known.clone()]),
            "it has no count of overload"
        );
        assert_eq!(text_of(&pack(&[known])), first, "and is written so where there was none");
        let shed = policy("p", [3, 0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(
            text_of(&pack(std::slice::from_ref(&shed)))[0],
            2,
            "no node of before reads it wrong"
        );
        // A later program counts something at the place 9.
        let later = [2, 1, b'p', 0b1000_0001, 0b110, 3, 2, 7, 0];
        assert_eq!(unpack(&body_of(&later)), Some(vec![shed]), "what is not known is left out");
    }

    #[test]
    fn however_much_there_is_a_body_has_its_bound_and_every_count() {
        for count in [10, 700, 2_000] {
            let policies: Vec<_> = (0..count)
                .map(|at| {
                    let name = format!("{:016x}{:016x}", noise(at), noise(at + 1_000_000));
                    policy(&name, [0, 1, 2, 3, 4, 5, 6, 7, 8].map(|of| noise(9 * at + of) >> 44))
                })
                .chain([policy(OTHER, [1; 9])])
                .collect();
            let body = pack(&policies);
            assert!(body.len() <= BODY_BYTES_MAX, "{count}: {}", body.len());
            let read = unpack(&body).unwrap();
            assert_eq!(sum(&read), sum(&policies), "{count}");
            assert_eq!(read.iter().filter(|of| of.policy == OTHER).count(), 1);
            if count > 1_000 {
                assert!(read.len() > 100 && body.len() > BODY_BYTES_MAX * 9 / 10, "{}", read.len());
                let least = read.iter().filter(|of| of.policy != OTHER);
                let least = least.map(|of| of.counts.decided()).min().unwrap();
                let gone = policies.iter().filter(|of| !read.iter().any(|r| r.policy == of.policy));
                assert!(gone.map(|of| of.counts.decided()).max().unwrap() <= least);
            }
        }
    }

    #[test]
    fn keys_that_deflate_well_do_not_make_a_body_that_is_too_long_to_read() {
        let key = RefusedKey { key: Some("a".repeat(1_024)), ..RefusedKey::default() };
        let policies: Vec<_> = (0..1_000)
            .map(|at| PolicyCounts {
                top: vec![key.clone(); 5],
                ..policy(&format!("p{at}"), [at; 9])
            })
            .collect();
        assert_eq!(sum(&unpack(&pack(&policies)).unwrap()), sum(&policies));
    }

    #[test]
    fn what_is_no_body_is_refused() {
        let body = pack(&[policy("orders", [1; 9])]);
        for len in 0..body.len() {
            let cut = unpack(&body[..len]);
            assert!(cut.is_none() || cut == Some(Vec::new()), "{len}: {cut:?}");
        }
        let mut other = Vec::new();
        number(&mut other, VERSION + 1);
        assert_eq!(unpack(&body_of(&other)), None, "a later version");
        assert_eq!(unpack(b"noise"), None);
    }
}
