//! A picture of a replay: requests over time, stacked by what became of them, as SVG.

use std::ops::Range;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use sluicegate::Micros;
use sluicegate_text::human::{Era, date, span, thousands};
use sluicegate_text::terminal::one_line;

use super::summary::timeline::WIDTHS_US;
use super::summary::{CountedBucket, TimeBuckets};

/// Size in pixels; an SVG can be scaled to any other.
const SIZE: (u32, u32) = (1_200, 600);

/// Height of the title and the legend.
const HEADER_HEIGHT: u32 = 86;

/// Most buckets that are drawn: more, and what one sees is noise.
const DRAWN_MAX: usize = 400;

/// Most ticks of the time axis: their labels must not touch.
const TICKS_MAX: u64 = 9;

const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(0x22, 0x26, 0x2b);
const PALE_INK: RGBColor = RGBColor(0x5b, 0x63, 0x6b);
const GRID: RGBColor = RGBColor(0xe3, 0xe6, 0xe9);

/// What is stacked, from the bottom. The colours differ in lightness too, for those who cannot tell
/// them apart otherwise.
const BANDS: [Band; 3] = [
    Band { name: "allowed at once", color: RGBColor(0x44, 0x77, 0xaa), count: |at| at.passed },
    Band { name: "allowed after a wait", color: RGBColor(0xdd, 0xaa, 0x33), count: |at| at.waited },
    Band { name: "refused", color: RGBColor(0xbb, 0x22, 0x33), count: |at| at.refused },
];

struct Band {
    name: &'static str,
    color: RGBColor,
    count: fn(&CountedBucket) -> u64,
}

