//! Elements that cannot be stored: each is counted, with the reason.

use std::time::Duration;

use chappe_transport::Hop;

use crate::catalogue::Entry;
use crate::metrics::LostLabels;
use crate::shared::App;

/// Pause before a full disk is tried again; meanwhile the sender waits.
pub(crate) const FULL_PAUSE: Duration = Duration::from_millis(500);

/// Counts elements that will never be stored.
pub(crate) fn lost(app: &App, entry: &Entry, count: u64, reason: &'static str, detail: &str) {
    lost_of(app, &entry.name, count, reason, detail);
}

/// As [`lost`], of a stream that there may not be.
pub(crate) fn lost_of(app: &App, name: &str, count: u64, reason: &'static str, detail: &str) {
    let stream = app.metrics.stream_label(name, &app.config.limits);
    let labels = LostLabels { stream, reason };
    app.metrics.lost.get_or_create(&labels).inc_by(count);
    app.drops
        .record(Hop::Element, reason, name, detail.to_owned(), None);
}
