//! `GET /metrics`: all metrics, as OpenMetrics. `docs/operations.md` explains each.
//!
//! Names of policies are the only labels with free text, and operators choose them; no label contains
//! a key or a name that a client made up.

mod classic;
mod pace;
mod process;

use std::fmt::{self, Write};
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeGaugeValue, EncodeLabelSet, LabelSetEncoder, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::Registry;
use sluicegate::internals::LeaseStats;
use sluicegate_control::api::damaged_total;
use sluicegate_control::{catalog_write_failures_total, is_catalog_writable};

use crate::authenticator::Authenticator;
use crate::engine::ServerEngine;
use crate::histogram::Spans;
use crate::policies::PolicyManager;
use crate::protocol::Wire;
use crate::snapshot::Snapshots;
use crate::store::{AnyStore, RedisBackend};
pub(crate) use classic::classic;
pub(crate) use pace::{Metrics, ScrapePace};
use process::ProcessStats;

/// The sources of the metrics.
#[derive(Clone, Debug)]
pub(crate) struct Scrape {
    pub(crate) engine: Arc<ServerEngine>,
    pub(crate) live: Arc<PolicyManager>,
    pub(crate) authenticator: Arc<Authenticator>,
    /// Times when the certificates of wires expire, in seconds since 1970.
    pub(crate) expiries: Vec<(Wire, i64)>,
    /// The file of a store in memory.
    pub(crate) snapshots: Option<Snapshots>,
}

/// The names and values of a sample's labels.
type Labels<'a> = &'a [(&'static str, &'a str)];

/// Labels, as they are encoded.
struct EncodedLabels<'a>(Labels<'a>);

/// A sample with its labels.
struct Sample<'l, const N: usize, V> {
    labels: [(&'static str, &'l str); N],
    value: V,
}

/// The head of a family of samples.
#[derive(Clone, Copy)]
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    kind: MetricType,
}

/// Writes families of samples.
struct Families<'a>(DescriptorEncoder<'a>);

impl Scrape {
    /// All metrics, in both formats.
    pub(crate) fn metrics(&self) -> Metrics {
        let text = self.text();
        Metrics { classic: classic(&text).into(), open: text.into() }
    }

