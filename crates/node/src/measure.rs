//! Gauges that are updated when the metrics are requested.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

use chappe_log::Health;

use crate::completeness::Reader;
use crate::metrics::{DropLabels, LostLabels, StateLabel, StreamLabel};
use crate::shared::Shared;

/// Sets the gauges to their current values.
pub(crate) fn measure(app: &Shared) {
    let metrics = &app.observability.metrics;
    let gauge = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    metrics.disk_free.set(gauge(app.storage.free_bytes()));
    metrics.resident.set(gauge(resident_bytes()));
    metrics
        .start_time
        .set(app.identity.started_at.0 as f64 / 1e9);
    let healthy = app.storage.log.health() == Health::Ok;
    metrics.log_healthy.set(i64::from(healthy));
    let counters = app.storage.log.counters();
    metrics.log_bytes.inner().store(counters.bytes, Relaxed);
    let moved = counters.moved_bytes;
    metrics.log_moved.inner().store(moved, Relaxed);
    metrics.log_records.inner().store(counters.records, Relaxed);
    metrics.log_syncs.inner().store(counters.syncs, Relaxed);
    let of_registry = app.storage.registry_log.counters();
    let registry_syncs = metrics.registry_syncs.inner();
    registry_syncs.store(of_registry.syncs, Relaxed);
    for (state, count) in app.devices.counts() {
        let label = StateLabel { state };
        metrics.devices.get_or_create(&label).set(count);
    }
    if let Some(counts) = app.devices.tree_counts() {
        metrics.measure_tree(counts);
    }
    for (state, count) in app.sensors.counts() {
        let label = StateLabel { state };
        metrics.sensors.get_or_create(&label).set(count);
    }
    for (hop, reason, count) in app.observability.drops.totals() {
        let label = DropLabels {
            hop: hop.as_str(),
            reason,
        };
        let counter = metrics.dropped.get_or_create(&label);
        counter.inner().store(count, Relaxed);
    }
    let scrubbed = counters.scrubbed_bytes + of_registry.scrubbed_bytes;
    metrics.scrubbed.inner().store(scrubbed, Relaxed);
    measure_streams(app);
    let mut readers = crate::completeness::readers(app, None);
    let left = |reader: &Reader| reader.seconds_left.unwrap_or(f64::INFINITY);
    readers.sort_by(|a, b| left(a).total_cmp(&left(b)));
    for reader in &mut readers {
        // A time series goes on under the name with which it began.
        reader.stream = app.catalogue.names().resolve(&reader.stream);
    }
    metrics.readers.measure(readers);
    metrics.wrappers.measure(&app.wrappers, &app.exporters);
    metrics
        .accounts
        .measure(&app.accounts, &app.shares, &app.catalogue, &app.permits);
    if let Some(exchange) = app.exchange.get() {
        exchange.measure(&app.observability.metrics, &app.config.limits);
    }
    if let Some(node) = app.kad.get() {
        metrics.kad.measure(&node.report().borrow());
    }
    #[cfg(feature = "dds")]
    crate::metrics::measure_topics(&app.topics, &metrics.topics);
}

fn measure_streams(app: &Shared) {
    let entries = app.catalogue.entries();
    let streams = i64::try_from(entries.len()).unwrap_or(i64::MAX);
    app.observability.metrics.streams.set(streams);
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for entry in entries {
        let label = app.observability.stream_label(&entry.name);
        *counts.entry(label).or_default() += entry.log.log().last();
    }
    for (stream, count) in counts {
        let counter = app
            .observability
            .metrics
            .elements
            .get_or_create(&StreamLabel { stream });
        counter.inner().store(count, Relaxed);
    }
    measure_losses(app);
}

/// Elements that the log itself lost: damaged, or removed by its size limit.
fn measure_losses(app: &Shared) {
    let mut lost: BTreeMap<(String, &str), u64> = BTreeMap::new();
    let mut restored: BTreeMap<String, u64> = BTreeMap::new();
    let mut missing: BTreeMap<String, i64> = BTreeMap::new();
    for one in app.storage.log.lost() {
        let stream = app.observability.stream_label(&one.stream);
        for (reason, count) in [("damaged", one.corrupt), ("size_limit", one.size_limit)] {
            if count > 0 {
                *lost.entry((stream.clone(), reason)).or_default() += count;
            }
        }
        let missing = missing.entry(stream.clone()).or_default();
        *missing = missing.saturating_add_unsigned(one.missing);
        if one.filled > 0 {
            *restored.entry(stream).or_default() += one.filled;
        }
    }
    for ((stream, reason), count) in lost {
        let counter = app
            .observability
            .metrics
            .lost
            .get_or_create(&LostLabels { stream, reason });
        counter.inner().store(count, Relaxed);
    }
    for (stream, count) in missing {
        let gauge = app
            .observability
            .metrics
            .missing
            .get_or_create(&StreamLabel { stream });
        gauge.set(count);
    }
    for (stream, count) in restored {
        let counter = app
            .observability
            .metrics
            .restored
            .get_or_create(&StreamLabel { stream });
        counter.inner().store(count, Relaxed);
    }
}

/// Resident bytes of this process; 0 where the system does not report them.
pub(crate) fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
