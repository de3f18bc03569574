//! Observability of the node: metrics, drops and notices.

use std::sync::Arc;

use chappe_transport::{Drops, Hop};

use crate::config::Limits;
use crate::metrics::{LostLabels, Metrics};
use crate::notices::Notices;

/// Metrics, drops and notices of a node.
pub(crate) struct Observability {
    /// Counters and gauges.
    pub(crate) metrics: Arc<Metrics>,
    /// Dropped messages and elements, with the reasons.
    pub(crate) drops: Drops,
    /// Events for operators.
    pub(crate) notices: Notices,
    limits: Limits,
}

impl Observability {
    /// Starts with empty metrics and notices; `drops` may hold entries from the start of the node.
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

    /// Counts elements of a stream that cannot be stored, and records a drop.
    pub(crate) fn record_loss(
        &self,
        stream: &str,
        elements: u64,
        reason: &'static str,
        detail: &str,
    ) {
        self.count_loss(stream, elements, reason);
        self.drops
            .record(Hop::Element, reason, stream, detail.to_owned(), None);
    }

    /// Counts lost elements in the metrics only.
    pub(crate) fn count_loss(&self, stream: &str, elements: u64, reason: &'static str) {
        let stream = self.stream_label(stream);
        let labels = LostLabels { stream, reason };
        self.metrics.lost.get_or_create(&labels).inc_by(elements);
    }
}
