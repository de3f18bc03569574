//! The metrics of the node, for Prometheus.
//!
//! Names have the prefix `chappe_`, times are in seconds, sizes in bytes, counters end in `_total`.
//! Labels have few values: there are no labels for routes and peers, and at most
//! `limits.metric_streams` for streams.

mod accounts;
mod kad;
mod links;
mod readers;
mod registry;
#[cfg(feature = "dds")]
mod topics;
mod wrappers;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::{Method, StatusCode};
use chappe_device::client::TreeCounts;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;

use crate::config::Limits;
use accounts::AccountMetrics;
use kad::KadMetrics;
pub(crate) use links::{
    LinkLabel, LinkMetrics, LinkReasonLabels, LinkStreamLabels, PacerStateLabel, ReaderLabel,
};
use readers::ReaderMetrics;
pub use registry::MetricDescription;
use registry::Registry;
#[cfg(feature = "dds")]
pub(crate) use topics::measure as measure_topics;
use wrappers::WrapperMetrics;

/// Bucket bounds of request durations in seconds; reason: from a memory read to a query's time limit.
const DURATION_BOUNDS: [f64; 8] = [0.000_5, 0.002, 0.01, 0.05, 0.25, 1.0, 5.0, 30.0];

/// Method and status of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    method: &'static str,
    status: u16,
}

/// A state of devices or sensors.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StateLabel {
    /// The state.
    pub(crate) state: &'static str,
}

/// A quota of devices.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct QuotaLabel {
    /// Its key in the configuration.
    pub(crate) quota: &'static str,
}

/// The outcome of an event of a notification tree.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct TreeLabel {
    /// Its name.
    pub(crate) outcome: &'static str,
}

/// Hop and reason of a drop, both from fixed sets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct DropLabels {
    /// The hop.
    pub(crate) hop: &'static str,
    /// The reason.
    pub(crate) reason: &'static str,
}

/// A stream, or `other` beyond the limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StreamLabel {
    /// Its name.
    pub(crate) stream: String,
}

/// Stream and reason of a loss.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct LostLabels {
    /// The stream's name.
    pub(crate) stream: String,
    /// The reason.
    pub(crate) reason: &'static str,
}

