//! A picture of a replay as SVG: requests over time, stacked by outcome, the limit, and
//! the keys that were refused the most.
//!
//! It is plain text without scripts, the same for the same replay. Its colours follow the reader's
//! light or dark mode, and its letters stay readable at half of its width.

mod axis;
mod bars;
mod caption;
#[cfg(test)]
mod tests;

use std::fmt::{Arguments, Write};

use sluicegate::Micros;
use sluicegate_text::human::{Era, percent, thousands};

use super::summary::{CountedBucket, Summary};
use axis::{RateAxis, TimeAxis, decimal, short};
use bars::{Bars, requests};
use caption::{Limit, total};

pub(crate) use caption::Picture;

/// Pixels across; an SVG can be scaled to any other width.
const WIDTH: f64 = 800.0;

/// The left edge of all text.
const LEFT: f64 = 20.0;

/// The plot of requests over time: left, right, height.
const PLOT: (f64, f64, f64) = (72.0, 756.0, 240.0);

/// Width of a digit or an ordinary letter of small text, at most.
const LETTER: f64 = 10.5;

/// Height of a line of text.
const LINE: f64 = 26.0;

/// Most refused keys that are drawn: the summary lists more.
const KEYS_MAX: usize = 5;

/// Most letters of a line of the title, of the result and of a key: more would leave their place.
const TITLE_CHARS_MAX: usize = 56;
const RESULT_CHARS_MAX: usize = 74;
const KEY_CHARS_MAX: usize = 36;

/// The left edge of the bars of keys: right of the longest key.
const KEY_BARS: f64 = 390.0;

/// The stacked counts, from the bottom. The colours differ in lightness too, for
/// readers who cannot distinguish them otherwise.
const BANDS: [Band; 3] = [
    ("allowed at once", "pass", |bucket| bucket.passed),
    ("allowed after a wait", "wait", |bucket| bucket.waited),
    ("refused", "deny", |bucket| bucket.refused),
];

/// A name, a class of the style, and the count.
type Band = (&'static str, &'static str, fn(&CountedBucket) -> u64);

/// Colours and letters.
const STYLE: &str = include_str!("style.css");

/// The text of an SVG while it is written.
struct Svg {
    text: String,
    /// The lower edge of the parts drawn so far.
    bottom: f64,
}

/// The plot: its axes, and its bottom.
struct Plot {
    era: Era,
    bars: Bars,
    times: TimeAxis,
    rates: RateAxis,
    bottom: f64,
}

/// Returns the picture of a replay.
pub(crate) fn svg(picture: &Picture<'_>) -> String {
    let mut svg = Svg { text: String::new(), bottom: 0.0 };
    svg.header(picture);
    let bars = Bars::of(&picture.summary.timeline);
    if bars.buckets.is_empty() {
        svg.line("small", "no requests in the input");
    } else {
        let mut limits = picture.limits();
        let rates = RateAxis::new(bars.most(), bars.width_us, &limits);
        limits.retain(|limit| !limit.is_of_all || rates.shows(limit));
        svg.legend(picture.summary);
        svg.limits(&limits, &rates);
        svg.plot(&Plot::new(picture.era, bars, rates, svg.bottom), &limits);
        svg.keys(picture.summary);
    }
    svg.framed(picture)
}

impl Svg {
    fn put(&mut self, part: Arguments<'_>) {
        self.text.write_fmt(part).expect("a string takes everything");
    }

