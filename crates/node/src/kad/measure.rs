//! What is measured of the distributed hash table.

use std::sync::atomic::Ordering;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

use super::status;
use crate::shared::Shared;

/// What is measured of the distributed hash table; all 0 while it is off.
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
            "Nodes that are known",
            self.contacts.clone(),
        );
        let text = "Nodes of the network, estimated";
        r.register("kad_network_nodes", text, self.network_nodes.clone());
        let text = "Records kept for others";
        r.register("kad_records", text, self.records.clone());
        let (text, bytes) = ("Size of the records kept for others", Unit::Bytes);
        r.register_with_unit("kad_record", text, bytes, self.record_bytes.clone());
        let text = "Devices published";
        r.register("kad_publications", text, self.publications.clone());
        r.register("kad_searches", "Searches begun", self.searches.clone());
        r.register("kad_requests", "Requests to others", self.requests.clone());
        let text = "Requests that nobody answered in time";
        r.register("kad_timeouts", text, self.timeouts.clone());
        let text = "Requests of others that were answered";
        r.register("kad_served", text, self.served.clone());
        let (text, bytes) = ("Sent to other nodes", Unit::Bytes);
        r.register_with_unit("kad_sent", text, bytes, self.sent.clone());
        let (text, bytes) = ("Received from other nodes", Unit::Bytes);
        r.register_with_unit("kad_received", text, bytes, self.received.clone());
    }
}

/// Brings the metrics up to date.
pub(crate) fn measure(app: &Shared) {
    let (now, of) = (status(app), &app.observability.metrics.kad);
    let gauge = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    of.contacts.set(gauge(now.contacts));
    let nodes = now
        .network_nodes
        .map_or(0, |nodes| i64::try_from(nodes).unwrap_or(i64::MAX));
    of.network_nodes.set(nodes);
    of.records.set(gauge(now.records));
    of.record_bytes.set(gauge(now.record_bytes));
    of.publications.set(gauge(now.publications));
    let counters = [
        (&of.searches, now.searches_begun),
        (&of.requests, now.requests),
        (&of.timeouts, now.timeouts),
        (&of.served, now.served),
        (&of.sent, now.sent_bytes),
        (&of.received, now.received_bytes),
    ];
    for (counter, count) in counters {
        counter.inner().store(count, Ordering::Relaxed);
    }
}
