//! Reads old files of both logs again, slowly, and tells of damage before somebody needs what is
//! damaged.

use std::time::Duration;

use chappe_log::Store;

use crate::notices::NoticeKind;
use crate::shared::{App, ended};

/// How often a piece is read.
const PERIOD: Duration = Duration::from_secs(1);

/// Reads until the node ends; at once none when `log.scrub_bytes_per_s` is 0.
pub(crate) async fn watch(app: App) {
    let budget = app.config.log.scrub_bytes_per_s;
    if budget == 0 {
        return;
    }
    let mut drain = app.drain.clone();
    loop {
        tokio::select! {
            () = ended(&mut drain) => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        for (name, store) in [("log", &app.store), ("registry", &app.registry_store)] {
            step(&app, name, store.clone(), budget).await;
        }
    }
}

/// Reads one piece, and tells what is damaged in it.
async fn step(app: &App, name: &str, store: Store, budget: u64) {
    let scrubbed = tokio::task::spawn_blocking(move || store.scrub(budget)).await;
    match scrubbed {
        Ok(Ok(scrubbed)) => {
            for range in scrubbed.corrupt {
                app.notices
                    .tell(NoticeKind::Health, name, crate::node::damage(&range));
            }
        }
        Ok(Err(error)) => tracing::warn!(%error, log = name, "old files cannot be read"),
        // The node ends.
        Err(_) => {}
    }
}
