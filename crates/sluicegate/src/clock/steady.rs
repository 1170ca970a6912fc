//! Wall time without jumps.
//!
//! A wall clock can be set: by a person, by NTP, by a host that moves a virtual machine. A budget that
//! fills up by such a clock is full after each step forward. So this clock reads the wall once and goes
//! on by the time since boot, which cannot be set; then it follows the wall slowly. It never goes back.
//!
//! | The wall is | What this clock does | Until they agree |
//! |---|---|---|
//! | ahead or behind by up to a second | 0.1 % faster or slower | 1000 times the difference: 17 min for a second |
//! | behind by more | an eighth slower | 8 times the difference, and 17 min |
//! | ahead by more, for 10 minutes on end | one step, by what the wall was ahead all the time | 10 min |
//!
//! **Example.** At 12:00 the wall is set to 13:00 and a minute later back to 12:01. This clock shows 12:01
//! and at most 60 ms more. Had the wall stayed at 13:00, this clock would have stepped at 12:10, and windows
//! of the calendar would be right from then on.
//!
//! **What always holds**: while no step is taken, in any true span Δ it goes on by at most 1.001·Δ and at
//! least 7/8·Δ. All steps together are no longer than the wall was ever ahead. So a budget lets at most
//! `burst + 1.001·rate·Δ` pass, however the wall swings, and what one step adds, once.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

use sluicegate_kernel::Micros;

use super::{Clock, WallClock};

/// Interval between looks at the wall, µs: a look costs as much as a reading, and a second of error is too
/// little to need more.
const LOOK_EVERY_US: u64 = 250_000;

/// Differences up to this are followed at [`SLEW`]: leap seconds, steps of NTP.
const SMALL_US: u64 = 1_000_000;

/// One part in so many faster or slower, where the difference is small: a wait of ten seconds is wrong
/// by 10 ms, and a limit by a thousandth.
const SLEW: u64 = 1_000;

/// One part in so many slower, where the wall is further behind: waits are an eighth longer, and an hour
/// is made up for in eight.
const SLEW_FAR: u64 = 8;

/// Time for which the wall must be further ahead without a break before this clock steps, µs: most mistakes
/// are put right within it.
const STEP_AFTER_US: u64 = 600_000_000;

/// Longest time (one day) by which an instant seen before may be ahead of the wall at start, so that this
/// clock goes on from there. An instant further ahead came from a clock that was wrong.
const AHEAD_MAX: Micros = Micros::from_secs(86_400);

/// Microseconds since the Unix epoch, that neither jump nor go back when the system's clock is set; the
/// clock of engines. See the table above for how it follows the wall.
///
/// On Linux it goes on while the machine sleeps. Elsewhere it may stand still then, which the wall makes
/// up for after ten minutes.
///
/// ```
/// use std::time::SystemTime;
/// use sluicegate::{Clock, Micros, SteadyClock};
///
/// let clock = SteadyClock::new();
/// let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
/// let (first, wall) = (clock.now(), Micros::from(wall));
/// assert!(clock.now() >= first && wall.get().abs_diff(first.get()) < 1_000_000);
/// ```
pub struct SteadyClock {
    course: SharedCourse,
    /// Locked by the thread that looks at the wall.
    follow: Mutex<Follow>,
}

/// The time of this clock and of the wall at one instant, which determine how it goes on until the next look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Course {
    /// This instant, µs since boot.
    boot: u64,
    /// Time of this clock at that instant, µs.
    time: u64,
    /// Lead of the wall over that time, µs; negative if it is behind.
    ahead: i64,
}

/// The rule by which a clock follows the wall: readings of both in, a course out.
#[derive(Clone, Copy, Debug)]
struct Follow {
    course: Course,
    /// Start of the time for which the wall has been far ahead, in µs since boot, and its least lead since then, µs.
    far: Option<(u64, u64)>,
}

/// A course that many threads read and one now and then replaces. Readers that meet a replacement try again.
#[derive(Debug)]
#[repr(align(128))]
struct SharedCourse {
    /// Odd while the course is replaced.
    version: AtomicU32,
    boot: AtomicU64,
    time: AtomicU64,
    ahead: AtomicI64,
}

impl SteadyClock {
    /// Returns a clock that begins at the wall's time.
    pub fn new() -> Self {
        Self::not_before(Micros::ZERO)
    }

    /// Returns a clock that begins at the wall's time, or at `seen` if that is later by at most a day. `seen` is
    /// the last instant of an earlier program, such as [`MemoryStore::latest`](crate::store::MemoryStore::latest),
    /// so that time does not go back from one run to the next.
    pub fn not_before(seen: Micros) -> Self {
        let follow = Follow::begin(WallClock.now(), boot_us(), seen);
        Self { course: SharedCourse::new(follow.course), follow: Mutex::new(follow) }
    }

