//! The log of a server: lines on standard error, as text or as JSON.
//!
//! A line is about the server and never about one request, so no key is in any. Text of others (paths,
//! errors in a document) has its control characters escaped, so that it cannot begin a line of its own.
//! The configured level is that of this crate and the catalog's. All others log warnings and errors at most: below that, libraries repeat
//! what clients send. `h2` logs nothing, since its warnings do so too.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::sync::OnceLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluicegate_text::terminal;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter, layer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Time (UTC), level and message: `2026-11-25T08:15:30.123456Z  WARN store: …`. In systemd's
    /// journal, which keeps the time itself, level and message.
    #[default]
    Text,
    /// An object with `timestamp`, `level`, `target` and `message`.
    Json,
}

/// The least level that is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    /// Log nothing.
    Off,
    /// Fatal errors and losses.
    Error,
    /// Problems that need attention.
    Warn,
    /// Changes.
    #[default]
    Info,
    /// Details for troubleshooting.
    Debug,
}

/// The crate of the catalog, which logs when its database takes changes again.
const CATALOG: &str = "sluicegate_control";

/// A library that logs a warning for each thing that clients do wrong: an attacker could fill the log.
const ABOUT_CLIENTS: &str = "h2";

/// Set once this process logs errors as JSON.
static IS_JSON: OnceLock<()> = OnceLock::new();

/// Starts the log of this process.
pub(crate) fn start(format: LogFormat, level: LogLevel) {
    if format == LogFormat::Json && level != LogLevel::Off {
        IS_JSON.set(()).ok();
    }
    let time = if is_journal(io::stderr()) { Time::Omit } else { Time::Write };
    // A process that has a log keeps it.
    tracing_subscriber::registry().with(lines(format, level, time, io::stderr)).try_init().ok();
}

/// Logs why the process ends, in the format of its log. Without a log it is printed.
pub fn end(error: &anyhow::Error) {
    if IS_JSON.get().is_some() {
        tracing::error!("{error:#}");
    } else {
        terminal::print_error_line(format_args!("error: {error:#}"));
    }
}

/// The time at the beginning of a text line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Time {
    Write,
    Omit,
}

/// Returns whether `stream` goes to systemd's journal, whose device and inode systemd sets in `JOURNAL_STREAM`
/// (systemd.exec(5)). A program may have redirected the stream since, so both are compared.
fn is_journal(stream: impl AsFd) -> bool {
    let Ok(journal) = std::env::var("JOURNAL_STREAM") else { return false };
    rustix::fs::fstat(stream)
        .is_ok_and(|file| journal == format!("{}:{}", file.st_dev, file.st_ino))
}

fn lines<S, W>(format: LogFormat, level: LogLevel, time: Time, writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let level = LevelFilter::from(level);
    let others = level.min(LevelFilter::WARN);
    let targets = Targets::new()
        .with_target(env!("CARGO_CRATE_NAME"), level)
        .with_target(CATALOG, level)
        .with_target(ABOUT_CLIENTS, LevelFilter::OFF)
        .with_default(others);
    let lines = layer().with_writer(writer).log_internal_errors(false);
    match format {
        LogFormat::Text => lines.event_format(LoggedText(time)).boxed(),
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
        }
    }
    .with_filter(targets)
}

/// An event on one line: time, level, message, fields.
struct LoggedText(Time);

/// The fields of an event as text: the message, and then `name=value`.
struct LoggedFields(String);

impl<S, N> FormatEvent<S, N> for LoggedText
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if self.0 == Time::Write {
            SystemTime.format_time(&mut writer)?;
            writer.write_char(' ')?;
        }
        let mut fields = LoggedFields(String::new());
        event.record(&mut fields);
        let level = event.metadata().level();
        writeln!(writer, "{level:>5} {}", terminal::escaped(&fields.0))
    }
}

impl Visit for LoggedFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let Self(text) = self;
        if !text.is_empty() {
            text.push(' ');
        }
        if field.name() != "message" {
            *text += &format!("{}=", field.name());
        }
        *text += &format!("{value:?}");
    }
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => Self::OFF,
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use serde_json::Value;

    use super::*;

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panicked").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The text that `say` logs in this format and at this level.
    fn logged(format: LogFormat, level: LogLevel, say: impl FnOnce()) -> String {
        let page = Page::default();
        let writer = page.clone();
        let lines = lines(format, level, Time::Omit, move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), say);
        let bytes = page.0.lock().expect("nobody panicked").clone();
        String::from_utf8(bytes).expect("it says text")
    }

    const INJECTED: &str = "x\n{\"level\":\"ERROR\"}\r\u{1b}[2J\u{202e}";

    #[test]
    fn text_is_level_and_message_and_nobody_writes_lines_of_their_own() {
        let text = logged(LogFormat::Text, LogLevel::Info, || {
            tracing::info!("policies: version 2 is loaded");
            tracing::warn!("policies: {INJECTED}");
        });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], " INFO policies: version 2 is loaded");
        assert_eq!(lines[1], r#" WARN policies: x\n{"level":"ERROR"}\r\u{1b}[2J\u{202e}"#);
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn json_is_one_object_a_line_whatever_is_said() {
        let text =
            logged(LogFormat::Json, LogLevel::Info, || tracing::warn!("policies: {INJECTED}"));
        let line: Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        assert!(!text.contains('\u{1b}'), "{text}");
        assert_eq!((&line["level"], &line["target"]), (&"WARN".into(), &module_path!().into()));
        assert_eq!(line["message"], format!("policies: {INJECTED}"));
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
    }

    #[test]
    fn only_warnings_of_others_are_told_however_much_is_wanted() {
        let text = logged(LogFormat::Text, LogLevel::Debug, || {
            tracing::debug!("ours");
            tracing::info!(target: "sluicegate_control::db", "the catalog's");
            tracing::info!(target: "tonic", "header=secret");
            tracing::warn!(target: "tonic", "careful");
            tracing::warn!(target: "h2", "a client does what it should not");
        });
        assert_eq!(text, "DEBUG ours\n INFO the catalog's\n WARN careful\n");
        assert_eq!(logged(LogFormat::Text, LogLevel::Off, || tracing::error!("ours")), "");
        assert_eq!(logged(LogFormat::Text, LogLevel::Warn, || tracing::info!("ours")), "");
    }
}