/// All metrics.
#[derive(Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    /// Streams with their own label.
    named: Mutex<BTreeSet<String>>,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Histogram,
    /// Open HTTP connections.
    pub(crate) connections: Gauge,
    /// Clients of live data.
    pub(crate) live_clients: Gauge,
    /// Elements sent to clients of live data.
    pub(crate) live_elements: Counter,
    /// Number of times that a client of live data became slow.
    pub(crate) live_lagged: Counter,
    /// Elements acknowledged by the log.
    pub(crate) elements: Family<StreamLabel, Counter>,
    /// Lost elements.
    pub(crate) lost: Family<LostLabels, Counter>,
    /// Damaged elements restored from another node.
    pub(crate) restored: Family<StreamLabel, Counter>,
    /// Elements missing from the middle of a stream.
    pub(crate) missing: Family<StreamLabel, Gauge>,
    /// Bytes read by the scrub.
    pub(crate) scrubbed: Counter,
    /// Drops by hop and reason.
    pub(crate) dropped: Family<DropLabels, Counter>,
    /// Devices by state.
    pub(crate) devices: Family<StateLabel, Gauge>,
    /// Number of times that a quota slowed a device down.
    pub(crate) devices_slowed: Family<QuotaLabel, Counter>,
    /// Events of devices' notification trees, by outcome.
    pub(crate) tree_events: Family<TreeLabel, Counter>,
    /// Virtual sensors by state.
    pub(crate) sensors: Family<StateLabel, Gauge>,
    /// Streams of the log.
    pub(crate) streams: Gauge,
    /// 1 while the log accepts records.
    pub(crate) log_healthy: Gauge,
    /// Bytes written by the log.
    pub(crate) log_bytes: Counter,
    /// Bytes written again to free room at the expense of exceeded shares.
    pub(crate) log_moved: Counter,
    /// Records written by the log.
    pub(crate) log_records: Counter,
    /// Syncs of the log.
    pub(crate) log_syncs: Counter,
    pub(crate) registry_syncs: Counter,
    /// Links.
    pub(crate) links: LinkMetrics,
    /// The distributed hash table.
    pub(crate) kad: KadMetrics,
    /// Readers of streams.
    pub(crate) readers: ReaderMetrics,
    /// Wrappers and exporters.
    pub(crate) wrappers: WrapperMetrics,
    /// What accounts use.
    pub(crate) accounts: AccountMetrics,
    /// DDS topics.
    #[cfg(feature = "dds")]
    pub(crate) topics: topics::TopicMetrics,
    /// Free bytes on the disk of the data directory.
    pub(crate) disk_free: Gauge,
    /// Resident memory.
    pub(crate) resident: Gauge,
    /// Start of the process, seconds since 1970.
    pub(crate) start_time: Gauge<f64, AtomicU64>,
    /// Expiry of the HTTP certificate, seconds since 1970; 0: none.
    pub(crate) certificate_ends: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::default(),
            named: Mutex::default(),
            requests: Family::default(),
            request_seconds: Histogram::new(DURATION_BOUNDS),
            connections: Gauge::default(),
            live_clients: Gauge::default(),
            live_elements: Counter::default(),
            live_lagged: Counter::default(),
            elements: Family::default(),
            lost: Family::default(),
            restored: Family::default(),
            missing: Family::default(),
            scrubbed: Counter::default(),
            dropped: Family::default(),
            devices: Family::default(),
            devices_slowed: Family::default(),
            tree_events: Family::default(),
            sensors: Family::default(),
            streams: Gauge::default(),
            log_healthy: Gauge::default(),
            log_bytes: Counter::default(),
            log_moved: Counter::default(),
            log_records: Counter::default(),
            log_syncs: Counter::default(),
            registry_syncs: Counter::default(),
            links: LinkMetrics::default(),
            kad: KadMetrics::default(),
            readers: ReaderMetrics::default(),
            wrappers: WrapperMetrics::default(),
            accounts: AccountMetrics::default(),
            #[cfg(feature = "dds")]
            topics: topics::TopicMetrics::default(),
            disk_free: Gauge::default(),
            resident: Gauge::default(),
            start_time: Gauge::default(),
            certificate_ends: Gauge::default(),
        };
        metrics.register();
        metrics
    }
}

/// All metrics of a node, in the order of their names.
#[must_use]
pub fn descriptions() -> Vec<MetricDescription> {
    Metrics::default().registry.descriptions()
}

