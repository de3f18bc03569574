//! Looks after the node itself: tells when the log stops or the disk is full, compacts the registry,
//! lets go of what streams are not meant to keep.

use std::time::Duration;

use crate::catalogue::{ABANDONED_LOOK, Abandoned};
use crate::clock;
use crate::notices::NoticeKind;
use crate::shared::App;
use crate::tasks::ended;

/// How often it looks.
const PERIOD: Duration = Duration::from_secs(1);

/// What streams are not meant to keep is looked at in the first of so many looks: soon after the
/// start, however often the node is started, and each minute.
const RETAIN_LOOKS: u64 = 60;

/// Looks until the node ends.
pub(crate) async fn watch(app: App) {
    let mut drain = app.drain.clone();
    let mut told: Vec<String> = Vec::new();
    let mut abandoned = Abandoned::open(&app.config.data_directory);
    let age = Duration::from_secs(app.config.log.remove_abandoned_s);
    for look in 1_u64.. {
        tokio::select! {
            () = ended(&mut drain) => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        let reasons = app.reasons_not_ready();
        if reasons != told && !*drain.borrow() {
            let text = match reasons.as_slice() {
                [] => "takes data again".to_owned(),
                reasons => format!("takes no data: {}", reasons.join("; ")),
            };
            app.observability
                .notices
                .tell(NoticeKind::Health, &app.identity.name, text);
            told = reasons;
        }
        if app.registry.needs_compaction() {
            let registry = app.registry.clone();
            let compacted = tokio::task::spawn_blocking(move || registry.compact()).await;
            if let Ok(Err(error)) = compacted {
                tracing::warn!(%error, "the registry could not be compacted");
            }
        }
        // A stream that is to go sooner is looked for more often.
        let pause = ABANDONED_LOOK.min(age).as_secs().max(1);
        if !age.is_zero() && look.is_multiple_of(pause) {
            abandoned.look(&app, age).await;
        }
        if look % RETAIN_LOOKS == 1 {
            let node = app.clone();
            let _ = tokio::task::spawn_blocking(move || node.catalogue.retain(clock::now())).await;
        }
    }
}
