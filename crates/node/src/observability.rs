//! How operators see the node: metrics, drops and notices.

use std::sync::Arc;

use chappe_transport::{Drops, Hop};

use crate::config::Limits;
use crate::metrics::{LostLabels, Metrics};
use crate::notices::Notices;

/// Metrics, drops and notices of a node.
pub(crate) struct Observability {
    /// Counters and gauges.
    pub(crate) metrics: Arc<Metrics>,
    /// Everything that was dropped, with the reason.
    pub(crate) drops: Drops,
    /// Events for operators.
    pub(crate) notices: Notices,
    limits: Limits,
}

impl Observability {
    /// Without metrics and notices; `drops` may hold some from before the start.
    pub(crate) fn new(drops: Drops, limits: Limits) -> Self {
        Self {
            metrics: Arc::default(),
            drops,
            notices: Notices::default(),
            limits,
        }
    }

    /// The label of a stream in metrics: its name, or `other` beyond `limits.metric_streams`.
    pub(crate) fn stream_label(&self, stream: &str) -> String {
        self.metrics.stream_label(stream, &self.limits)
    }

    /// Counts elements of a stream that cannot be stored, and shows them as a drop.
    pub(crate) fn lost(&self, stream: &str, elements: u64, reason: &'static str, detail: &str) {
        self.count_lost(stream, elements, reason);
        self.drops
            .record(Hop::Element, reason, stream, detail.to_owned(), None);
    }

    /// Counts lost elements in the metrics alone.
    pub(crate) fn count_lost(&self, stream: &str, elements: u64, reason: &'static str) {
        let stream = self.stream_label(stream);
        let labels = LostLabels { stream, reason };
        self.metrics.lost.get_or_create(&labels).inc_by(elements);
    }
}