/// The picture of `timeline`, titled by the name of the input.
pub(crate) fn svg(input: &str, era: Era, timeline: &TimeBuckets) -> String {
    let mut svg = String::new();
    draw(&mut svg, input, era, timeline).expect("drawing into a string does no IO");
    svg
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawResult = Result<(), Box<dyn std::error::Error>>;

fn draw(svg: &mut String, input: &str, era: Era, timeline: &TimeBuckets) -> DrawResult {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (header, body) = area.split_vertically(HEADER_HEIGHT);
    let (width_us, buckets) = drawn(timeline);
    draw_header(&header, input, timeline)?;
    if buckets.is_empty() {
        let style = TextStyle::from((FONT, 22).into_font()).color(&PALE_INK);
        let style = style.pos(Pos::new(HPos::Center, VPos::Center));
        let (width, height) = body.dim_in_pixel();
        let middle = (i32::try_from(width / 2)?, i32::try_from(height / 2)?);
        body.draw(&Text::new("no requests in the input", middle, style))?;
    } else {
        draw_chart(&body, era, width_us, &buckets)?;
    }
    area.present()?;
    Ok(())
}

/// The buckets as they are drawn: joined until there are few enough.
fn drawn(timeline: &TimeBuckets) -> (u64, Vec<CountedBucket>) {
    let span_us = timeline.bucket_us.saturating_mul(timeline.buckets.len() as u64);
    let mut widths = WIDTHS_US.iter().copied().filter(|width| *width >= timeline.bucket_us);
    let width = widths.find(|width| span_us / width < DRAWN_MAX as u64);
    let width = width.unwrap_or(timeline.bucket_us);
    let mut joined: Vec<CountedBucket> = Vec::new();
    for bucket in &timeline.buckets {
        let at_us = bucket.at_us - bucket.at_us % width;
        match joined.last_mut().filter(|last| last.at_us == at_us) {
            None => joined.push(CountedBucket { at_us, ..*bucket }),
            Some(last) => {
                last.passed += bucket.passed;
                last.waited += bucket.waited;
                last.refused += bucket.refused;
            }
        }
    }
    (width, joined)
}

/// The title, and a legend that also tells the totals.
fn draw_header(header: &Area<'_>, input: &str, timeline: &TimeBuckets) -> DrawResult {
    let title = TextStyle::from((FONT, 24).into_font()).color(&INK);
    header.draw(&Text::new(format!("Replay of {}", one_line(input)), (24, 16), title))?;
    let text = TextStyle::from((FONT, 16).into_font()).color(&INK);
    let mut x = 24;
    for Band { name, color, count } in &BANDS {
        let total: u64 = timeline.buckets.iter().map(count).sum();
        let label = format!("{name}: {}", thousands(total));
        header.draw(&Rectangle::new([(x, 56), (x + 14, 70)], color.filled()))?;
        header.draw(&Text::new(label.clone(), (x + 22, 55), text.clone()))?;
        // An upper bound of the width of a letter of this size, so that entries never touch.
        x += 22 + i32::try_from(label.chars().count())? * 9 + 30;
    }
    Ok(())
}

fn draw_chart(body: &Area<'_>, era: Era, width_us: u64, buckets: &[CountedBucket]) -> DrawResult {
    let first_us = buckets.first().map_or(0, |bucket| bucket.at_us);
    let end_us = buckets.last().map_or(0, |bucket| bucket.at_us) + width_us;
    let total = |bucket: &CountedBucket| BANDS.iter().map(|band| (band.count)(bucket)).sum::<u64>();
    let most = buckets.iter().map(total).max().unwrap_or(0);
    let times = TimeAxis::new(era, first_us, end_us);
    let name = times.name();
    let mut chart = ChartBuilder::on(body)
        .margin_left(16)
        .margin_right(40)
        .margin_bottom(14)
        .x_label_area_size(58)
        .y_label_area_size(84)
        .build_cartesian_2d(times, 0..most + most.div_ceil(20))?;
    let labels = TextStyle::from((FONT, 15).into_font()).color(&INK);
    let per = format!("requests per {}", span(Micros::new(width_us)));
    chart
        .configure_mesh()
        .disable_x_mesh()
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .axis_style(PALE_INK)
        .label_style(labels.clone())
        .axis_desc_style(labels)
        .x_desc(name)
        .y_desc(per)
        .y_label_formatter(&|count| thousands(*count))
        .draw()?;
    let mut floor = vec![0; buckets.len()];
    for Band { name: _, color, count } in &BANDS {
        let counts = buckets.iter().map(count);
        let ceiling: Vec<u64> =
            floor.iter().zip(counts).map(|(floor, count)| floor + count).collect();
        if ceiling != floor {
            let outline = outline(buckets, width_us, &floor, &ceiling);
            chart.draw_series([Polygon::new(outline, color.filled())])?;
        }
        floor = ceiling;
    }
    Ok(())
}

/// The steps of a band: along its ceiling, and back along its floor.
fn outline(
    buckets: &[CountedBucket],
    width_us: u64,
    floor: &[u64],
    ceiling: &[u64],
) -> Vec<(u64, u64)> {
    let steps = |heights: &[u64]| -> Vec<(u64, u64)> {
        let both = buckets.iter().zip(heights);
        both.flat_map(|(bucket, height)| {
            [(bucket.at_us, *height), (bucket.at_us + width_us, *height)]
        })
        .collect()
    };
    let (there, back) = (steps(ceiling), steps(floor));
    there.into_iter().chain(back.into_iter().rev()).collect()
}

/// Time from left to right, with ticks where people expect them.
#[derive(Clone)]
struct TimeAxis {
    era: Era,
    range_us: Range<u64>,
    step_us: u64,
}

impl TimeAxis {
    fn new(era: Era, first_us: u64, end_us: u64) -> Self {
        let span_us = end_us - first_us;
        let step = STEPS_US.into_iter().find(|step| span_us / step < TICKS_MAX);
        let longest = STEPS_US[STEPS_US.len() - 1];
        let step_us = step.unwrap_or_else(|| longest * (span_us / longest / TICKS_MAX + 1));
        Self { era, range_us: first_us..end_us, step_us }
    }

    fn name(&self) -> String {
        match self.era {
            Era::Unix if self.step_us < DAY => {
                let day = date(Micros::new(self.range_us.start), "%Y-%m-%d");
                format!("time (UTC, from {day})")
            }
            Era::Unix => "day (UTC)".to_owned(),
            Era::Zero => format!("virtual time ({})", self.unit().1),
        }
    }

    /// The unit of virtual time in which every tick is whole.
    fn unit(&self) -> (u64, &'static str) {
        const UNITS: [(u64, &str); 6] =
            [(DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s"), (1_000, "ms"), (1, "µs")];
        let whole = |(unit, _): &(u64, &str)| self.step_us.is_multiple_of(*unit);
        UNITS.into_iter().find(whole).unwrap_or((1, "µs"))
    }
}

impl Ranged for TimeAxis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = u64;

    #[expect(clippy::cast_possible_truncation, reason = "a pixel within the limits")]
    fn map(&self, value: &u64, (left, right): (i32, i32)) -> i32 {
        let part = (value.saturating_sub(self.range_us.start)) as f64
            / (self.range_us.end - self.range_us.start) as f64;
        left + (f64::from(right - left) * part).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<u64> {
        let first = self.range_us.start.next_multiple_of(self.step_us);
        let ticks = (0..=TICKS_MAX).map(|tick| first + tick * self.step_us);
        ticks.take_while(|tick| *tick <= self.range_us.end).collect()
    }

    fn range(&self) -> Range<u64> {
        self.range_us.clone()
    }
}

impl ValueFormatter<u64> for TimeAxis {
    fn format_ext(&self, at_us: &u64) -> String {
        let (at, step) = (Micros::new(*at_us), self.step_us);
        match self.era {
            Era::Zero => thousands(at_us / self.unit().0),
            Era::Unix if step >= DAY => date(at, "%Y-%m-%d"),
            Era::Unix if step >= MINUTE => date(at, "%d %b %H:%M"),
            Era::Unix if step >= SECOND => date(at, "%H:%M:%S"),
            Era::Unix if step >= 1_000 => date(at, "%H:%M:%S.%3f"),
            Era::Unix => date(at, "%H:%M:%S.%6f"),
        }
    }
}

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Distances of ticks that people use, µs.
const STEPS_US: [u64; 46] = [
    1,
    2,
    5,
    10,
    20,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    SECOND,
    2 * SECOND,
    5 * SECOND,
    10 * SECOND,
    15 * SECOND,
    30 * SECOND,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    5 * DAY,
    10 * DAY,
    20 * DAY,
    50 * DAY,
    100 * DAY,
    365 * DAY,
    1_000 * DAY,
    3_650 * DAY,
    10_000 * DAY,
];

#[cfg(test)]
mod tests {
    use sluicegate_kernel::limits::SPAN_MAX_US;

    use super::*;

    fn buckets(bucket_us: u64, first_us: u64, counts: &[(u64, u64, u64)]) -> TimeBuckets {
        let bucket = |(place, (passed, waited, refused)): (usize, &(u64, u64, u64))| {
            let at_us = first_us + place as u64 * bucket_us;
            CountedBucket { at_us, passed: *passed, waited: *waited, refused: *refused }
        };
        TimeBuckets { bucket_us, buckets: counts.iter().enumerate().map(bucket).collect() }
    }

    /// The texts of a picture.
    fn texts(svg: &str) -> Vec<&str> {
        let parts = svg.split("<text").skip(1).filter_map(|part| part.split_once('>'));
        parts.filter_map(|(_, text)| Some(text.split_once("</text")?.0.trim())).collect()
    }

    #[test]
    fn without_requests_the_picture_says_so() {
        let svg = svg("a", Era::Zero, &buckets(1, 0, &[]));
        assert!(texts(&svg).contains(&"no requests in the input"), "{svg}");
    }

    #[test]
    fn one_request_makes_a_whole_picture() {
        let svg = svg("a.jsonl", Era::Zero, &buckets(1, 0, &[(1, 0, 0)]));
        let texts = texts(&svg);
        for text in
            ["Replay of a.jsonl", "allowed at once: 1", "requests per 1 µs", "virtual time (µs)"]
        {
            assert!(texts.contains(&text), "{text} in {texts:?}");
        }
        assert_eq!(svg.matches("<polygon").count(), 1);
    }

    #[test]
    fn axes_have_units_and_bands_appear_where_there_is_something() {
        let hours = buckets(3_600_000_000, 1_431_856_800_000_000, &[(1_500, 2, 3), (0, 0, 1_000)]);
        let svg = svg("x", Era::Unix, &hours);
        let texts = texts(&svg);
        for text in [
            "refused: 1,003",
            "1,400",
            "requests per 1 h",
            "17 May 10:30",
            "time (UTC, from 2015-05-17)",
        ] {
            assert!(texts.contains(&text), "{text} in {texts:?}");
        }
        assert_eq!(svg.matches("<polygon").count(), 3);
    }

    #[test]
    fn any_span_of_time_has_a_few_ticks_and_few_buckets() {
        for (place, width) in WIDTHS_US.iter().enumerate() {
            for count in [1, 2, 399, 400, 401, 1_200] {
                let counts = vec![(1, 0, 1); count];
                let timeline = buckets(*width, place as u64 * width, &counts);
                if width * count as u64 > SPAN_MAX_US {
                    continue;
                }
                let (_, drawn) = drawn(&timeline);
                assert!(drawn.len() <= DRAWN_MAX + 1, "{}", drawn.len());
                let total: u64 = drawn.iter().map(|bucket| bucket.passed).sum();
                assert_eq!(total, count as u64);
                let end = timeline.buckets[count - 1].at_us + width;
                for era in [Era::Zero, Era::Unix] {
                    let axis = TimeAxis::new(era, timeline.buckets[0].at_us, end);
                    let ticks = (end / axis.step_us) - (timeline.buckets[0].at_us / axis.step_us);
                    assert!(ticks <= TICKS_MAX + 1, "{ticks} ticks in {count} of {width} µs");
                }
            }
        }
    }

    #[test]
    fn names_cannot_break_the_picture() {
        let svg = svg("<a>&\u{1b}\"", Era::Zero, &buckets(1, 0, &[(1, 0, 0)]));
        assert!(svg.contains("&lt;a&gt;&amp;") && !svg.contains('\u{1b}'), "{svg}");
    }
}
