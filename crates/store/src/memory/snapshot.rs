//! What a memory store remembers, in a file: written at shutdown or now and then, read at start.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `sluicegt` |
//! | 4 | the version of this format |
//! | 16 | the seed that keys are hashed with |
//! | 4 | number of shards |
//! | 4 + 16 each | the rule sets: how many, and a hash of what each says |
//! | 4 + 28 each, for every shard | its keys: how many, then tag, number of the rule set, state |
//! | 4 | CRC-32 of all of the above |
//!
//! All numbers are little-endian. The file is written beside its place, synchronised, and renamed:
//! at every moment there is the old one or the new one. It holds the seed, with which anybody can
//! find keys that collide or ask whether a key is in the file; so only its owner may read it (0600).
//!
//! Only states of [one rule of constant size](sluicegate_kernel::RuleSet::packs) are written.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use siphasher::sip128::SipHasher13;
use sluicegate_kernel::{Micros, RuleSet};

use super::shard::Kept;
use super::{KEYS_MAX, MemoryStore, SEGMENT_BUCKETS_MIN, SHARDS_MAX};

/// What the file begins with.
const MAGIC: [u8; 8] = *b"sluicegt";

/// The version that is written, and the newest that is understood.
const VERSION: u32 = 1;

/// Rule sets in one file: as many as all shards' ids can name is far more than there ever are, and
/// what a broken file may claim is bounded by it.
const RULE_SETS_MAX: u32 = 1 << 24;

/// What was written to a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Saved {
    /// Keys in the file.
    pub keys: u64,
    /// Keys whose states are longer than 16 bytes: they are not in the file.
    pub left_out: u64,
}

/// What was read from a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Keys that the store remembers again.
    pub keys: u64,
    /// Keys whose budgets have become full in the meantime.
    pub full: u64,
    /// Keys whose rules are not among those given.
    pub other_rules: u64,
}

/// Why a file was not read. No store was made of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// It is not there or cannot be read or written.
    #[error("snapshot: {0}")]
    Io(#[source] io::Error),
    /// It is not the file of a memory store.
    #[error("snapshot: the file is not one of a memory store")]
    Foreign,
    /// A later version of this program wrote it.
    #[error("snapshot: the file has version `{0}`, expected 1..={VERSION}")]
    Newer(u32),
    /// It ends too early, or what it says is not what was written.
    #[error("snapshot: the file is torn: {0}")]
    Torn(&'static str),
}

impl MemoryStore {
    /// Writes what is remembered to `path`, in place of what is there. One snapshot at a time.
    ///
    /// Shards are locked one after the other for as long as it takes to copy their keys, so the file
    /// may hold one key's state of a moment earlier than another's.
    ///
    /// # Errors
    /// [`SnapshotError::Io`]; the file is then the one before.
    pub fn snapshot(&self, path: &Path) -> Result<Saved, SnapshotError> {
        let beside = beside(path);
        let saved = self.write_to(&beside).and_then(|saved| {
            fs::rename(&beside, path)?;
            // The new name is safe once the directory is.
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(directory.unwrap_or(Path::new(".")))?.sync_all()?;
            Ok(saved)
        });
        saved.map_err(|error| {
            // What was begun is of no use; that it may not be there is all right.
            fs::remove_file(&beside).ok();
            SnapshotError::Io(error)
        })
    }

    /// A store for at most `keys_max` keys that remembers what [`snapshot`](Self::snapshot) wrote to
    /// `path`, at the moment `now`.
    ///
    /// States say up to which instant they have been counted, so the time that has passed since is
    /// taken into account by itself; the instants must be of a clock that goes on while the process
    /// does not, such as µs since the Unix epoch. A state is only taken over if the very rules that
    /// wrote it are among `rules`.
    ///
    /// # Errors
    /// [`SnapshotError`]; nothing of such a file is taken over.
    ///
    /// # Panics
    /// If the system has no address space for so many keys.
    pub fn restore(
        path: &Path,
        keys_max: usize,
        rules: &[Arc<RuleSet>],
        now: Micros,
    ) -> Result<(Self, Restored), SnapshotError> {
        let file = File::open(path).map_err(SnapshotError::Io)?;
        let mut source = Source { from: BufReader::new(file), crc: crc32fast::Hasher::new() };
        let Head { seed, shards } = source.head()?;
        let keys_per_shard_max = (keys_max.min(KEYS_MAX) / shards as usize).max(1);
        let store =
            Self { seed, ..Self::with_shards(shards, keys_per_shard_max, SEGMENT_BUCKETS_MIN) };
        let rules = source.rules(rules)?;
        let mut restored = Restored::default();
        for shard in &store.shards {
            let mut shard = shard.0.lock();
            for _ in 0..source.u32()? {
                let (tag, rules_at, packed) = (source.u64()?, source.u32()?, source.u128()?);
                let place = usize::try_from(rules_at).ok().and_then(|place| rules.get(place));
                let Some(rules) = place.ok_or(SnapshotError::Torn("a key without rules"))? else {
                    restored.other_rules += 1;
                    continue;
                };
                let is_kept = shard.restore(&store.arena, tag, (rules, packed), now);
                *if is_kept { &mut restored.keys } else { &mut restored.full } += 1;
            }
        }
        source.end()?;
        Ok((store, restored))
    }

    fn write_to(&self, path: &Path) -> io::Result<Saved> {
        let mut sink = Sink { to: BufWriter::new(create(path)?), crc: crc32fast::Hasher::new() };
        sink.put(&MAGIC)?;
        sink.put(&VERSION.to_le_bytes())?;
        sink.put(&self.seed.0.to_le_bytes())?;
        sink.put(&self.seed.1.to_le_bytes())?;
        sink.count(self.shards.len())?;
        // Rules that come up after this are new: their keys will be in the next file.
        let mut rules: Vec<Arc<RuleSet>> = Vec::new();
        let mut numbers = HashMap::new();
        for shard in &self.shards {
            for held in shard.0.lock().rules() {
                numbers.entry(Arc::as_ptr(held).addr()).or_insert_with(|| {
                    rules.push(Arc::clone(held));
                    rules.len() - 1
                });
            }
        }
        sink.count(rules.len())?;
        for rules in &rules {
            sink.put(&fingerprint(rules).to_le_bytes())?;
        }
        let mut saved = Saved::default();
        for shard in &self.shards {
            let mut keys = Vec::new();
            for Kept { tag, rules, packed } in shard.0.lock().kept(&self.arena) {
                match (packed, numbers.get(&Arc::as_ptr(rules).addr())) {
                    (Some(packed), Some(number)) => keys.push((tag, *number, packed)),
                    _ => saved.left_out += 1,
                }
            }
            sink.count(keys.len())?;
            for (tag, number, packed) in &keys {
                sink.put(&tag.to_le_bytes())?;
                sink.count(*number)?;
                sink.put(&packed.to_le_bytes())?;
            }
            saved.keys += keys.len() as u64;
        }
        sink.end()?;
        Ok(saved)
    }
}

/// What comes before the rules.
struct Head {
    seed: (u64, u64),
    shards: u32,
}

/// Writes, and adds up what it writes.
struct Sink {
    to: BufWriter<File>,
    crc: crc32fast::Hasher,
}

impl Sink {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.crc.update(bytes);
        self.to.write_all(bytes)
    }

    fn count(&mut self, count: usize) -> io::Result<()> {
        self.put(&u32::try_from(count).map_err(io::Error::other)?.to_le_bytes())
    }

    fn end(self) -> io::Result<()> {
        let Self { mut to, crc } = self;
        to.write_all(&crc.finalize().to_le_bytes())?;
        to.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
    }
}

