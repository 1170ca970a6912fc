//! The input: a file or standard input, plain or gzip, one bounded line at a time.
//!
//! Gzip and others are recognised by their first bytes, never by a name, so they also come through a pipe. Lines
//! are lent from one buffer: memory does not depend on the length of the input.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Cursor, ErrorKind, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use flate2::bufread::MultiGzDecoder;

use super::progress::Progress;

/// Longest line, bytes: as long as the longest request body, and a policy document fits.
pub(crate) const LINE_BYTES_MAX: usize = 64 * 1024;

/// Lines between two updates of the progress: seldom enough not to slow the replay.
const LINES_PER_LOOK: u64 = 8_192;

/// Bytes that are read at a time: large enough that system calls do not slow the replay, and room for a few lines.
const BUFFER_BYTES: usize = 2 * LINE_BYTES_MAX;

/// The first bytes of gzip files (RFC 1952).
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The first bytes of files of other formats, and the programs that decompress them.
const OTHER_MAGIC: [(&[u8], &str); 3] =
    [(b"\x28\xb5\x2f\xfd", "zstd"), (b"\xfd7zXZ\0", "xz"), (b"BZh91AY", "bzip2")];

/// Bytes of the longest of these.
const MAGIC_BYTES_MAX: usize = 7;

/// A reader of the lines of an input, which counts the bytes that it has read.
pub(crate) struct LineReader {
    lines: Lines<Box<dyn Read>>,
    /// Bytes of the file, compressed if it is.
    bytes_read: Rc<Cell<u64>>,
    bytes: Option<u64>,
    lines_max: u64,
}

/// The limits of reading for an untrusted input.
pub struct ReadLimits {
    /// Most bytes, decompressed.
    pub bytes_max: u64,
    /// Most lines.
    pub lines_max: u64,
    /// A function called before each piece of some thousand bytes: `true` ends the reading.
    pub is_over: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl std::fmt::Debug for ReadLimits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { bytes_max, lines_max, is_over: _ } = self;
        write!(f, "ReadLimits {{ bytes_max: {bytes_max}, lines_max: {lines_max} }}")
    }
}

/// The next line of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InputLine<'a> {
    /// The bytes of the line, without the line end.
    Bytes(&'a [u8]),
    /// The line was longer than [`LINE_BYTES_MAX`] and was skipped.
    TooLong,
}

impl LineReader {
    /// Opens the file at `path`, or standard input for `-`.
    ///
    /// # Errors
    /// Those of opening and of reading the first bytes.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Self::new(Box::new(io::stdin().lock()), None);
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::new(ErrorKind::IsADirectory, "is a directory"));
        }
        Self::new(Box::new(file), metadata.is_file().then_some(metadata.len()))
    }

    /// Returns a reader of as much of `input` as `limits` permit; more is an error of reading.
    ///
    /// # Errors
    /// Those of reading the first bytes.
    pub(crate) fn limited(input: Box<dyn Read>, limits: &ReadLimits) -> io::Result<Self> {
        let ReadLimits { bytes_max, lines_max, is_over } = limits;
        let mut reader = Self::new(input, None)?;
        let (left, is_over) = (*bytes_max, Arc::clone(is_over));
        reader.lines.input = Box::new(Limited { input: reader.lines.input, left, is_over });
        Ok(Self { lines_max: *lines_max, ..reader })
    }

    fn new(input: Box<dyn Read>, bytes: Option<u64>) -> io::Result<Self> {
        let bytes_read = Rc::new(Cell::new(0));
        let mut input = Counted { input, bytes_read: Rc::clone(&bytes_read) };
        let mut head = Vec::with_capacity(MAGIC_BYTES_MAX);
        input.by_ref().take(MAGIC_BYTES_MAX as u64).read_to_end(&mut head)?;
        let is_gzip = head.starts_with(&GZIP_MAGIC);
        if let Some((_, program)) = OTHER_MAGIC.iter().find(|(magic, _)| head.starts_with(magic)) {
            let problem = format!(
                "compressed with {program}, which is not read; expected text or gzip (`{program} -dc` decompresses it)"
            );
            return Err(io::Error::new(ErrorKind::InvalidData, problem));
        }
        let input = Cursor::new(head).chain(input);
        let input: Box<dyn Read> = if is_gzip {
            Box::new(MultiGzDecoder::new(BufReader::with_capacity(BUFFER_BYTES, input)))
        } else {
            Box::new(input)
        };
        Ok(Self { lines: Lines::new(input), bytes_read, bytes, lines_max: u64::MAX })
    }

    /// Passes every line that is not blank to `take`, with its number, until the end or until `take` breaks.
    /// Updates `progress` now and then.
    ///
    /// # Errors
    /// Those of reading. A line that the error cut short is not passed on.
    pub(crate) fn each_line<T>(
        &mut self,
        taker: &mut T,
        progress: impl Fn(&T) -> &Progress,
        mut take: impl FnMut(&mut T, u64, InputLine<'_>) -> ControlFlow<()>,
    ) -> io::Result<()> {
        loop {
            let number = self.lines.number + 1;
            if number.is_multiple_of(LINES_PER_LOOK) {
                progress(taker).read(self.bytes_read.get());
            }
            let flow = match self.lines.next_line()? {
                None => return Ok(()),
                Some(_) if number > self.lines_max => return Err(beyond_limits()),
                Some(InputLine::Bytes(bytes)) if bytes.trim_ascii().is_empty() => continue,
                Some(line) => take(taker, number, line),
            };
            if flow.is_break() {
                return Ok(());
            }
        }
    }

    /// Returns the beginning of the input: [`LINE_BYTES_MAX`] or a little more, unless it ends before. Call
    /// it before the first line.
    pub(crate) fn peek(&mut self) -> &[u8] {
        while self.lines.end < LINE_BYTES_MAX {
            match self.lines.fill() {
                Ok(0) => break,
                Ok(_) => {}
                // Returned once the lines before it have been read.
                Err(error) => {
                    self.lines.failure = Some(error);
                    break;
                }
            }
        }
        &self.lines.buffer[..self.lines.end]
    }

    /// The number of the last line, from 1.
    pub(crate) fn line_number(&self) -> u64 {
        self.lines.number
    }

    /// The size of the file; `None` for a pipe.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.bytes
    }
}