    /// Looks at the wall, unless another thread does.
    #[cold]
    fn look(&self) {
        if let Ok(mut follow) = self.follow.try_lock() {
            let wall = WallClock.now().get();
            self.course.replace(|| follow.look(wall, boot_us()));
        }
    }
}

impl Clock for SteadyClock {
    #[inline]
    fn now(&self) -> Micros {
        let (course, boot) = self.course.read();
        if boot.saturating_sub(course.boot) >= LOOK_EVERY_US {
            self.look();
        }
        Micros::new(course.at(boot))
    }

    /// `true`: a reading by an old course was taken before the new one began, where both show the same time.
    fn is_monotonic(&self) -> bool {
        true
    }

    #[inline]
    fn steady(&self) -> Option<Micros> {
        Some(since_boot())
    }
}

/// Returns the time since boot, which cannot be set.
#[inline]
pub(super) fn since_boot() -> Micros {
    Micros::new(boot_us())
}

impl Course {
    /// Returns the time of the clock at `boot`, µs since boot.
    #[inline]
    const fn at(&self, boot: u64) -> u64 {
        let elapsed = boot.saturating_sub(self.boot);
        let time = self.time + elapsed;
        let most = self.ahead.unsigned_abs();
        match self.ahead {
            0 => time,
            1.. => time + least(elapsed / SLEW, most),
            _ if most <= SMALL_US => time - least(elapsed / SLEW, most),
            _ => time - least(elapsed / SLEW_FAR, most),
        }
    }
}

const fn least(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

impl Follow {
    fn begin(wall: Micros, boot: u64, seen: Micros) -> Self {
        let is_kept = seen.since(wall) <= AHEAD_MAX;
        let time = if is_kept { wall.max(seen) } else { wall }.get();
        Self { course: Course { boot, time, ahead: difference(wall.get(), time) }, far: None }
    }

    /// Returns the course from here on, when the wall shows `wall` and it is `boot` µs since boot.
    fn look(&mut self, wall: u64, boot: u64) -> Course {
        let mut time = self.course.at(boot);
        let ahead = wall.saturating_sub(time);
        self.far = match self.far {
            _ if ahead <= SMALL_US => None,
            None => Some((boot, ahead)),
            Some((since, by)) => Some((since, by.min(ahead))),
        };
        if let Some((since, by)) = self.far
            && boot.saturating_sub(since) >= STEP_AFTER_US
        {
            time += by;
            self.far = None;
        }
        self.course = Course { boot, time, ahead: difference(wall, time) };
        self.course
    }
}

/// Returns the lead of `wall` over `time`, µs.
fn difference(wall: u64, time: u64) -> i64 {
    let by = i64::try_from(wall.abs_diff(time)).unwrap_or(i64::MAX);
    if wall >= time { by } else { -by }
}

impl SharedCourse {
    const fn new(Course { boot, time, ahead }: Course) -> Self {
        Self {
            version: AtomicU32::new(0),
            boot: AtomicU64::new(boot),
            time: AtomicU64::new(time),
            ahead: AtomicI64::new(ahead),
        }
    }

    /// Returns the course, and µs since boot, read while it was in force.
    #[inline]
    fn read(&self) -> (Course, u64) {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let now = boot_us();
            let course = Course {
                boot: self.boot.load(Ordering::Relaxed),
                time: self.time.load(Ordering::Relaxed),
                ahead: self.ahead.load(Ordering::Relaxed),
            };
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return (course, now);
            }
            // It takes one reading of the clock, unless its thread is held up just then.
            std::thread::yield_now();
        }
    }

    /// Replaces the course by the result of `next`. One thread at a time.
    fn replace(&self, next: impl FnOnce() -> Course) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // All see this before `next` reads the clock: an instant that was read under the old course is
        // one before the new one.
        fence(Ordering::SeqCst);
        let Course { boot, time, ahead } = next();
        self.boot.store(boot, Ordering::Relaxed);
        self.time.store(time, Ordering::Relaxed);
        self.ahead.store(ahead, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }
}

/// Returns µs since boot, with the time that the machine slept.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[inline]
fn boot_us() -> u64 {
    let rustix::time::Timespec { tv_sec, tv_nsec } =
        rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    // Rounded down: the future has not come yet. Neither is negative.
    tv_sec.unsigned_abs() * 1_000_000 + tv_nsec.unsigned_abs() / 1_000
}

/// Returns µs since the first reading in this process, by a clock that cannot be set.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
#[inline]
fn boot_us() -> u64 {
    super::MonotonicClock.now().get()
}

