//! The one script: `prelude.lua`, the twin of every algorithm, `steps.lua`, `lease.lua`, `epilogue.lua` with `general.lua`.
//!
//! `EVALSHA <sha1> n key.. rules ask ..` decides one request for each of `n` keys; [`codec`](super::codec) defines
//! `rules`, `ask` and the replies. It reads and writes its keys only, each at most once in a row of the same requests,
//! and reads the server's clock at most once.

/// The source, in the Lua 5.1 of Redis 6.2 and later and of Valkey.
pub const TEXT: &str = include_str!(concat!(env!("OUT_DIR"), "/script.lua"));

/// The SHA-1 of [`TEXT`]: 40 lower-case hexadecimal digits.
pub const SHA1: &str = include_str!(concat!(env!("OUT_DIR"), "/script.sha1"));

/// The format of rules that it reads: the first byte of a blob. Generations are hashes of the rules with it.
pub const FORMAT: u8 = 2;

/// Most keys of one call: together they keep the server for well under a millisecond.
pub const KEYS_MAX: usize = 64;