impl Metrics {
    fn register(&mut self) {
        self.links.register(&mut self.registry);
        self.kad.register(&mut self.registry);
        self.readers.register(&mut self.registry);
        self.wrappers.register(&mut self.registry);
        self.accounts.register(&mut self.registry);
        #[cfg(feature = "dds")]
        self.topics.register(&mut self.registry);
        let r = &mut self.registry;
        r.register(
            "http_requests",
            "Requests by method and status",
            self.requests.clone(),
        );
        r.register_with_unit(
            "http_request_duration",
            "Time until the head of the response was sent",
            Unit::Seconds,
            self.request_seconds.clone(),
        );
        r.register(
            "http_connections",
            "Open connections",
            self.connections.clone(),
        );
        r.register(
            "live_clients",
            "Number of clients of live data",
            self.live_clients.clone(),
        );
        r.register(
            "live_elements",
            "Elements sent to clients of live data",
            self.live_elements.clone(),
        );
        r.register(
            "live_lagged",
            "Number of times that a client of live data lagged",
            self.live_lagged.clone(),
        );
        r.register(
            "elements",
            "Elements acknowledged by the log",
            self.elements.clone(),
        );
        r.register("lost", "Lost elements by reason", self.lost.clone());
        let text = "Damaged elements restored from another node";
        r.register("restored", text, self.restored.clone());
        r.register(
            "missing",
            "Elements missing from the middle of a stream",
            self.missing.clone(),
        );
        r.register_with_unit(
            "log_scrubbed",
            "Data read by the scrub to find damage",
            Unit::Bytes,
            self.scrubbed.clone(),
        );
        r.register(
            "dropped",
            "Messages dropped by hop and reason",
            self.dropped.clone(),
        );
        r.register(
            "devices",
            "Number of devices by state",
            self.devices.clone(),
        );
        let text = "Number of times that a device was slowed down, by exceeded quota";
        r.register("devices_slowed", text, self.devices_slowed.clone());
        r.register(
            "tree_events",
            "Events of devices' notification trees by outcome",
            self.tree_events.clone(),
        );
        r.register(
            "virtual_sensors",
            "Number of virtual sensors by state",
            self.sensors.clone(),
        );
        r.register(
            "streams",
            "Number of streams in the log",
            self.streams.clone(),
        );
        r.register(
            "log_healthy",
            "1 while the log accepts records",
            self.log_healthy.clone(),
        );
        r.register(
            "log_records",
            "Records written by the log",
            self.log_records.clone(),
        );
        r.register("log_syncs", "Syncs of the log", self.log_syncs.clone());
        r.register(
            "registry_syncs",
            "Syncs of the registry's log",
            self.registry_syncs.clone(),
        );
        let bytes = Unit::Bytes;
        r.register_with_unit(
            "log_moved",
            "Data that was written again when accounts above their shares made room",
            bytes.clone(),
            self.log_moved.clone(),
        );
        r.register_with_unit(
            "log_written",
            "Data written by the log",
            bytes,
            self.log_bytes.clone(),
        );
        let bytes = Unit::Bytes;
        r.register_with_unit(
            "disk_free",
            "Free space on the disk",
            bytes,
            self.disk_free.clone(),
        );
        let bytes = Unit::Bytes;
        r.register_with_unit(
            "resident_memory",
            "Resident memory of the process",
            bytes,
            self.resident.clone(),
        );
        r.register_with_unit(
            "start_time",
            "Start time of the process since 1970",
            Unit::Seconds,
            self.start_time.clone(),
        );
        r.register_with_unit(
            "certificate_end",
            "Expiry time of the HTTP certificate, in seconds since 1970; 0: none",
            Unit::Seconds,
            self.certificate_ends.clone(),
        );
    }

    /// Counts a request.
    pub(crate) fn request(&self, method: &Method, status: StatusCode, took: Duration) {
        let method = match method.as_str() {
            "GET" => "GET",
            "HEAD" => "HEAD",
            "POST" => "POST",
            "PUT" => "PUT",
            "DELETE" => "DELETE",
            _ => "other",
        };
        let labels = RequestLabels {
            method,
            status: status.as_u16(),
        };
        self.requests.get_or_create(&labels).inc();
        self.request_seconds.observe(took.as_secs_f64());
    }

    /// Updates the counters of notification trees.
    pub(crate) fn measure_tree(&self, counts: TreeCounts) {
        for (outcome, count) in [
            ("delivered", counts.delivered),
            ("late", counts.late),
            ("duplicate", counts.duplicates),
            ("missed", counts.missed),
            ("forged", counts.forged),
            ("unreadable", counts.unreadable),
        ] {
            let counter = self.tree_events.get_or_create(&TreeLabel { outcome });
            counter.inner().store(count, Ordering::Relaxed);
        }
    }

    /// The label of a stream: its name, or `other` beyond the limit.
    pub(crate) fn stream_label(&self, stream: &str, limits: &Limits) -> String {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if named.contains(stream) {
            return stream.to_owned();
        }
        if named.len() >= limits.metric_streams as usize {
            return "other".to_owned();
        }
        named.insert(stream.to_owned());
        stream.to_owned()
    }

    /// The metrics in Prometheus' text format.
    pub(crate) fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, self.registry.metrics())?;
        Ok(text)
    }
}