impl Default for SteadyClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SteadyClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let follow = self.follow.lock().unwrap_or_else(PoisonError::into_inner);
        let Course { time, ahead, .. } = follow.course;
        f.debug_struct("SteadyClock")
            .field("time", &Micros::new(time))
            .field("wall_ahead_us", &ahead)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sluicegate_kernel::{Cost, Moment, Rate, RuleSet, States, TokenBucket, Verb};

    use super::*;

    const SECOND: u64 = 1_000_000;
    const MINUTE: u64 = 60 * SECOND;
    const HOUR: u64 = 60 * MINUTE;
    /// True time at which the tests begin, µs since the epoch, and since boot.
    const BEGIN: u64 = 1_700_000_000 * SECOND;
    const BOOT: u64 = 5_000 * SECOND;

    /// A clock of the tests, and its last reading.
    struct Reader {
        follow: Follow,
        last: u64,
    }

    impl Reader {
        fn new() -> Self {
            let follow = Follow::begin(Micros::new(BEGIN), BOOT, Micros::ZERO);
            Self { follow, last: BEGIN }
        }

        /// Reads the clock `after` µs of true time, when the wall is wrong by `error` µs.
        fn read(&mut self, after: u64, error: i64) -> u64 {
            let (boot, wall) = (BOOT + after, (BEGIN + after).saturating_add_signed(error));
            let now = self.follow.course.at(boot);
            if boot - self.follow.course.boot >= LOOK_EVERY_US {
                self.follow.look(wall, boot);
                assert_eq!(self.follow.course.at(boot) - now, self.step(now, boot), "no seam");
            }
            assert!(now >= self.last, "{now} after {}", self.last);
            self.last = now;
            now
        }

        fn step(&self, before: u64, boot: u64) -> u64 {
            self.follow.course.at(boot).checked_sub(before).expect("it never goes back")
        }

        /// Returns the lead over true time, `after` µs in, when the clock is read every 100 ms from `from` on.
        fn error_at(&mut self, from: u64, after: u64, error: impl Fn(u64) -> i64) -> i64 {
            let mut now = self.last;
            for at in (from..=after).step_by(100_000) {
                now = self.read(at, error(at));
            }
            difference(now, BEGIN + after)
        }
    }

    /// The largest span that a course may go on in `after` µs.
    const fn most(after: u64) -> u64 {
        after + after / SLEW + 1
    }

    #[test]
    fn a_wall_that_swings_moves_it_by_no_more_than_a_thousandth() {
        type Error = fn(u64) -> i64;
        let swings: [(u64, Error); 4] = [
            (2 * SECOND, |at| if at / 50_000 % 2 == 0 { 1_000_000 } else { -1_000_000 }),
            (
                5 * MINUTE,
                |at| if (at / (30 * SECOND)).is_multiple_of(2) { 3_600_000_000 } else { 0 },
            ),
            (5 * MINUTE, |at| {
                if (at / (30 * SECOND)).is_multiple_of(2) { 3_600_000_000 } else { -3_600_000_000 }
            }),
            (HOUR, |at| if (at / MINUTE).is_multiple_of(7) { -128_000 } else { 128_000 }),
        ];
        for (number, (span, error)) in swings.into_iter().enumerate() {
            let mut clock = Reader::new();
            for after in (0..=span).step_by(10_000) {
                let now = clock.read(after, error(after)) - BEGIN;
                assert!(now <= most(after), "{number}: {now} after {after}");
                assert!(now + after / SLEW_FAR >= after, "{number}: {now} after {after}");
            }
        }
    }

    #[test]
    fn a_wall_that_was_corrected_is_followed_within_the_time_that_the_table_says() {
        let hour = i64::try_from(HOUR).unwrap();
        // Ahead by an hour: ten minutes, and not before.
        let mut clock = Reader::new();
        assert!(clock.error_at(0, STEP_AFTER_US, |_| hour) < 1_000_000);
        let after = STEP_AFTER_US + SECOND;
        assert!(clock.error_at(STEP_AFTER_US, after, |_| hour) > hour - 1_000);
        // Behind by an hour: eight hours and 17 minutes.
        let mut clock = Reader::new();
        let done = 8 * HOUR + 17 * MINUTE;
        let error = clock.error_at(0, done, |_| -hour);
        assert!((-hour - 1_000..=-hour + 1_000).contains(&error), "{error}");
        // A leap second: 17 minutes.
        let mut clock = Reader::new();
        let error = clock.error_at(0, 17 * MINUTE, |_| -1_000_000);
        assert_eq!(error, -1_000_000);
        assert_eq!(clock.error_at(17 * MINUTE, 20 * MINUTE, |_| -1_000_000), -1_000_000);
    }

    #[test]
    fn it_steps_by_what_the_wall_was_ahead_all_the_time() {
        let mut clock = Reader::new();
        let low = |at| if at / MINUTE == 5 { 2_000_000 } else { 3_600_000_000 };
        let error = clock.error_at(0, STEP_AFTER_US + SECOND, low);
        assert!((2_000_000..3_000_000).contains(&error), "{error}");
        let mut clock = Reader::new();
        let back = |at| if at / MINUTE == 5 { 0 } else { 3_600_000_000 };
        assert!(clock.error_at(0, STEP_AFTER_US + SECOND, back) < 1_000_000);
    }

    #[test]
    fn a_new_clock_goes_on_where_the_last_one_was_seen() {
        let (wall, hour) = (Micros::new(BEGIN), Micros::new(HOUR));
        let begin = |seen| Follow::begin(wall, BOOT, seen).course.time;
        assert_eq!(begin(Micros::ZERO), BEGIN);
        assert_eq!(begin(wall.since(hour)), BEGIN);
        assert_eq!(begin(wall.plus(hour)), BEGIN + HOUR);
        assert_eq!(begin(wall.plus(AHEAD_MAX).plus(hour)), BEGIN, "that clock was wrong");
    }

    #[test]
    fn threads_never_see_it_go_back() {
        let clock = SteadyClock::new();
        let latest = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (clock, latest) = (&clock, &latest);
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let seen = latest.load(Ordering::SeqCst);
                        let now = clock.now().get();
                        assert!(now >= seen, "{now} after {seen}");
                        latest.fetch_max(now, Ordering::SeqCst);
                        if thread == 0 {
                            clock.look();
                        }
                    }
                });
            }
        });
    }

    /// Errors of the wall and how long each lasts: swings of all sizes, now and then for long.
    fn walls() -> impl Strategy<Value = Vec<(i64, u64)>> {
        let size =
            prop_oneof![Just(0), -2_000_000..2_000_000_i64, -7_200_000_000..7_200_000_000_i64];
        let span = prop_oneof![4 => 1_000..2 * SECOND, 1 => SECOND..20 * MINUTE];
        proptest::collection::vec((size, span), 1..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn however_the_wall_swings_no_budget_is_given_back(walls in walls()) {
            let (burst, rate) = (100, 10);
            let bucket = TokenBucket::new(Rate::per_second(rate).unwrap(), burst).unwrap();
            let rules = RuleSet::single("r", bucket);
            let (mut clock, mut states, mut passed) = (Reader::new(), States::default(), 0);
            let (mut after, mut highest) = (0, 0);
            for (error, span) in walls {
                let end = after + span;
                // A caller that asks many times in a span, and takes all permits that are left.
                while after < end {
                    after = (after + (span / 50).max(10_000)).min(end);
                    highest = highest.max(error.max(0).unsigned_abs());
                    let at = Moment::new(Micros::new(clock.read(after, error)));
                    let verb = Verb::AtMost { cost: Cost::new(burst).unwrap() };
                    passed += rules.decide(&mut states, &verb, &at).unwrap().decision.granted();
                }
                // Steps come once: together they are no longer than the wall was ever ahead.
                let stepped = if after >= STEP_AFTER_US { highest } else { 0 };
                let most = burst + rate * (most(after) + stepped).div_ceil(SECOND);
                prop_assert!(passed <= most, "{} of {} after {} us", passed, most, after);
            }
        }
    }

    #[cfg(feature = "engine")]
    #[test]
    fn an_engine_in_memory_keeps_its_limits_by_a_wall_that_swings() {
        use crate::policy::{Document, PolicySet};
        use crate::{Engine, Request};

        let rules = [
            "token_bucket: { rate: 10/s, burst: 100 }",
            "fixed_window: { limit: 100, window: 10s }",
            "sliding_window: { limit: 100, window: 10s }",
            "sliding_counter: { limit: 100, window: 10s }",
            "sliding_log: { limit: 100, window: 10s }",
        ];
        let swings: [(u64, u64, i64); 2] = [(40, 50_000, 1_000_000), (5, 400_000, 3_600_000_000)];
        for rule in rules {
            for (times, every, error) in swings {
                let text = format!("policies: [ {{ name: p, rules: [ {{ {rule} }} ] }} ]");
                let policies = PolicySet::new(Document::parse(&text).unwrap());
                let engine = std::sync::Arc::new(Engine::in_memory(policies));
                let (mut clock, mut passed) = (Reader::new(), 0);
                for after in (0..times * every).step_by(2_000) {
                    let error = if after / every % 2 == 0 { error } else { -error };
                    let now = Micros::new(clock.read(after, error));
                    let request = Request::new("p", Some(b"k"), Verb::Check { cost: Cost::ONE });
                    let admission = engine.turn_at(now).try_decide(&request).unwrap().unwrap();
                    passed += admission.answer.decision.granted();
                }
                // In two seconds 20 flow in, and BEGIN is the beginning of a window of ten.
                let most = if rule.starts_with("token") { 121 } else { 100 };
                assert!(passed <= most, "{passed}: {rule}, {times} swings");
            }
        }
    }
}
