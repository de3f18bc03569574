//! Reads the closed segments of both logs again, slowly, so that damage is known before the damaged
//! records are needed.

use std::sync::Arc;
use std::time::Duration;

use chappe_log::Store;
use tokio::sync::watch;

use crate::notices::NoticeKind;
use crate::observability::Observability;
use crate::tasks::ended;

/// Pause between two reads.
const PERIOD: Duration = Duration::from_secs(1);

/// Reads `bytes_per_s` of each log until the node ends; returns at once when that is 0.
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
            () = ended(&mut drain) => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        for (name, log) in &logs {
            read(name, log.clone(), bytes_per_s, &observability).await;
        }
    }
}

/// Reads one piece of a log, and shows its damage as notices.
async fn read(name: &str, log: Store, bytes: u64, observability: &Observability) {
    let scrubbed = tokio::task::spawn_blocking(move || log.scrub(bytes)).await;
    match scrubbed {
        Ok(Ok(scrubbed)) => {
            for range in scrubbed.corrupt {
                let text = crate::storage::damage(&range);
                observability.notices.tell(NoticeKind::Health, name, text);
            }
        }
        Ok(Err(error)) => tracing::warn!(%error, log = name, "closed segments cannot be read"),
        // The node ends.
        Err(_) => {}
    }
}
