//! Metrics of the distance of readers to a loss.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Unit;

use super::registry::Registry;

use crate::completeness::Reader;

/// Readers with values of their own, those nearest to a loss; reason: each costs three lines per scrape.
const READERS_MAX: usize = 1_024;

/// A reader of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DistanceLabels {
    kind: &'static str,
    reader: String,
    stream: String,
}

/// Distances of readers to a loss, filled at each scrape.
#[derive(Debug, Default)]
pub(crate) struct ReaderMetrics {
    elements: Family<DistanceLabels, Gauge>,
    seconds: Family<DistanceLabels, Gauge<f64, AtomicU64>>,
    missed: Family<DistanceLabels, Gauge>,
}

impl ReaderMetrics {
    pub(super) fn register(&self, r: &mut Registry) {
        let text =
            "Number of elements until retention may remove elements that a reader has not read";
        r.register("reader_elements_left", text, self.elements.clone());
        let text = "Time until retention may remove elements that a reader has not read";
        r.register_with_unit("reader_left", text, Unit::Seconds, self.seconds.clone());
        let text = "Elements that were removed before a reader read them";
        r.register("reader_missed_elements", text, self.missed.clone());
    }

    /// Replaces all values; the readers nearest to a loss come first.
    pub(crate) fn measure(&self, readers: Vec<Reader>) {
        self.elements.clear();
        self.seconds.clear();
        self.missed.clear();
        let gauge = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        for reader in readers.into_iter().take(READERS_MAX) {
            let labels = DistanceLabels {
                kind: reader.kind,
                reader: reader.reader,
                stream: reader.stream,
            };
            if let Some(elements) = reader.elements_left {
                self.elements.get_or_create(&labels).set(gauge(elements));
            }
            if let Some(seconds) = reader.seconds_left {
                self.seconds.get_or_create(&labels).set(seconds);
            }
            let missed = gauge(reader.missed_elements);
            self.missed.get_or_create(&labels).set(missed);
        }
    }
}