    /// All metrics, as OpenMetrics.
    fn text(&self) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self.clone()));
        let mut text = String::new();
        encode(&mut text, &registry).expect("a text takes everything");
        text
    }

    fn decisions(&self, families: &mut Families<'_>) -> fmt::Result {
        let counts = &self.engine.telemetry().counts;
        let decisions = counts.decisions();
        let samples = decisions.iter().map(|decisions| {
            let labels = [
                ("policy", &*decisions.policy),
                ("wire", decisions.wire.name()),
                ("result", decisions.result),
                ("mode", decisions.mode),
            ];
            Sample { labels, value: decisions.count }
        });
        let help = "Decided requests for permits";
        families.counters("sluicegate_decisions", help, samples)?;
        let errors = DECIDING.iter().flat_map(|wire| {
            let of_wire = counts.errors(*wire);
            of_wire.map(|(reason, count)| {
                let labels = [("wire", wire.name()), ("reason", reason)];
                Sample { labels, value: count }
            })
        });
        let help = "Requests that failed without a decision";
        families.counters("sluicegate_decision_errors", help, errors)?;
        let refused = DECIDING.iter().flat_map(|wire| {
            let of_wire = self.authenticator.refused(*wire);
            of_wire.map(|(reason, count)| {
                let labels = [("wire", wire.name()), ("reason", reason)];
                Sample { labels, value: count }
            })
        });
        let help = "Requests and logins refused by authentication or authorization";
        families.counters("sluicegate_callers_refused", help, refused)?;
        let help = "Policies skipped because more than 16 match one request";
        let left_out = self.engine.telemetry().left_out();
        families.counter("sluicegate_forward_auth_policies_left_out", help, left_out)?;
        let operations = DECIDING.iter().flat_map(|wire| {
            let of_wire = counts.operations(*wire);
            of_wire.map(|(name, count)| {
                let labels = [("wire", wire.name()), ("operation", name)];
                Sample { labels, value: count }
            })
        });
        let help = "Budget requests that take no permits";
        families.counters("sluicegate_operations", help, operations)?;
        let spans = DECIDING
            .iter()
            .map(|wire| Sample { labels: [("wire", wire.name())], value: counts.latency(*wire) });
        let help = "Decision time without delays; in memory one in 64 is sampled";
        families.histograms("sluicegate_decision_duration_seconds", help, spans)?;
        let help = "Requests delayed now";
        families.gauge("sluicegate_held_requests", help, self.engine.core().held())
    }

    fn policies(&self, families: &mut Families<'_>) -> fmt::Result {
        let status = self.live.status();
        let help = "Active policies";
        families.gauge("sluicegate_policies", help, self.engine.core().policies().len())?;
        let help = "Version of the loaded policies: 1 at start, plus one for each change and for the first of a catalog";
        families.gauge("sluicegate_policies_version", help, status.version)?;
        let help = "When the loaded policies were read, seconds since the Unix epoch";
        let at = seconds(status.read_at_us);
        families.gauge("sluicegate_policies_last_success_timestamp_seconds", help, at)?;
        let help = "1 if the current files are loaded, 0 if they were rejected";
        let is_good = u64::from(status.error.is_none());
        families.gauge("sluicegate_policies_last_reload_successful", help, is_good)?;
        let help = "Rejected policy changes";
        families.counter("sluicegate_policies_refused", help, status.refused)?;
        let Some(catalog) = status.catalog else { return Ok(()) };
        let help = "Revision of the loaded catalog";
        families.gauge("sluicegate_catalog_revision", help, catalog.revision)?;
        let help = "1 if the last request to the catalog succeeded";
        families.gauge("sluicegate_catalog_up", help, u64::from(catalog.answers))?;
        let help = "Last successful request to the catalog, seconds since the Unix epoch";
        let at = seconds(catalog.answered_at_us);
        families.gauge("sluicegate_catalog_last_success_timestamp_seconds", help, at)?;
        let help = "0 from a failed write, or a moved file, until a change is committed; else 1";
        families.gauge("sluicegate_catalog_writable", help, u64::from(is_catalog_writable()))?;
        let help = "Attempts to write to the catalog, or to open it, that failed or were not confirmed; none while its file is moved";
        families.counter(
            "sluicegate_catalog_write_failures",
            help,
            catalog_write_failures_total(),
        )?;
        let help = "Admin API requests that failed because the catalog is damaged";
        families.counter("sluicegate_catalog_damaged", help, damaged_total())?;
        let help = "Rows of traffic history that the catalog did not take in time";
        let dropped = self.engine.telemetry().history().dropped();
        families.counter("sluicegate_history_dropped", help, dropped)
    }

    fn store(&self, families: &mut Families<'_>) -> fmt::Result {
        let engine = self.engine.core();
        let help = "1 while decisions find no store; 0 in an outage in which nothing is decided";
        let is_open = u64::from(engine.is_without_store());
        families.gauge("sluicegate_store_breaker_open", help, is_open)?;
        let help = "Keys with usage admitted without the store and not yet charged to it";
        families.gauge("sluicegate_store_debts", help, engine.debts())?;
        match engine.store() {
            AnyStore::Memory(store) => {
                let help = "Keys in memory";
                families.gauge("sluicegate_store_keys", help, store.len())?;
                let help = "Budgets evicted because the store was full, although they were in use";
                families.counter("sluicegate_store_evictions", help, store.evictions())?;
                let help = "Requests of new keys without room for their own budget";
                families.counter("sluicegate_store_overflows", help, store.overflows())?;
                let help = "Bytes of states larger than a slot";
                families.gauge("sluicegate_store_state_bytes", help, store.state_bytes())
            }
            AnyStore::Redis(store) => {
                redis(store, families)?;
                engine.lease_stats().map_or(Ok(()), |stats| leases(&stats, families))
            }
        }
    }

    fn files(&self, families: &mut Families<'_>) -> fmt::Result {
        let expiries = self
            .expiries
            .iter()
            .map(|(wire, at)| Sample { labels: [("wire", wire.name())], value: *at });
        let help = "When the certificate of a listener expires, seconds since the Unix epoch";
        let name = "sluicegate_certificate_expiry_timestamp_seconds";
        let family = Family { name, help, kind: MetricType::Gauge };
        families.each(family, expiries, |one, at| one.encode_gauge(&at))?;
        let Some(snapshots) = &self.snapshots else { return Ok(()) };
        let help = "When the snapshot was written last, seconds since the Unix epoch";
        let at = seconds(snapshots.written_at_us());
        families.gauge("sluicegate_snapshot_last_success_timestamp_seconds", help, at)?;
        let help = "Interval between snapshots";
        let every = snapshots.every().as_secs_f64();
        families.gauge("sluicegate_snapshot_interval_seconds", help, every)
    }

    fn connections(&self, families: &mut Families<'_>) -> fmt::Result {
        let telemetry = self.engine.telemetry();
        let sample = |wire: &Wire, value| Sample { labels: [("wire", wire.name())], value };
        let accepted = Wire::ALL.iter();
        let accepted = accepted.map(|wire| sample(wire, telemetry.connections(*wire).accepted()));
        let help = "Accepted connections";
        families.counters("sluicegate_connections_accepted", help, accepted)?;
        let open = Wire::ALL.iter();
        let open = open.map(|wire| sample(wire, telemetry.connections(*wire).open()));
        families.gauges("sluicegate_connections_open", "Open connections", open)?;
        let max = Wire::ALL.iter();
        let max = max.map(|wire| sample(wire, telemetry.connections(*wire).max()));
        let help = "Maximum number of open connections";
        families.gauges("sluicegate_connections_max", help, max)?;
        let help = "Event subscribers";
        families.gauge("sluicegate_event_watchers", help, telemetry.events().watchers())
    }
}