/// Reads, and adds up what it reads.
struct Source {
    from: BufReader<File>,
    crc: crc32fast::Hasher,
}

impl Source {
    fn head(&mut self) -> Result<Head, SnapshotError> {
        let magic = self.take().map_err(|error| match error {
            SnapshotError::Torn(_) => SnapshotError::Foreign,
            other => other,
        })?;
        if magic != MAGIC {
            return Err(SnapshotError::Foreign);
        }
        match self.u32()? {
            1..=VERSION => {}
            0 => return Err(SnapshotError::Torn("version 0")),
            newer => return Err(SnapshotError::Newer(newer)),
        }
        let seed = (self.u64()?, self.u64()?);
        let shards = self.u32()?;
        if !(1..=SHARDS_MAX).contains(&shards) {
            return Err(SnapshotError::Torn("the number of shards"));
        }
        Ok(Head { seed, shards })
    }

    /// The file's rule sets in its order; `None` for one that is not among `ours`.
    fn rules<'a>(
        &mut self,
        ours: &'a [Arc<RuleSet>],
    ) -> Result<Vec<Option<&'a Arc<RuleSet>>>, SnapshotError> {
        let ours: HashMap<_, _> = ours.iter().map(|rules| (fingerprint(rules), rules)).collect();
        let count = self.u32()?;
        if count > RULE_SETS_MAX {
            return Err(SnapshotError::Torn("the number of rule sets"));
        }
        (0..count).map(|_| Ok(ours.get(&self.u128()?).copied())).collect()
    }

    fn end(self) -> Result<(), SnapshotError> {
        let Self { mut from, crc } = self;
        let mut stated = [0; 4];
        from.read_exact(&mut stated).map_err(torn)?;
        if u32::from_le_bytes(stated) != crc.finalize() {
            return Err(SnapshotError::Torn("its checksum differs"));
        }
        match from.read(&mut [0]).map_err(SnapshotError::Io)? {
            0 => Ok(()),
            _ => Err(SnapshotError::Torn("it goes on behind its end")),
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
        ErrorKind::UnexpectedEof => SnapshotError::Torn("it ends too early"),
        _ => SnapshotError::Io(error),
    }
}

/// Where the next file is written before it takes the place of the last.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

/// An empty file that only its owner may read. What an earlier attempt left there is not reused: it
/// might have been given to others.
fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// A hash of all that the rules say: their names, algorithms, parameters and units.
fn fingerprint(rules: &RuleSet) -> u128 {
    let said = format!("{:?}", rules.rules());
    SipHasher13::new().hash(said.as_bytes()).as_u128()
}
