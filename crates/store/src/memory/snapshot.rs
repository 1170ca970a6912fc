//! The states of a memory store in a file: written at shutdown or now and then, read at start.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `sluicegt` |
//! | 4 | the version of this format |
//! | 16 | the seed that keys are hashed with |
//! | 4 | number of shards |
//! | 8 | from version 2 on: the latest instant of a decision |
//! | | for every shard its keys, each as below, then four zeros |
//! | 4 | CRC-32 of all of the above |
//!
//! | bytes of a key | content |
//! |---|---|
//! | 4 | the number of its rule set, from 1 on |
//! | 16 | only where this number was not there before: a hash of the rules |
//! | 8 | the key's tag |
//! | 4 | the length of the rest |
//! | | the states, as [`RuleSet::write_states`] writes them |
//!
//! Version 3 is version 2 with keys hashed in another layout ([`KeyLayout`]). A store goes on as it was restored,
//! because a snapshot has no keys, only hashes: from version 2 it writes version 2 again.
//!
//! All numbers are little-endian. If a tag is there twice, the later one holds: while a shard is
//! written, a key may move on. The file is written beside its place, synchronised, and renamed: at
//! every moment there is the old one or the new one. It holds the seed, with which anybody can find
//! keys that collide or ask whether a key is in the file; so only its owner may read it (0600).
//!
//! A writer or a reader holds no more of the file in memory than a segment's keys, so a file may be larger than
//! the free memory.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use siphasher::sip128::SipHasher13;
use sluicegate_kernel::limits::STORED_BYTES_MAX;
use sluicegate_kernel::{Micros, RuleSet, States};
use sluicegate_net::file;

use super::key_hash::{KeyHasher, KeyLayout};
use super::rules::QuotaId;
use super::shard::NewState;
use super::{KEYS_MAX, MemoryStore, SEGMENT_BUCKETS_MIN, SHARDS_MAX};

/// The first bytes of a file.
const MAGIC: [u8; 8] = *b"sluicegt";

/// The version of new stores, and the newest that can be read.
const VERSION: u32 = 3;

/// The last version of [`KeyLayout::LengthFirst`].
const LENGTH_FIRST_VERSION: u32 = 2;

/// Rule sets in one file: far more than there ever are, for a document holds fewer. It bounds the claims of a
/// broken file.
const RULE_SETS_MAX: usize = 1 << 24;

/// The size of a file that was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Keys in the file. One that moved while it was written may count twice.
    pub keys: u64,
    /// Length of the file.
    pub bytes: u64,
}

/// The result of reading a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Keys that the store remembers again.
    pub keys: u64,
    /// Keys whose budgets have become full in the meantime.
    pub full: u64,
    /// Keys whose rules are not among those given.
    pub other_rules: u64,
}

/// Why a file was not read. No store was made from it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file does not exist, or cannot be read or written.
    #[error(transparent)]
    Io(io::Error),
    /// The file is not that of a memory store.
    #[error("snapshot: not a snapshot of a memory store")]
    Foreign,
    /// A later version of this program wrote it.
    #[error("snapshot: unsupported version `{0}`, expected 1..={VERSION}")]
    Newer(u32),
    /// The file ends too early, or does not contain what was written.
    #[error("snapshot: file is truncated or corrupt: {0}")]
    Torn(&'static str),
}

impl MemoryStore {
    /// Writes the states to `path`, and replaces an earlier file. One snapshot at a time.
    ///
    /// A shard is locked for as long as it takes to copy some hundred keys, so the file may hold one
    /// key's state of a moment earlier than another's. This takes seconds for millions of keys: it
    /// belongs on a thread that may block.
    ///
    /// # Errors
    /// [`SnapshotError::Io`]; the file is then the one before.
    pub fn snapshot(&self, path: &Path) -> Result<Saved, SnapshotError> {
        let saved = file::replace(path, &beside(path), |file| self.write_to(file));
        saved.map_err(SnapshotError::Io)
    }

