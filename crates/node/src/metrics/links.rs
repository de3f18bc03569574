//! Metrics of links between nodes.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Unit;

use super::registry::Registry;

/// A link; there are at most `exchange.max_links`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct LinkLabel {
    /// Its name.
    pub(crate) link: String,
}

/// A reader, or `other` beyond the limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct ReaderLabel {
    /// Its key, or its address if it proved no key.
    pub(crate) reader: String,
}

/// The state of pacers.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct PacerStateLabel {
    /// Its name.
    pub(crate) state: &'static str,
}

/// A stream of a link, or `other` beyond the limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct LinkStreamLabels {
    /// The link's name.
    pub(crate) link: String,
    /// The stream's name here.
    pub(crate) stream: String,
}

/// The reason of a refusal on a stream of a link.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct LinkReasonLabels {
    /// The link's name.
    pub(crate) link: String,
    /// The stream's name here.
    pub(crate) stream: String,
    /// The reason.
    pub(crate) reason: String,
}

/// Metrics of links, filled at each scrape, so that a removed link is not reported.
#[derive(Debug, Default)]
pub(crate) struct LinkMetrics {
    /// 1 while a link carries elements.
    pub(crate) connected: Family<LinkLabel, Gauge>,
    /// Reconnections of a link.
    pub(crate) reconnects: Family<LinkLabel, Counter>,
    /// Bytes received by a link.
    pub(crate) received_bytes: Family<LinkLabel, Counter>,
    /// Current rate in elements per second.
    pub(crate) rate: Family<LinkLabel, Gauge<f64, AtomicU64>>,
    /// Stored dead letters.
    pub(crate) dead_letters: Family<LinkLabel, Gauge>,
    /// Elements acknowledged.
    pub(crate) acknowledged: Family<LinkStreamLabels, Counter>,
    /// Dropped duplicates.
    pub(crate) repeated: Family<LinkStreamLabels, Counter>,
    /// Elements at the origin that are not here yet.
    pub(crate) lag_elements: Family<LinkStreamLabels, Gauge>,
    /// Delay of the newest element.
    pub(crate) lag: Family<LinkStreamLabels, Gauge<f64, AtomicU64>>,
    /// Bytes received and not yet stored.
    pub(crate) held: Family<LinkStreamLabels, Gauge>,
    /// Occupation of the window.
    pub(crate) occupation: Family<LinkStreamLabels, Gauge<f64, AtomicU64>>,
    /// Elements that became dead letters, by reason.
    pub(crate) refused: Family<LinkReasonLabels, Counter>,
    /// Sessions and subscriptions of others here.
    pub(crate) peers: Gauge,
    /// Elements sent to others and not acknowledged.
    pub(crate) peers_in_flight: Gauge,
    /// Current sending rate to a reader in elements per second.
    pub(crate) reader_rate: Family<ReaderLabel, Gauge<f64, AtomicU64>>,
    /// Elements sent to a reader.
    pub(crate) reader_sent: Family<ReaderLabel, Counter>,
    /// Retransmitted elements among them.
    pub(crate) reader_sent_again: Family<ReaderLabel, Counter>,
    /// Elements that a reader does not have yet.
    pub(crate) reader_lag_elements: Family<ReaderLabel, Gauge>,
    /// Elements in flight, as the pacer counts them.
    pub(crate) pacer_occupation: Family<ReaderLabel, Gauge>,
    /// Time between two frames.
    pub(crate) pacer_period: Family<ReaderLabel, Gauge<f64, AtomicU64>>,
    /// Pacers by state.
    pub(crate) pacer_states: Family<PacerStateLabel, Gauge>,
}

impl LinkMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        let text = "Whether the link is established (1) or not (0)";
        r.register("link_connected", text, self.connected.clone());
        let text = "Reconnections of the link";
        r.register("link_reconnects", text, self.reconnects.clone());
        let (text, bytes) = ("Data received over the link", Unit::Bytes);
        r.register_with_unit("link_received", text, bytes, self.received_bytes.clone());
        let text = "Elements received over the link per second, averaged over the last seconds";
        r.register("link_elements_per_second", text, self.rate.clone());
        let text = "Elements stored as dead letters";
        r.register("link_dead_letters", text, self.dead_letters.clone());
        let text = "Elements stored and acknowledged";
        r.register("link_acknowledged", text, self.acknowledged.clone());
        let text = "Dropped duplicates";
        r.register("link_repeated", text, self.repeated.clone());
        let text = "Elements at the origin that this node has not received yet";
        r.register("link_lag_elements", text, self.lag_elements.clone());
        let (text, seconds) = (
            "Time from the source time of an element to its arrival",
            Unit::Seconds,
        );
        r.register_with_unit("link_lag", text, seconds, self.lag.clone());
        let (text, bytes) = ("Data received but not yet stored", Unit::Bytes);
        r.register_with_unit("link_held", text, bytes, self.held.clone());
        let text = "Share of the window in use, 0 to 1";
        r.register("link_window_occupation", text, self.occupation.clone());
        let text = "Elements that could not be stored";
        r.register("link_refused", text, self.refused.clone());
        let text = "Sessions and subscriptions of other nodes";
        r.register("link_peers", text, self.peers.clone());
        let text = "Elements sent to other nodes but not yet acknowledged";
        r.register("link_peers_in_flight", text, self.peers_in_flight.clone());
        let text = "Elements sent to a reader per second, averaged over the last seconds";
        let rate = self.reader_rate.clone();
        r.register("link_reader_elements_per_second", text, rate);
        let text = "Elements sent to a reader since it connected";
        r.register("link_reader_sent", text, self.reader_sent.clone());
        let text = "Elements retransmitted to a reader";
        let again = self.reader_sent_again.clone();
        r.register("link_reader_sent_again", text, again);
        let text = "Elements of this node that a reader has not received yet";
        let lag = self.reader_lag_elements.clone();
        r.register("link_reader_lag_elements", text, lag);
        let text = "Elements in flight to a reader, as counted by its pacer";
        r.register("link_pacer_occupation", text, self.pacer_occupation.clone());
        let text = "Pause between two frames to a reader; 0 without pacing";
        r.register_with_unit(
            "link_pacer_period",
            text,
            Unit::Seconds,
            self.pacer_period.clone(),
        );
        let text = "Number of pacers by state";
        r.register("link_pacers", text, self.pacer_states.clone());
    }

    /// Clears all values.
    pub(crate) fn clear(&self) {
        self.connected.clear();
        self.reconnects.clear();
        self.received_bytes.clear();
        self.rate.clear();
        self.dead_letters.clear();
        self.acknowledged.clear();
        self.repeated.clear();
        self.lag_elements.clear();
        self.lag.clear();
        self.held.clear();
        self.occupation.clear();
        self.refused.clear();
        self.reader_rate.clear();
        self.reader_sent.clear();
        self.reader_sent_again.clear();
        self.reader_lag_elements.clear();
        self.pacer_occupation.clear();
        self.pacer_period.clear();
        self.pacer_states.clear();
    }
}