/// A reader that counts bytes.
struct Counted<R> {
    input: R,
    bytes_read: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.bytes_read.set(self.bytes_read.get() + count as u64);
        Ok(count)
    }
}

/// A reader that ends at the limits.
struct Limited<R> {
    input: R,
    left: u64,
    is_over: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.is_over)() {
            return Err(beyond_limits());
        }
        let count = self.input.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(beyond_limits)?;
        Ok(count)
    }
}

/// Returns the error of an input that is longer than its limits.
pub(crate) fn beyond_limits() -> io::Error {
    io::Error::new(ErrorKind::QuotaExceeded, "the rest is beyond the limits")
}

/// A reader that cuts its input into lines, lent from one buffer.
struct Lines<R> {
    input: R,
    buffer: Box<[u8]>,
    /// The start of the bytes that have been read and not returned: `buffer[start..end]`.
    start: usize,
    end: usize,
    number: u64,
    /// The error of reading beyond `end`.
    failure: Option<io::Error>,
}

impl<R: Read> Lines<R> {
    fn new(input: R) -> Self {
        let buffer = vec![0; BUFFER_BYTES].into();
        Self { input, buffer, start: 0, end: 0, number: 0, failure: None }
    }

    fn next_line(&mut self) -> io::Result<Option<InputLine<'_>>> {
        let mut too_long = false;
        // Bytes after `start` that are known to hold no line end.
        let mut scanned = 0;
        loop {
            let unread = &self.buffer[self.start + scanned..self.end];
            if let Some(place) = memchr::memchr(b'\n', unread) {
                let end = self.start + scanned + place;
                return Ok(Some(self.take(end, end + 1, too_long)));
            }
            scanned = self.end - self.start;
            if scanned > LINE_BYTES_MAX {
                (too_long, scanned, self.start) = (true, 0, self.end);
            }
            if self.fill()? == 0 {
                let is_line = scanned > 0 || too_long;
                return Ok(is_line.then(|| self.take(self.end, self.end, too_long)));
            }
        }
    }

    /// Returns the line that ends before `end`; the next one begins at `next`.
    fn take(&mut self, end: usize, next: usize, too_long: bool) -> InputLine<'_> {
        let line = &self.buffer[self.start..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.start = next;
        self.number += 1;
        if too_long || line.len() > LINE_BYTES_MAX {
            InputLine::TooLong
        } else {
            InputLine::Bytes(line)
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        loop {
            match self.input.read(&mut self.buffer[self.end..]) {
                Ok(count) => {
                    self.end += count;
                    return Ok(count);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn source(bytes: Vec<u8>) -> LineReader {
        LineReader::new(Box::new(Cursor::new(bytes)), None).unwrap()
    }

    fn read(bytes: Vec<u8>) -> (Vec<String>, Option<ErrorKind>) {
        let (mut source, mut lines) = (source(bytes), Vec::new());
        loop {
            match source.lines.next_line() {
                Ok(Some(InputLine::Bytes(line))) => {
                    lines.push(String::from_utf8_lossy(line).into());
                }
                Ok(Some(InputLine::TooLong)) => lines.push("too long".to_owned()),
                Ok(None) => return (lines, None),
                Err(error) => return (lines, Some(error.kind())),
            }
        }
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn the_last_line_needs_no_line_end_and_windows_ends_are_cut() {
        let (lines, error) = read(b"a\r\n\nb".to_vec());
        assert_eq!((lines, error), (vec!["a".into(), String::new(), "b".into()], None));
        assert_eq!(read(Vec::new()), (Vec::new(), None));
        assert_eq!(read(b"\x1f".to_vec()), (vec!["\x1f".to_owned()], None));
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_the_next_one_read() {
        let long = "x".repeat(LINE_BYTES_MAX);
        for (length, expected) in [(0, long.as_str()), (1, "too long"), (500_000, "too long")] {
            let text = format!("a\n{long}{}\nb\n", "x".repeat(length));
            assert_eq!(
                read(text.into_bytes()),
                (vec!["a".into(), expected.into(), "b".into()], None)
            );
        }
        let text = format!("a\n{long}{long}{long}{long}{long}{long}");
        assert_eq!(read(text.into_bytes()), (vec!["a".into(), "too long".into()], None));
    }

    #[test]
    fn the_beginning_can_be_looked_at_before_the_lines_are_read() {
        let text = "a\n".repeat(LINE_BYTES_MAX);
        let mut source = source(text.clone().into_bytes());
        assert!(
            source.peek().len() >= LINE_BYTES_MAX && text.as_bytes().starts_with(source.peek())
        );
        assert_eq!(source.lines.next_line().unwrap(), Some(InputLine::Bytes(b"a")));
        assert_eq!(super::tests::source(b"a".to_vec()).peek(), b"a");
    }

    #[test]
    fn lines_stay_whole_across_refills() {
        let text: String = (0..100_000).map(|line| format!("line {line}\n")).collect();
        let (lines, error) = read(text.into_bytes());
        assert_eq!((lines.len(), error), (100_000, None));
        assert!(lines.iter().enumerate().all(|(place, line)| *line == format!("line {place}")));
    }

    #[test]
    fn gzip_is_known_by_its_first_bytes_also_in_several_members() {
        let bytes = [gzip(b"a\nb"), gzip(b"c\nd\n")].concat();
        assert_eq!(read(bytes), (vec!["a".into(), "bc".into(), "d".into()], None));
    }

    #[test]
    fn other_compressed_inputs_are_named_with_the_program_that_reads_them() {
        for (magic, program) in OTHER_MAGIC {
            let input = Cursor::new([magic, b"more"].concat());
            let error = LineReader::new(Box::new(input), None).err().expect("it is compressed");
            assert!(error.to_string().contains(&format!("(`{program} -dc` ")), "{error}");
            assert!(magic.len() <= MAGIC_BYTES_MAX);
        }
    }

    #[test]
    fn what_is_beyond_the_limits_is_not_read() {
        let lines = |bytes: &[u8], bytes_max, lines_max, is_over: bool| {
            let is_over = Arc::new(move || is_over);
            let limits = ReadLimits { bytes_max, lines_max, is_over };
            let input = Box::new(Cursor::new(bytes.to_vec()));
            let mut source = LineReader::limited(input, &limits).unwrap();
            let mut taker = (0, Progress::silent());
            let read = source.each_line(
                &mut taker,
                |(_, progress)| progress,
                |(count, _), _, _| {
                    *count += 1;
                    ControlFlow::Continue(())
                },
            );
            (taker.0, read.is_ok())
        };
        let text = "a\n".repeat(1_000);
        assert_eq!(lines(text.as_bytes(), 2_000, 1_000, false), (1_000, true));
        assert_eq!(lines(text.as_bytes(), 2_000, 999, false), (999, false));
        assert!(!lines(text.as_bytes(), 1_999, 1_000, false).1);
        assert_eq!(lines(text.as_bytes(), 2_000, 1_000, true), (0, false));
        assert_eq!(lines(&gzip(&vec![0; 10_000_000]), 9_999_999, 1_000, false), (0, false));
    }

    #[test]
    fn a_truncated_gzip_is_an_error_after_the_lines_before() {
        let text: String = (0..100_000).map(|line| format!("line {line}\n")).collect();
        let whole = gzip(text.as_bytes());
        let (lines, error) = read(whole[..whole.len() / 2].to_vec());
        assert_eq!(error, Some(ErrorKind::UnexpectedEof));
        assert!(lines.len() > 10_000 && lines.len() < 90_000, "{}", lines.len());
        assert!(lines.iter().enumerate().all(|(place, line)| *line == format!("line {place}")));
        let (_, error) = read(whole[..5].to_vec());
        assert_eq!(error, Some(ErrorKind::UnexpectedEof));
        let (lines, error) = read(whole[..whole.len() - 4].to_vec());
        assert_eq!((lines.len(), error), (100_000, Some(ErrorKind::UnexpectedEof)));
    }
}
