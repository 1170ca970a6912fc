//! The named bounds of every number that the kernel takes. Each says why it is what it is.

/// Largest cost of one request: 2^31, so that `used + cost` of any rule stays far below 2^53.
pub const COST_MAX: u64 = 1 << 31;

/// Most permits that a rate, a burst or a window may name: 2^32.
pub const PERMITS_MAX: u64 = 1 << 32;

/// Longest period, window, warm-up or time to live: 366 days, a leap year.
pub const PERIOD_MAX_US: u64 = 366 * 86_400 * 1_000_000;

/// Largest integer that a bucket counts to: 2^53, the last one below which every integer is exact
/// in the doubles of Lua, so that the same arithmetic gives the same result there.
pub const UNITS_MAX: u64 = 1 << 53;

/// Units that a full bucket may have: half of [`UNITS_MAX`]; the other half is room for debt.
pub const DEPTH_MAX: u64 = UNITS_MAX / 2;

/// Longest span that a decision reports (285 years): longer ones saturate here, still exact in a
/// double.
pub const SPAN_MAX_US: u64 = UNITS_MAX - 1;

/// Most rules of one policy: all of them are decided in one step under one lock or in one script.
pub const RULES_MAX: usize = 8;

/// Longest name of a policy or a rule, in bytes. Names become metric labels and header fields.
pub const NAME_BYTES_MAX: usize = 128;

/// Longest key in bytes. A longer one is refused, never cut: two users must not share a budget.
pub const KEY_BYTES_MAX: usize = 1024;

/// Most counters of one `sliding_window`: beyond it the gain in exactness is under 0.1 %.
pub const BUCKETS_MAX: u64 = 1_000;

/// Most entries of one `sliding_log`, 12 bytes each. For more use `sliding_window`.
pub const LOG_ENTRIES_MAX: u64 = 10_000;

/// Most permits that one `concurrency` rule hands out: each is a record with its own end.
pub const HOLDERS_MAX: u64 = 10_000;

/// Time for which the tickets of a process that waits for permits count after it last asked: it asks every second, so it has
/// missed two times.
pub const TICKET_TTL_US: u64 = 3_000_000;

/// Most waiting requests that one decision calls: each that passes calls the next ones.
pub const CALLED_MAX: usize = 16;

/// Most holders that lease permits of one key, 27 bytes each in the store. More of them go on
/// without leases; a message about a key with so many costs Redis 25 µs.
pub const LEASE_HOLDERS_MAX: usize = 64;

/// Longest term of a lease: how long a key may lack the permits of a holder that has died.
pub const LEASE_TERM_MAX_US: u64 = 2_000_000;

/// Longest time that a holder listens to an answer: a round trip that takes longer is not worth a lease.
pub const LEASE_PATIENCE_MAX_US: u64 = 250_000;

/// Longest time from a message to the deadline of what it was granted.
pub const LEASE_DEADLINE_MAX_US: u64 =
    LEASE_TERM_MAX_US + LEASE_TERM_MAX_US / 16 + LEASE_PATIENCE_MAX_US;

/// Oldest hint that is believed: a store that has lost its last writes is back within a minute.
pub const LEASE_HINT_MAX_US: u64 = 60_000_000;

/// Most marks of one message: four say well enough when a lease of two seconds was spent.
pub const LEASE_MARKS_MAX: usize = 4;

/// Most permits that a hint says a rule has in use: five bytes.
pub const LEASE_USED_MAX: u64 = (1 << 40) - 1;

/// Largest `cold_factor` of `smooth_warmup`.
pub const COLD_FACTOR_MAX: f64 = 1_000.0;

/// Latest instant that is stored: what seven bytes hold, the year 4253.
pub const STORED_INSTANT_MAX_US: u64 = (1 << 56) - 1;

/// Largest double that is stored, and smallest with a minus: 2^128, far beyond every debt, so that
/// sums and products of a few stay finite.
pub const STORED_F64_MAX: f64 = 340_282_366_920_938_463_463_374_607_431_768_211_456.0;

/// Longest form in which the states of one policy are stored, in bytes: all rules hold as many permits as one may, 27 bytes
/// each, and as many requests wait, 28 bytes each and 15 for its process.
pub const STORED_BYTES_MAX: u64 =
    1 + RULES_MAX as u64 * (8 + 27 * HOLDERS_MAX + 4 + 43 * HOLDERS_MAX);

/// Most characters of an input that a message repeats: enough to recognise it, on one line of a terminal.
pub const EXCERPT_CHARS_MAX: usize = 60;