    /// Returns a store for at most `keys_max` keys with the states that [`snapshot`](Self::snapshot) wrote to
    /// `path`, at the moment `now`.
    ///
    /// States contain the instant up to which they have been counted, so the time that has passed since is taken
    /// into account by itself; the instants must be of a clock that goes on while the process does not, such as
    /// µs since the Unix epoch. A state is only taken over if the very rules that wrote it are among `rules`;
    /// each is given with the name of the [`Quota`](crate::Quota) that its keys count to.
    ///
    /// A clock that is behind that one adds nothing to a budget: begin it at
    /// [`latest`](Self::latest), so that it does not catch up later and adds the same time again.
    ///
    /// The store has as many shards as the one that was written, and at least one key in each: for a
    /// store of quite another size start without the file.
    ///
    /// # Errors
    /// [`SnapshotError`]; no state of such a file is taken over.
    ///
    /// # Panics
    /// If the system has no address space for so many keys.
    pub fn restore(
        path: &Path,
        keys_max: usize,
        rules: &[(&str, Arc<RuleSet>)],
        now: Micros,
    ) -> Result<(Self, Restored), SnapshotError> {
        let file = File::open(path).map_err(SnapshotError::Io)?;
        let mut source = SnapshotReader::new(file);
        let SnapshotHeader { hasher, shards, latest } = source.head()?;
        let keys_per_shard_max = (keys_max.min(KEYS_MAX) / shards as usize).max(1);
        let store =
            Self { hasher, ..Self::with_shards(shards, keys_per_shard_max, SEGMENT_BUCKETS_MIN) };
        let ours: HashMap<_, _> = rules
            .iter()
            .map(|(quota, rules)| (fingerprint(rules), Ours { quota, rules }))
            .collect();
        let (mut restored, mut theirs) = (Restored::default(), Vec::new());
        for shard in &store.shards {
            let mut shard = shard.0.lock();
            shard.set_latest(latest);
            while let Some(SnapshotKey { rules, tag, states }) =
                source.record(&ours, &mut theirs)?
            {
                let Some(Ours { quota, rules }) = rules else {
                    restored.other_rules += 1;
                    continue;
                };
                let states = rules.read_states(states);
                let states = states.ok_or(SnapshotError::Torn("invalid state"))?;
                let new = NewState { rules, quota: QuotaId::of(quota), states };
                let is_kept = shard.restore(&store.arena, tag, new, now);
                restored.full += u64::from(!is_kept);
            }
        }
        restored.keys = store.len() as u64;
        source.end()?;
        Ok((store, restored))
    }

    fn write_to(&self, file: &mut File) -> io::Result<Saved> {
        let mut sink = SnapshotWriter::new(file);
        sink.put(&MAGIC)?;
        let KeyHasher { seed, layout } = self.hasher;
        let version = match layout {
            KeyLayout::LengthFirst => LENGTH_FIRST_VERSION,
            KeyLayout::WholeWords => VERSION,
        };
        sink.put(&version.to_le_bytes())?;
        sink.put(&seed.0.to_le_bytes())?;
        sink.put(&seed.1.to_le_bytes())?;
        let shards = u32::try_from(self.shards.len()).expect("there are at most SHARDS_MAX");
        sink.put(&shards.to_le_bytes())?;
        sink.put(&self.latest().get().to_le_bytes())?;
        let (mut records, mut numbers) = (Records::default(), Numbers::default());
        for shard in &self.shards {
            for segment in 0.. {
                let shard = shard.0.lock();
                let see =
                    |tag, rules: &_, states: &_| records.add(&mut numbers, tag, rules, states);
                let is_there = shard.show_segment(&self.arena, segment, see);
                drop(shard);
                if !is_there {
                    break;
                }
                sink.put(&records.bytes)?;
                records.bytes.clear();
            }
            sink.put(&[0; 4])?;
        }
        Ok(Saved { keys: records.keys, bytes: sink.end()? })
    }
}

/// Keys on their way into a file.
#[derive(Default)]
struct Records {
    bytes: Vec<u8>,
    keys: u64,
}

/// The rule sets that are in a file, held so that no other takes the address of one of them.
#[derive(Default)]
struct Numbers(HashMap<usize, (u32, Arc<RuleSet>)>);

impl Records {
    fn add(&mut self, numbers: &mut Numbers, tag: u64, rules: &Arc<RuleSet>, states: &States) {
        let Self { bytes, keys } = self;
        *keys += 1;
        let (number, is_new) = numbers.number(rules);
        bytes.extend(number.to_le_bytes());
        if is_new {
            bytes.extend(fingerprint(rules).to_le_bytes());
        }
        bytes.extend(tag.to_le_bytes());
        let length_at = bytes.len();
        bytes.extend([0; 4]);
        rules.write_states(states, bytes);
        let length = u32::try_from(bytes.len() - length_at - 4);
        let length = length.expect("states have at most STORED_BYTES_MAX bytes");
        bytes[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }
}

impl Numbers {
    /// Returns the number of `rules`, and whether it is new.
    fn number(&mut self, rules: &Arc<RuleSet>) -> (u32, bool) {
        let next = u32::try_from(self.0.len() + 1).expect("shards have ids for far fewer rules");
        let entry = self.0.entry(Arc::as_ptr(rules).addr());
        let (number, _) = entry.or_insert_with(|| (next, Arc::clone(rules)));
        (*number, *number == next)
    }
}

/// The fields before the keys.
struct SnapshotHeader {
    hasher: KeyHasher,
    shards: u32,
    latest: Micros,
}

/// Rules that may have written states.
#[derive(Clone, Copy)]
struct Ours<'a> {
    quota: &'a str,
    rules: &'a Arc<RuleSet>,
}

/// A key as it is in the file.
struct SnapshotKey<'a, 's> {
    /// The rules that wrote the states, if they are ours.
    rules: Option<Ours<'a>>,
    tag: u64,
    states: &'s [u8],
}