    /// Adds a text whose baseline is at `y`.
    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.put(format_args!(
            "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{}</text>\n",
            escaped(text)
        ));
    }

    /// Adds the next line of text.
    fn line(&mut self, class: &str, text: &str) {
        self.bottom += LINE;
        self.text(LEFT, self.bottom, class, text);
    }

    fn header(&mut self, picture: &Picture<'_>) {
        self.bottom = 12.0;
        let title = picture.title();
        let (first, second) = halves(&title, TITLE_CHARS_MAX);
        self.line("title", &cut(first, TITLE_CHARS_MAX));
        if !second.is_empty() {
            self.line("title", &cut(second, TITLE_CHARS_MAX));
        }
        self.line("plain", &cut(&picture.result(), RESULT_CHARS_MAX));
    }

    /// Adds the legend of the colours, with the totals; those that are 0 are left out.
    fn legend(&mut self, summary: &Summary) {
        self.bottom += LINE + 2.0;
        let y = self.bottom;
        self.put(format_args!("<text x=\"{LEFT}\" y=\"{y}\">"));
        let mut gap = 0;
        for (name, class, count) in BANDS {
            let total = total(&summary.timeline, count);
            if total > 0 {
                self.put(format_args!(
                    "<tspan class=\"{class}\" dx=\"{gap}\">■</tspan> {name} {}",
                    thousands(total)
                ));
                gap = 26;
            }
        }
        self.put(format_args!("</text>\n"));
    }

    /// Adds a line of the legend for the limits, with samples of their lines.
    fn limits(&mut self, limits: &[Limit], rates: &RateAxis) {
        if limits.is_empty() {
            return;
        }
        self.bottom += LINE;
        let y = self.bottom;
        for limit in limits {
            let x = if limit.is_of_all { WIDTH / 2.0 } else { LEFT };
            let beyond = if rates.shows(limit) { "" } else { " (above this picture)" };
            self.limit(limit, x, y - 6.0, x + 26.0);
            self.text(x + 34.0, y, "plain", &format!("{}{beyond}", limit.name));
        }
    }

    fn limit(&mut self, limit: &Limit, left: f64, y: f64, right: f64) {
        let class = if limit.is_of_all { "limit all" } else { "limit" };
        self.put(format_args!("<path class=\"{class}\" d=\"M{left} {y:.1}H{right}\"/>\n"));
    }

    fn plot(&mut self, plot: &Plot, limits: &[Limit]) {
        let (left, right, _) = PLOT;
        let unit = format!("requests/{}", plot.rates.unit);
        self.text(LEFT, self.bottom + LINE, "small", &unit);
        for tick in plot.rates.ticks() {
            let y = plot.y(tick);
            let class = if tick == 0 { "axis" } else { "grid" };
            self.put(format_args!("<path class=\"{class}\" d=\"M{left} {y:.1}H{right}\"/>\n"));
            self.text(left - 8.0, (y + 5.5).round(), "small end", &short(tick));
        }
        for bar in &plot.bars.buckets {
            self.bar(plot, bar);
        }
        for limit in limits.iter().filter(|limit| plot.rates.shows(limit)) {
            let y = plot.y(plot.rates.limit_milli(limit));
            self.limit(limit, left, y, right);
        }
        self.times(plot);
    }

    fn bar(&mut self, plot: &Plot, bar: &CountedBucket) {
        if requests(bar) == 0 {
            return;
        }
        self.put(format_args!("<g><title>{}</title>", escaped(&plot.tooltip(bar))));
        let (x, end) = (plot.x(bar.at_us), plot.x(bar.at_us + plot.bars.width_us));
        // A gap separates bars, if they are wide enough for one.
        let width = if end - x > 5.0 { end - x - 1.0 } else { end - x };
        let mut below = 0;
        for (_, class, count) in BANDS {
            let above = below + count(bar);
            if above > below {
                let (top, floor) = (plot.height(above), plot.height(below));
                self.put(format_args!(
                    "<path class=\"{class}\" d=\"M{x:.1} {top:.1}h{width:.1}V{floor:.1}h-{width:.1}z\"/>"
                ));
            }
            below = above;
        }
        self.put(format_args!("</g>\n"));
    }

    fn times(&mut self, plot: &Plot) {
        let (left, right, _) = PLOT;
        let bottom = plot.bottom;
        for tick in plot.times.ticks() {
            let x = plot.x(tick.at_us).round();
            self.put(format_args!("<path class=\"axis\" d=\"M{x} {bottom}v6\"/>\n"));
            self.label(x, bottom + 24.0, &tick.label);
            if let Some(date) = tick.date {
                self.label(x, bottom + 46.0, &date);
            }
        }
        if let Some(name) = plot.times.name() {
            self.label((left + right) / 2.0, bottom + 46.0, &name);
        }
        self.bottom = bottom + 52.0;
    }

    /// Adds a text in the middle of `x`, or beside it where it would leave the picture.
    fn label(&mut self, x: f64, y: f64, text: &str) {
        let half = LETTER / 2.0 * text.chars().count() as f64;
        let x = x.min(WIDTH - half).max(LEFT + half).round();
        self.text(x, y, "small mid", text);
    }

    /// Adds the keys that were refused the most. A single key is not shown: the legend has its count.
    fn keys(&mut self, summary: &Summary) {
        let Summary { top_refused: keys, distinct_keys, top_refused_excess: excess, .. } = summary;
        let most = keys.first().map_or(0, |key| key.refused);
        if most == 0 || *distinct_keys <= 1 {
            return;
        }
        self.bottom += 8.0;
        let about = if *excess > 0 { " (approximate counts)" } else { "" };
        self.line("plain", &format!("Most refused keys{about}"));
        let one_policy = summary.policy.is_some();
        for key in keys.iter().take(KEYS_MAX) {
            let name = if one_policy { key.key_text() } else { key.name() };
            let (name, count) = (cut(&name, KEY_CHARS_MAX), thousands(key.refused));
            let share = percent(key.refused, summary.refused);
            self.line("small", &name);
            let y = self.bottom;
            let width = (220.0 * key.refused as f64 / most as f64).max(1.0);
            self.put(format_args!(
                "<path class=\"deny\" d=\"M{KEY_BARS} {:.1}h{width:.1}v16h-{width:.1}z\"/>\n",
                y - 13.0
            ));
            self.text((KEY_BARS + 10.0 + width).round(), y, "small", &format!("{count} ({share})"));
        }
    }

    /// Returns the whole document around the parts drawn.
    fn framed(self, picture: &Picture<'_>) -> String {
        let Self { text, bottom } = self;
        let height = bottom + 20.0;
        let title = escaped(&format!("{}. {}", picture.title(), picture.result()));
        let description = escaped(&picture.description());
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\">\n<title>{title}</title>\n<desc>{description}</desc>\n\
             <style>\n{STYLE}</style>\n<rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\"/>\n{text}</svg>\n"
        )
    }
}

