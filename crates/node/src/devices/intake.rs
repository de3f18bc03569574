//! The way of elements into the log: in batches, acknowledged, and nothing given up silently.

use std::sync::Arc;
use std::time::Duration;

use chappe_log::Error;
use chappe_stream::{StoreError, StreamElement};
use chappe_transport::Hop;

use crate::catalogue::Entry;
use crate::metrics::LostLabels;
use crate::shared::App;

/// Pause before a full disk is tried again; meanwhile whoever sends waits.
pub(crate) const FULL_PAUSE: Duration = Duration::from_millis(500);

/// Stores batches of several streams and waits until all are acknowledged.
///
/// While the disk is full it waits, so that the sender does; what cannot be stored at all is
/// counted as lost, with the reason.
pub(crate) async fn store(app: &App, batches: Vec<(Arc<Entry>, Vec<StreamElement>)>) {
    let mut all = Vec::with_capacity(batches.len());
    for (entry, elements) in batches {
        all.extend(offer(app, entry, elements).await);
    }
    for offered in all {
        offered.settle(app).await;
    }
}

/// A batch on its way into the log.
struct Offered {
    entry: Arc<Entry>,
    elements: Vec<StreamElement>,
    appended: chappe_log::Appended,
}

/// Hands a batch to the log; waits only where [`store`] would before it. The next batch of the same
/// stream is offered when this one has settled, so that their order stays.
async fn offer(app: &App, entry: Arc<Entry>, mut elements: Vec<StreamElement>) -> Option<Offered> {
    let appended = append(app, &entry, &mut elements).await?;
    Some(Offered {
        entry,
        elements,
        appended,
    })
}

impl Offered {
    /// Waits until it is acknowledged, or lost and counted.
    async fn settle(mut self, app: &App) {
        let mut appended = Some(self.appended);
        while let Some(pending) = appended.take() {
            match pending.await {
                Ok(()) => {}
                Err(Error::Full { .. }) if !*app.drain.borrow() => {
                    tokio::time::sleep(FULL_PAUSE).await;
                    appended = append(app, &self.entry, &mut self.elements).await;
                }
                Err(error) => {
                    let (count, error) = (self.elements.len() as u64, error.to_string());
                    lost(app, &self.entry, count, "not acknowledged", &error);
                }
            }
        }
    }
}

/// Hands elements to the log, without those that do not fit.
async fn append(
    app: &App,
    entry: &Entry,
    elements: &mut Vec<StreamElement>,
) -> Option<chappe_log::Appended> {
    while !elements.is_empty() {
        match entry.append(elements).await {
            Ok(appended) => return Some(appended),
            Err(StoreError::Element { index, error }) if index < elements.len() => {
                elements.remove(index);
                lost(app, entry, 1, "does not fit", &error.to_string());
            }
            Err(StoreError::Log(Error::Full { .. })) if !*app.drain.borrow() => {
                tokio::time::sleep(FULL_PAUSE).await;
            }
            Err(error) => {
                let count = elements.len() as u64;
                lost(app, entry, count, "not stored", &error.to_string());
                return None;
            }
        }
    }
    None
}

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
