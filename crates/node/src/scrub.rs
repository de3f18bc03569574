//! Slowly re-reads the closed segments of both logs, to find damage before the records are needed.

use std::sync::Arc;
use std::time::Duration;

use chappe_log::Store;
use tokio::sync::watch;

use crate::notices::NoticeKind;
use crate::observability::Observability;
use crate::tasks::shutdown;

/// Pause between two reads.
const PERIOD: Duration = Duration::from_secs(1);

/// Reads `bytes_per_s` of each log until the node shuts down; returns at once when that is 0.
pub(crate) async fn watch(
    logs: [(&'static str, Store); 2],
    bytes_per_s: u64,
    observability: Arc<Observability>,
    mut drain: watch::Receiver<bool>,
) {
    if bytes_per_s == 0 {
        return;
    }
    loop {
        tokio::select! {
            () = shutdown(&mut drain) => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        for (name, log) in &logs {
            read(name, log.clone(), bytes_per_s, &observability).await;
        }
    }
}

/// Reads one piece of a log, and reports its damage as notices.
async fn read(name: &str, log: Store, bytes: u64, observability: &Observability) {
    let scrubbed = tokio::task::spawn_blocking(move || log.scrub(bytes)).await;
    match scrubbed {
        Ok(Ok(scrubbed)) => {
            for range in scrubbed.corrupt {
                let text = crate::storage::describe_damage(&range);
                observability.notices.notify(NoticeKind::Health, name, text);
            }
        }
        Ok(Err(error)) => tracing::warn!(%error, log = name, "cannot read closed segments"),
        // The node shuts down.
        Err(_) => {}
    }
}
