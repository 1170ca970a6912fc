//! Statistics of this process, which Linux provides under `/proc`.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};

/// The resources that a process uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ProcessStats {
    pub(super) cpu_seconds: f64,
    pub(super) threads: u64,
    /// Seconds since the Unix epoch.
    pub(super) start_seconds: f64,
    pub(super) virtual_bytes: u64,
    pub(super) resident_bytes: u64,
    pub(super) open_files: u64,
    pub(super) open_files_max: u64,
}

impl ProcessStats {
    /// Reads the statistics of this process; `None` on a system without them.
    pub(super) fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let booted = fs::read_to_string("/proc/stat").ok()?;
        let booted = booted.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
        let limits = fs::read_to_string("/proc/self/limits").ok()?;
        let open_files = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
        let process = Self::parse(&stat, booted)?;
        let open_files_max = open_files_max(&limits).unwrap_or_default();
        // The directory itself is one of the open files.
        Some(Self { open_files: open_files.saturating_sub(1), open_files_max, ..process })
    }

    /// Parses `/proc/self/stat`; the system was `booted` so many seconds after the Unix epoch.
    #[expect(clippy::cast_precision_loss, reason = "seconds are told with 53 bits")]
    fn parse(stat: &str, booted: u64) -> Option<Self> {
        // The name of the program is in brackets and may have any character; the third field follows.
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<_> = fields.split(' ').collect();
        let field = |number: usize| fields.get(number - 3)?.trim().parse::<u64>().ok();
        let seconds = |ticks: u64| ticks as f64 / clock_ticks_per_second() as f64;
        Some(Self {
            cpu_seconds: seconds(field(14)? + field(15)?),
            threads: field(20)?,
            start_seconds: booted as f64 + seconds(field(22)?),
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * page_size() as u64,
            ..Self::default()
        })
    }
}

fn open_files_max(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_may_be_called_anything() {
        let mut fields = vec!["S"; 1];
        fields.extend(["0"; 10]);
        fields.extend(["250", "50", "0", "0", "20", "0", "7", "0", "300", "4096", "2"]);
        let stat = format!("1 (a) b 9) {}", fields.join(" "));
        let process = ProcessStats::parse(&stat, 1_000).unwrap();
        let ticks = clock_ticks_per_second();
        assert_eq!((process.threads, process.virtual_bytes, ticks), (7, 4096, 100));
        assert_eq!((process.cpu_seconds, process.start_seconds), (3.0, 1_003.0));
        assert_eq!(process.resident_bytes, 2 * page_size() as u64);
    }

    #[test]
    fn this_process_is_there() {
        let process = ProcessStats::read().unwrap();
        assert!(process.resident_bytes > 100_000 && process.threads >= 1, "{process:?}");
        assert!(process.open_files >= 1 && process.open_files <= process.open_files_max);
    }
}
