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
const FULL_PAUSE: Duration = Duration::from_millis(500);

/// Stores batches of several streams and waits until all are acknowledged.
///
/// While the disk is full it waits, so that the sender does; what cannot be stored at all is
/// counted as lost, with the reason.
pub(crate) async fn store(app: &App, batches: Vec<(Arc<Entry>, Vec<StreamElement>)>) {
    let mut offered = Vec::with_capacity(batches.len());
    for (entry, mut elements) in batches {
        if let Some(appended) = append(app, &entry, &mut elements).await {
            offered.push((entry, elements, appended));
        }
    }
    for (entry, mut elements, appended) in offered {
        let mut appended = Some(appended);
        while let Some(pending) = appended.take() {
            match pending.await {
                Ok(()) => {}
                Err(Error::Full { .. }) if !*app.drain.borrow() => {
                    tokio::time::sleep(FULL_PAUSE).await;
                    appended = append(app, &entry, &mut elements).await;
                }
                Err(error) => {
                    let count = elements.len() as u64;
                    lost(app, &entry, count, "not acknowledged", &error.to_string());
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

fn lost(app: &App, entry: &Entry, count: u64, reason: &'static str, detail: &str) {
    let stream = app.metrics.stream_label(&entry.name, &app.config.limits);
    let labels = LostLabels { stream, reason };
    app.metrics.lost.get_or_create(&labels).inc_by(count);
    app.drops
        .record(Hop::Element, reason, &entry.name, detail.to_owned(), None);
}
