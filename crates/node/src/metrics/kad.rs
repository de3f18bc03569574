//! Metrics of the distributed hash table.

use std::sync::atomic::Ordering;

use chappe_kad::Report;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Unit;

use super::registry::Registry;

/// Metrics of the distributed hash table; all 0 while it is off.
#[derive(Debug, Default)]
pub(crate) struct KadMetrics {
    contacts: Gauge,
    network_nodes: Gauge,
    records: Gauge,
    record_bytes: Gauge,
    publications: Gauge,
    searches: Counter,
    requests: Counter,
    timeouts: Counter,
    served: Counter,
    sent: Counter,
    received: Counter,
}

impl KadMetrics {
    pub(crate) fn register(&self, r: &mut Registry) {
        r.register(
            "kad_contacts",
            "Number of nodes in the routing table",
            self.contacts.clone(),
        );
        let text = "Estimated number of nodes in the network";
        r.register("kad_network_nodes", text, self.network_nodes.clone());
        let text = "Number of records stored for other nodes";
        r.register("kad_records", text, self.records.clone());
        let (text, bytes) = ("Size of the records stored for other nodes", Unit::Bytes);
        r.register_with_unit("kad_record", text, bytes, self.record_bytes.clone());
        let text = "Number of devices published";
        r.register("kad_publications", text, self.publications.clone());
        r.register("kad_searches", "Searches started", self.searches.clone());
        r.register(
            "kad_requests",
            "Requests sent to other nodes",
            self.requests.clone(),
        );
        let text = "Requests that timed out";
        r.register("kad_timeouts", text, self.timeouts.clone());
        let text = "Requests of other nodes that were answered";
        r.register("kad_served", text, self.served.clone());
        let (text, bytes) = ("Data sent to other nodes", Unit::Bytes);
        r.register_with_unit("kad_sent", text, bytes, self.sent.clone());
        let (text, bytes) = ("Data received from other nodes", Unit::Bytes);
        r.register_with_unit("kad_received", text, bytes, self.received.clone());
    }

    /// Updates the metrics from the node's latest report.
    pub(crate) fn measure(&self, report: &Report) {
        let gauge = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
        let nodes = report
            .network_nodes
            .map_or(0, |nodes| i64::try_from(nodes).unwrap_or(i64::MAX));
        self.network_nodes.set(nodes);
        self.contacts.set(gauge(report.contacts.len()));
        self.records.set(gauge(report.records));
        self.record_bytes.set(gauge(report.record_bytes));
        self.publications.set(gauge(report.publications));
        let counters = [
            (&self.searches, report.counters.searches),
            (&self.requests, report.counters.requests),
            (&self.timeouts, report.counters.timeouts),
            (&self.served, report.counters.served),
            (&self.sent, report.counters.sent_bytes),
            (&self.received, report.counters.received_bytes),
        ];
        for (counter, count) in counters {
            counter.inner().store(count, Ordering::Relaxed);
        }
    }
}
