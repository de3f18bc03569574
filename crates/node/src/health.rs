//! Maintenance of the node: reports when the log stops or the disk is full, compacts the registry,
//! applies retention, removes abandoned streams.

use std::time::Duration;

use crate::catalogue::{ABANDONED_CHECK_PERIOD, Abandoned};
use crate::clock;
use crate::notices::NoticeKind;
use crate::shared::App;
use crate::tasks::shutdown;

/// Time between two checks.
const PERIOD: Duration = Duration::from_secs(1);

/// Retention is applied in the first of this many checks: soon after each start, even if the node is
/// often restarted, and then every minute.
const RETENTION_INTERVAL: u64 = 60;

/// Runs the checks until the node shuts down.
pub(crate) async fn watch(app: App) {
    let mut drain = app.drain.clone();
    let mut notified: Vec<String> = Vec::new();
    let mut abandoned = Abandoned::open(&app.config.data_directory);
    let age = Duration::from_secs(app.config.log.remove_abandoned_s);
    for check in 1_u64.. {
        tokio::select! {
            () = shutdown(&mut drain) => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        let reasons = app.reasons_not_ready();
        if reasons != notified && !*drain.borrow() {
            let text = match reasons.as_slice() {
                [] => "accepts data again".to_owned(),
                reasons => format!("does not accept data: {}", reasons.join("; ")),
            };
            app.observability
                .notices
                .notify(NoticeKind::Health, &app.identity.name, text);
            notified = reasons;
        }
        if app.registry.needs_compaction() {
            let registry = app.registry.clone();
            let compacted = tokio::task::spawn_blocking(move || registry.compact()).await;
            if let Ok(Err(error)) = compacted {
                tracing::warn!(%error, "cannot compact the registry");
            }
        }
        // A shorter age is checked more often.
        let pause = ABANDONED_CHECK_PERIOD.min(age).as_secs().max(1);
        if !age.is_zero() && check.is_multiple_of(pause) {
            abandoned.check(&app, age).await;
        }
        if check % RETENTION_INTERVAL == 1 {
            let node = app.clone();
            let _ = tokio::task::spawn_blocking(move || node.catalogue.retain(clock::now())).await;
        }
    }
}