/// The wires that decide something.
const DECIDING: [Wire; 3] = [Wire::Http, Wire::Resp, Wire::Rls];

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        self.decisions(&mut families)?;
        self.policies(&mut families)?;
        self.store(&mut families)?;
        self.files(&mut families)?;
        self.connections(&mut families)?;
        let version: Labels<'_> = &[("version", env!("CARGO_PKG_VERSION"))];
        families.info("sluicegate_build", "Build information", version)?;
        match ProcessStats::read() {
            Some(process) => of_process(&process, &mut families),
            None => Ok(()),
        }
    }
}

fn redis(store: &RedisBackend, families: &mut Families<'_>) -> fmt::Result {
    let stats = store.stats();
    let fleet = store.fleet();
    let help = "Live servers that share the store; 0 if unknown";
    families.gauge("sluicegate_store_nodes_live", help, fleet.live())?;
    let help = "Number of servers by which limits are divided while the store is unavailable";
    families.gauge("sluicegate_store_nodes", help, fleet.shared_by())?;
    let help = "Detected losses of data in the store";
    families.counter("sluicegate_store_forgotten", help, fleet.forgotten())?;
    let help = "Store round trip time of decisions, successful or not";
    families.histogram("sluicegate_store_request_duration_seconds", help, store.latency())?;
    let [not_executed, perhaps] = store.errors();
    let errors = [("no", not_executed), ("perhaps", perhaps)]
        .map(|(executed, value)| Sample { labels: [("executed", executed)], value });
    let help = "Calls of the store that decided nothing, by whether it may have charged them";
    families.counters("sluicegate_store_errors", help, errors.into_iter())?;
    let help = "Calls that the store answered with an error about their key alone";
    families.counter("sluicegate_store_key_errors", help, store.key_errors())?;
    for (name, help, count) in [
        ("calls", "Script and command calls sent to the store", stats.calls),
        (
            "batches",
            "Script calls sent to the store; one call can hold several decisions",
            stats.batches,
        ),
        ("reconnects", "Reconnections to the store", stats.reconnects),
        ("script_reloads", "Reloads of a script that the store had lost", stats.script_reloads),
        ("redirects", "Cluster redirections followed", stats.redirects),
        ("timeouts", "Calls past their deadline", stats.timeouts),
        ("unknown_outcomes", "Calls with unknown outcome", stats.unknown_outcomes),
        ("late_grants", "Refunds of permits granted after the deadline", stats.late_grants),
    ] {
        families.counter(&format!("sluicegate_store_{name}"), help, count)?;
    }
    Ok(())
}

