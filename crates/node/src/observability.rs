//! Observability of the node: metrics, drops and notices.

use std::sync::Arc;

use chappe_transport::{Drops, Hop};

use crate::completeness::{Ledger, Loss, LossKind};
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
    /// The durable record of losses.
    pub(crate) ledger: Arc<Ledger>,
    limits: Limits,
}

impl Observability {
    /// Starts with empty metrics and notices; `drops` may hold entries from the start of the node.
    pub(crate) fn new(drops: Drops, limits: Limits, ledger: Arc<Ledger>) -> Self {
        Self {
            metrics: Arc::default(),
            drops,
            notices: Notices::default(),
            ledger,
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

    /// Counts lost elements in the metrics and in the record of losses.
    fn count_loss(&self, stream: &str, elements: u64, reason: &'static str) {
        let kind = match reason {
            "does not fit" => LossKind::Refused,
            _ => LossKind::Lost,
        };
        self.count(reason, Loss::now(stream, kind, reason, elements));
    }

    /// Counts a loss in the metrics and in the record of losses.
    pub(crate) fn count(&self, reason: &'static str, loss: Loss) {
        let (stream, elements) = (self.stream_label(&loss.stream), loss.elements);
        self.ledger.note(loss);
        let labels = LostLabels { stream, reason };
        self.metrics.lost.get_or_create(&labels).inc_by(elements);
    }
}
