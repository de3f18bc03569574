//! Metrics of wrappers and exporters.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Unit;

use super::registry::Registry;

use super::StateLabel;
use crate::wrappers::{Exporters, Wrappers};

/// A wrapper; there are at most as many as files in its directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WrapperLabel {
    wrapper: String,
}

/// Messages that a wrapper lost for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LostLabel {
    wrapper: String,
    reason: String,
}

/// An exporter; there are at most as many as files in its directory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExporterLabel {
    exporter: String,
}

/// Metrics of wrappers and exporters, filled at each scrape, so that a removed one is not reported.
#[derive(Debug, Default)]
pub(crate) struct WrapperMetrics {
    wrappers: Family<StateLabel, Gauge>,
    exporters: Family<StateLabel, Gauge>,
    elements: Family<WrapperLabel, Counter>,
    undecodable: Family<WrapperLabel, Counter>,
    unstored: Family<WrapperLabel, Gauge>,
    lost: Family<LostLabel, Counter>,
    dead_letters: Family<WrapperLabel, Gauge>,
    dead_letters_dropped: Family<WrapperLabel, Counter>,
    restarts: Family<WrapperLabel, Counter>,
    exported: Family<ExporterLabel, Counter>,
    refused: Family<ExporterLabel, Counter>,
    refused_dropped: Family<ExporterLabel, Counter>,
    exporter_restarts: Family<ExporterLabel, Counter>,
}

impl WrapperMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        r.register("wrappers", "Wrappers by state", self.wrappers.clone());
        r.register("exporters", "Exporters by state", self.exporters.clone());
        let text = "Elements that a wrapper stored since it started";
        r.register("wrapper_elements", text, self.elements.clone());
        let text = "Messages that a wrapper could not decode or store";
        r.register("wrapper_undecodable", text, self.undecodable.clone());
        let (text, bytes) = ("Data received by a wrapper but not yet stored", Unit::Bytes);
        r.register_with_unit("wrapper_unstored", text, bytes, self.unstored.clone());
        let text = "Dead letters of a wrapper";
        r.register("wrapper_dead_letters", text, self.dead_letters.clone());
        let text = "Dead letters of a wrapper that were dropped for newer ones";
        let dropped = self.dead_letters_dropped.clone();
        r.register("wrapper_dead_letters_dropped", text, dropped);
        let text = "Messages that a wrapper lost; a loss of an unknown number counts as one";
        r.register("wrapper_lost", text, self.lost.clone());
        let text = "Number of times that a wrapper was reopened after a failure";
        r.register("wrapper_restarts", text, self.restarts.clone());
        let text = "Elements that an exporter passed on since it started";
        r.register("exporter_elements", text, self.exported.clone());
        let text = "Elements that the peer of an exporter refused";
        r.register("exporter_refused", text, self.refused.clone());
        let text = "Dead letters of an exporter that were dropped for newer ones";
        let dropped = self.refused_dropped.clone();
        r.register("exporter_dead_letters_dropped", text, dropped);
        let text = "Number of times that an exporter was reopened after a failure";
        r.register("exporter_restarts", text, self.exporter_restarts.clone());
    }

    /// Replaces all values.
    pub(crate) fn measure(&self, wrappers: &Wrappers, exporters: &Exporters) {
        let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        for (state, count) in wrappers.counts() {
            self.wrappers
                .get_or_create(&StateLabel { state })
                .set(count);
        }
        for (state, count) in exporters.counts() {
            self.exporters
                .get_or_create(&StateLabel { state })
                .set(count);
        }
        for family in [
            &self.elements,
            &self.undecodable,
            &self.dead_letters_dropped,
            &self.restarts,
        ] {
            family.clear();
        }
        self.lost.clear();
        self.unstored.clear();
        self.dead_letters.clear();
        for row in wrappers.all() {
            for (reason, count) in row.lost {
                let wrapper = row.peer.name.clone();
                let label = LostLabel { wrapper, reason };
                self.lost.get_or_create(&label).inc_by(count);
            }
            let label = WrapperLabel {
                wrapper: row.peer.name,
            };
            let counters = [
                (&self.elements, row.peer.elements),
                (&self.undecodable, row.undecodable),
                (&self.dead_letters_dropped, row.peer.dead_letters_dropped),
                (&self.restarts, row.peer.restarts),
            ];
            for (family, value) in counters {
                family.get_or_create(&label).inc_by(value);
            }
            self.unstored
                .get_or_create(&label)
                .set(gauge(row.unstored_bytes));
            self.dead_letters
                .get_or_create(&label)
                .set(gauge(row.peer.dead_letters));
        }
        for family in [
            &self.exported,
            &self.refused,
            &self.refused_dropped,
            &self.exporter_restarts,
        ] {
            family.clear();
        }
        for row in exporters.all() {
            let label = ExporterLabel {
                exporter: row.peer.name,
            };
            let counters = [
                (&self.exported, row.peer.elements),
                (&self.refused, row.refused),
                (&self.refused_dropped, row.peer.dead_letters_dropped),
                (&self.exporter_restarts, row.peer.restarts),
            ];
            for (family, value) in counters {
                family.get_or_create(&label).inc_by(value);
            }
        }
    }
}