fn leases(stats: &LeaseStats, families: &mut Families<'_>) -> fmt::Result {
    let LeaseStats { keys, messages, permits, waits, repairs, full } = stats;
    families.gauge("sluicegate_lease_keys", "Keys of which permits are leased now", *keys)?;
    let messages = LeaseStats::KINDS.iter().zip(messages).flat_map(|(kind, counts)| {
        let of_kind = LeaseStats::OUTCOMES.iter().zip(counts);
        of_kind.map(move |(outcome, count)| Sample {
            labels: [("kind", *kind), ("outcome", *outcome)],
            value: *count,
        })
    });
    let help = "Messages about leases sent to the store";
    families.counters("sluicegate_lease_messages", help, messages)?;
    let permits = LeaseStats::FATES.iter().zip(permits);
    let permits = permits.map(|(fate, count)| Sample { labels: [("what", *fate)], value: *count });
    families.counters("sluicegate_lease_permits", "Leased permits, by their fate", permits)?;
    let help = "Requests that waited for permits to be leased";
    families.counter("sluicegate_lease_waits", help, *waits)?;
    let help = "Leases that the store had lost and restored from what this server reported";
    families.counter("sluicegate_lease_repairs", help, *repairs)?;
    let help = "Leases refused because 64 servers hold permits of the key";
    families.counter("sluicegate_lease_full", help, *full)
}

fn of_process(process: &ProcessStats, families: &mut Families<'_>) -> fmt::Result {
    let ProcessStats {
        cpu_seconds,
        threads,
        start_seconds,
        virtual_bytes,
        resident_bytes,
        open_files,
        open_files_max,
    } = *process;
    let help = "CPU time of the process";
    let mut cpu =
        families.0.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
    cpu.encode_counter::<NoLabelSet, _, u64>(&cpu_seconds, None)?;
    families.gauge("process_threads", "Threads", threads)?;
    let help = "When the process started, seconds since the Unix epoch";
    families.gauge("process_start_time_seconds", help, start_seconds)?;
    families.gauge("process_virtual_memory_bytes", "Virtual memory", virtual_bytes)?;
    families.gauge("process_resident_memory_bytes", "Resident memory", resident_bytes)?;
    families.gauge("process_open_fds", "Open file descriptors", open_files)?;
    families.gauge("process_max_fds", "Maximum number of open file descriptors", open_files_max)
}

impl Families<'_> {
    /// Writes samples with labels.
    fn each<'l, const N: usize, V>(
        &mut self,
        family: Family<'_>,
        samples: impl Iterator<Item = Sample<'l, N, V>>,
        write: impl Fn(&mut MetricEncoder<'_>, V) -> fmt::Result,
    ) -> fmt::Result {
        let Family { name, help, kind } = family;
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        for Sample { labels, value } in samples {
            write(&mut family.encode_family(&EncodedLabels(&labels))?, value)?;
        }
        Ok(())
    }

    fn counters<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Iterator<Item = Sample<'l, N, u64>>,
    ) -> fmt::Result {
        self.each(Family { name, help, kind: MetricType::Counter }, samples, count)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        count(&mut self.0.encode_descriptor(name, help, None, MetricType::Counter)?, value)
    }

    fn gauges<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Iterator<Item = Sample<'l, N, u64>>,
    ) -> fmt::Result {
        self.each(Family { name, help, kind: MetricType::Gauge }, samples, |one, value| {
            one.encode_gauge(&value)
        })
    }

    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        value: impl EncodeGaugeValue + Copy,
    ) -> fmt::Result {
        self.0.encode_descriptor(name, help, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn info(&mut self, name: &str, help: &str, labels: Labels<'_>) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Info)?;
        family.encode_info(&EncodedLabels(labels))
    }

    fn histograms<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Iterator<Item = Sample<'l, N, Spans>>,
    ) -> fmt::Result {
        self.each(Family { name, help, kind: MetricType::Histogram }, samples, spans_of)
    }

    fn histogram(&mut self, name: &str, help: &str, spans: Spans) -> fmt::Result {
        spans_of(&mut self.0.encode_descriptor(name, help, None, MetricType::Histogram)?, spans)
    }
}

fn count(one: &mut MetricEncoder<'_>, count: u64) -> fmt::Result {
    let none: Option<&Exemplar<NoLabelSet, u64>> = None;
    one.encode_counter(&count, none)
}

#[expect(clippy::needless_pass_by_value, reason = "so are other values of samples passed")]
fn spans_of(one: &mut MetricEncoder<'_>, spans: Spans) -> fmt::Result {
    let (sum, count, buckets) = (spans.sum_seconds(), spans.count(), spans.buckets());
    one.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}

impl EncodeLabelSet for EncodedLabels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        for (name, value) in self.0 {
            let mut label = encoder.encode_label();
            let mut key = label.encode_label_key()?;
            key.write_str(name)?;
            let mut written = key.encode_label_value()?;
            written.write_str(value)?;
            written.finish()?;
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds are told with 53 bits")]
fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