impl Plot {
    /// Returns a plot below the parts drawn so far, with a line for the name of its axis.
    fn new(era: Era, bars: Bars, rates: RateAxis, above: f64) -> Self {
        let times = TimeAxis::new(era, bars.first_us(), bars.end_us());
        Self { era, bars, times, rates, bottom: above + LINE + 8.0 + PLOT.2 }
    }

    fn x(&self, at_us: u64) -> f64 {
        let (left, right, _) = PLOT;
        let (first_us, end_us) = (self.bars.first_us(), self.bars.end_us());
        left + (right - left) * (at_us - first_us) as f64 / (end_us - first_us) as f64
    }

    fn y(&self, milli: u64) -> f64 {
        self.bottom - PLOT.2 * milli as f64 / self.rates.top_milli as f64
    }

    /// Returns the upper edge of a stack of `count` requests.
    fn height(&self, count: u64) -> f64 {
        self.y(self.rates.milli(count, self.bars.width_us))
    }

    fn tooltip(&self, bar: &CountedBucket) -> String {
        let at = |us| self.era.instant(Micros::new(us));
        let rate = decimal(self.rates.milli(requests(bar), self.bars.width_us));
        let counts = BANDS.iter().map(|(name, _, count)| (name, count(bar)));
        let counts = counts.filter(|(_, count)| *count > 0);
        let counts: Vec<_> =
            counts.map(|(name, count)| format!("{} {name}", thousands(count))).collect();
        let (from, to) = (at(bar.at_us), at(bar.at_us + self.bars.width_us));
        format!("{from} to {to}: {} ({rate} requests/{})", counts.join(", "), self.rates.unit)
    }
}

/// Returns a `text` that is too long for a line, in two parts: the first ends at the last space that it can.
fn halves(text: &str, chars_max: usize) -> (&str, &str) {
    let Some((end, _)) = text.char_indices().nth(chars_max) else { return (text, "") };
    text[..end].rfind(' ').map_or((text, ""), |space| (&text[..space], &text[space + 1..]))
}

/// Returns the beginning of a `text` that is too long.
fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Returns `text` with the markup of XML escaped.
fn escaped(text: &str) -> String {
    // Control characters are escaped before; these two remain, which XML does not permit.
    let text = text.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
