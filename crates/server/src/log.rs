//! What a server says of itself while it runs: lines on standard error, as text or as JSON.
//!
//! A line is about the server and never about one request, so no key is in any; what of other people's
//! text there is (paths, what is wrong with a document) has its control characters escaped, so that
//! nobody writes lines of their own. What libraries say is only told from warnings on: below that they
//! repeat what clients send.

use std::fmt;
use std::io;
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
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter, layer};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    /// Message only; add timestamps with your log collector.
    #[default]
    Text,
    /// An object with `timestamp`, `level`, `target` and `message`.
    Json,
}

/// How much is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    /// Nothing.
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

/// A library that warns of what clients send, once for each: whoever wishes ill would fill the log.
const ABOUT_CLIENTS: &str = "h2";

/// What is said as JSON.
static IS_JSON: OnceLock<()> = OnceLock::new();

/// From now on this process says what happens to it.
pub(crate) fn start(format: LogFormat, level: LogLevel) {
    if format == LogFormat::Json {
        IS_JSON.set(()).ok();
    }
    // A process that says things already goes on to.
    tracing_subscriber::registry().with(lines(format, level, io::stderr)).try_init().ok();
}

/// Says why the process ends, in the form in which it says things.
pub fn end(error: &anyhow::Error) {
    if IS_JSON.get().is_some() {
        tracing::error!("{error:#}");
    } else {
        terminal::print_error_line(format_args!("error: {error:#}"));
    }
}

fn lines<S, W>(format: LogFormat, level: LogLevel, writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'s> LookupSpan<'s>,
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let level = LevelFilter::from(level);
    let others = level.min(LevelFilter::WARN);
    let said = Targets::new()
        .with_target(env!("CARGO_CRATE_NAME"), level)
        .with_target(ABOUT_CLIENTS, LevelFilter::OFF)
        .with_default(others);
    let lines = layer().with_writer(writer).log_internal_errors(false);
    match format {
        LogFormat::Text => lines.event_format(LoggedText).boxed(),
        LogFormat::Json => {
            lines.json().flatten_event(true).with_current_span(false).with_span_list(false).boxed()
        }
    }
    .with_filter(said)
}

/// What is said, on one line.
struct LoggedText;

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
        let mut said = LoggedFields(String::new());
        event.record(&mut said);
        writeln!(writer, "{}", terminal::escaped(&said.0))
    }
}

impl Visit for LoggedFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let Self(said) = self;
        if !said.is_empty() {
            said.push(' ');
        }
        if field.name() != "message" {
            *said += &format!("{}=", field.name());
        }
        *said += &format!("{value:?}");
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

    /// What `say` says in this form.
    fn said(format: LogFormat, level: LogLevel, say: impl FnOnce()) -> String {
        let page = Page::default();
        let writer = page.clone();
        let lines = lines(format, level, move || writer.clone());
        tracing::subscriber::with_default(tracing_subscriber::registry().with(lines), say);
        let bytes = page.0.lock().expect("nobody panicked").clone();
        String::from_utf8(bytes).expect("it says text")
    }

    const INJECTED: &str = "x\n{\"level\":\"ERROR\"}\r\u{1b}[2J\u{202e}";

    #[test]
    fn text_is_the_message_alone_and_nobody_writes_lines_of_their_own() {
        let text = said(LogFormat::Text, LogLevel::Info, || {
            tracing::info!("policies: version 2 is loaded");
            tracing::warn!("policies: {INJECTED}");
        });
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "policies: version 2 is loaded");
        assert_eq!(lines[1], r#"policies: x\n{"level":"ERROR"}\r\u{1b}[2J\u{202e}"#);
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn json_is_one_object_a_line_whatever_is_said() {
        let text = said(LogFormat::Json, LogLevel::Info, || tracing::warn!("policies: {INJECTED}"));
        let line: Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!(text.matches('\n').count(), 1);
        assert!(!text.contains('\u{1b}'), "{text}");
        assert_eq!((&line["level"], &line["target"]), (&"WARN".into(), &module_path!().into()));
        assert_eq!(line["message"], format!("policies: {INJECTED}"));
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
    }

    #[test]
    fn only_warnings_of_others_are_told_however_much_is_wanted() {
        let text = said(LogFormat::Text, LogLevel::Debug, || {
            tracing::debug!("ours");
            tracing::info!(target: "tonic", "header=secret");
            tracing::warn!(target: "tonic", "careful");
            tracing::warn!(target: "h2", "a client does what it should not");
        });
        assert_eq!(text, "ours\ncareful\n");
        assert_eq!(said(LogFormat::Text, LogLevel::Off, || tracing::error!("ours")), "");
        assert_eq!(said(LogFormat::Text, LogLevel::Warn, || tracing::info!("ours")), "");
    }
}