/// Writes, and adds up what it writes.
struct SnapshotWriter<'f> {
    to: BufWriter<&'f mut File>,
    crc: crc32fast::Hasher,
    bytes: u64,
}

impl<'f> SnapshotWriter<'f> {
    fn new(file: &'f mut File) -> Self {
        Self { to: BufWriter::new(file), crc: crc32fast::Hasher::new(), bytes: 0 }
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc.update(bytes);
        self.bytes += bytes.len() as u64;
        self.to.write_all(bytes)
    }

    /// Writes the checksum and returns the length of the file.
    fn end(self) -> io::Result<u64> {
        let Self { mut to, crc, bytes } = self;
        to.write_all(&crc.finalize().to_le_bytes())?;
        to.flush()?;
        Ok(bytes + 4)
    }
}

/// Reads, and adds up what it reads.
struct SnapshotReader {
    from: BufReader<File>,
    crc: crc32fast::Hasher,
    /// The states that were read last.
    states: Vec<u8>,
}

impl SnapshotReader {
    fn new(file: File) -> Self {
        let (from, crc) = (BufReader::new(file), crc32fast::Hasher::new());
        Self { from, crc, states: Vec::new() }
    }

    fn head(&mut self) -> Result<SnapshotHeader, SnapshotError> {
        let magic = self.take().map_err(|error| match error {
            SnapshotError::Torn(_) => SnapshotError::Foreign,
            other => other,
        })?;
        if magic != MAGIC {
            return Err(SnapshotError::Foreign);
        }
        let version = match self.u32()? {
            version @ 1..=VERSION => version,
            0 => return Err(SnapshotError::Torn("invalid version 0")),
            newer => return Err(SnapshotError::Newer(newer)),
        };
        let seed = (self.u64()?, self.u64()?);
        let layout = match version {
            ..=LENGTH_FIRST_VERSION => KeyLayout::LengthFirst,
            _ => KeyLayout::WholeWords,
        };
        let shards = self.u32()?;
        if !(1..=SHARDS_MAX).contains(&shards) {
            return Err(SnapshotError::Torn("invalid number of shards"));
        }
        let latest = if version >= 2 { Micros::new(self.u64()?) } else { Micros::ZERO };
        Ok(SnapshotHeader { hasher: KeyHasher { seed, layout }, shards, latest })
    }

    /// Returns the next key of a shard, if it has one more. `theirs` are the rule sets met so far in the order of
    /// their numbers, those that are not among `ours` as `None`.
    fn record<'a>(
        &mut self,
        ours: &HashMap<u128, Ours<'a>>,
        theirs: &mut Vec<Option<Ours<'a>>>,
    ) -> Result<Option<SnapshotKey<'a, '_>>, SnapshotError> {
        let number = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        let Some(place) = number.checked_sub(1) else { return Ok(None) };
        if place == theirs.len() && place < RULE_SETS_MAX {
            theirs.push(ours.get(&self.u128()?).copied());
        }
        let rules = *theirs.get(place).ok_or(SnapshotError::Torn("key without rules"))?;
        let tag = self.u64()?;
        let length = u64::from(self.u32()?);
        let length = usize::try_from(length).ok().filter(|_| length <= STORED_BYTES_MAX);
        self.states.resize(length.ok_or(SnapshotError::Torn("state too long"))?, 0);
        self.from.read_exact(&mut self.states).map_err(torn)?;
        self.crc.update(&self.states);
        Ok(Some(SnapshotKey { rules, tag, states: &self.states }))
    }

    fn end(self) -> Result<(), SnapshotError> {
        let Self { mut from, crc, states: _ } = self;
        let mut stated = [0; 4];
        from.read_exact(&mut stated).map_err(torn)?;
        if u32::from_le_bytes(stated) != crc.finalize() {
            return Err(SnapshotError::Torn("checksum mismatch"));
        }
        match from.read(&mut [0]).map_err(SnapshotError::Io)? {
            0 => Ok(()),
            _ => Err(SnapshotError::Torn("trailing data")),
        }
    }

    fn u32(&mut self) -> Result<u32, SnapshotError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, SnapshotError> {
        self.take().map(u64::from_le_bytes)
    }

    fn u128(&mut self) -> Result<u128, SnapshotError> {
        self.take().map(u128::from_le_bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], SnapshotError> {
        let mut bytes = [0; N];
        self.from.read_exact(&mut bytes).map_err(torn)?;
        self.crc.update(&bytes);
        Ok(bytes)
    }
}

fn torn(error: io::Error) -> SnapshotError {
    match error.kind() {
        ErrorKind::UnexpectedEof => SnapshotError::Torn("unexpected end of file"),
        _ => SnapshotError::Io(error),
    }
}

/// Returns the path at which the next file is written before it replaces the last.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// Returns a hash of the whole rules: their names, algorithms, parameters and units, and their `carry`.
fn fingerprint(rules: &RuleSet) -> u128 {
    let text = format!("{rules:?}");
    SipHasher13::new().hash(text.as_bytes()).as_u128()
}
