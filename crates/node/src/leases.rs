//! Leases of the registry: the node removes entities whose leases are over, and renews those of the devices
//! that it has found.

use std::time::Duration;

use tokio::time::Instant;

use crate::registrar::FOUND_LEASE_S;
use crate::shared::App;
use crate::tasks::shutdown;

/// Time between two looks at the leases. A lease counts seconds, and starts with the next look.
const PERIOD: Duration = Duration::from_millis(500);
/// Time between two renewals of the leases of found devices, a third of their length: two may fail.
const RENEWAL_PERIOD: Duration = Duration::from_secs(FOUND_LEASE_S as u64 / 3);

/// Ends and renews leases until the node shuts down. The time is that of a monotonic clock: a step of
/// the wall clock changes nothing.
pub(crate) async fn watch(app: App) {
    let mut drain = app.drain.clone();
    let started = Instant::now();
    let mut renewed = started;
    let mut failure = None;
    loop {
        tokio::select! {
            () = shutdown(&mut drain) => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        if renewed.elapsed() >= RENEWAL_PERIOD {
            // While the journal refuses renewals, nothing ends: when it accepts changes again, the renewals
            // come first.
            if !app.registrar.renew_found().await {
                continue;
            }
            renewed = Instant::now();
        }
        // Time during which the store cannot be reached does not count: nobody could renew.
        if (app.registry_outage)().is_some() {
            continue;
        }
        let registry = app.registry.clone();
        let now = started.elapsed();
        // Reading and appending may wait for the store.
        let looked = tokio::task::spawn_blocking(move || registry.expire(now)).await;
        let Ok(looked) = looked else { continue };
        let reason = match looked {
            Ok(expiry) => {
                let mut reason = None;
                for (key, removal) in expiry.removals {
                    match removal.await {
                        Ok(_) => tracing::info!(%key, "removed: its lease is over"),
                        // Another node was faster; what is over is removed at the next look.
                        Err(error) if error.is_conflict() => {}
                        Err(error) => reason = Some(error.to_string()),
                    }
                }
                reason
            }
            Err(error) => Some(error.to_string()),
        };
        // A lasting failure is reported once; /ready says it as well.
        if let Some(reason) = &reason
            && failure.as_ref() != Some(reason)
        {
            tracing::warn!(%reason, "cannot end leases");
        }
        failure = reason;
    }
}
