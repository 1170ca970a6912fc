//! Numbers as the script reads and writes them.

use sluicegate_kernel::limits::UNITS_MAX;

/// Appends the lowest `bytes` bytes of `value`, little-endian.
pub(super) fn put(out: &mut Vec<u8>, value: u64, bytes: usize) {
    out.extend_from_slice(&value.to_le_bytes()[..bytes]);
}

/// Returns the little-endian number of at most 7 bytes.
pub(super) fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Returns the whole part of `number` within 0..=2^53.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0..=2^53")]
pub(super) fn whole(number: f64) -> u64 {
    number.clamp(0.0, UNITS_MAX as f64) as u64
}
