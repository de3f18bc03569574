//! Subscriptions by contact point survive restarts of the origin: the host stores them with their
//! read positions.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use super::SubscriptionRequest;
use super::secret;
use crate::handle::Links;
use crate::host::KeptSubscription;
use crate::shared::Shared;
use crate::{HttpRefusal, LinkStart, Reader};

/// How long changes are collected before they are stored; elements sent within this time may be
/// sent again after a crash of the origin.
const KEEP_PAUSE: Duration = Duration::from_secs(2);

impl Links {
    /// Restores the subscriptions from before a restart, each with a full lease. Those that cannot
    /// be restored are dropped and reported to the host. Requires a runtime.
    pub fn http_restore(&self, kept: Vec<KeptSubscription>) {
        for subscription in kept {
            let peer = subscription.contact_point.clone();
            if let Err(refusal) = self.restore(subscription) {
                let (text, hint) = (refusal.text, refusal.hint);
                let host = &self.shared().host;
                host.dropped("subscription not restored", &peer, text, hint);
            }
        }
    }

    fn restore(&self, kept: KeptSubscription) -> Result<(), HttpRefusal> {
        let reader = Reader {
            address: Some(kept.reader),
            key: None,
            account: kept.account,
        };
        let request = SubscriptionRequest {
            stream: kept.stream,
            contact_point: kept.contact_point,
            fingerprint: kept.fingerprint,
            after: Some(kept.after.to_string()),
            earlier: Vec::new(),
            start: LinkStart::First,
            serialization: kept.serialization,
        };
        let wanted = self.wanted(&request, &reader)?;
        let secret = match kept.secret.is_empty() {
            // Its subscriber does not know the new secret, and subscribes again.
            true => secret::new(&*self.shared().host),
            false => kept.secret,
        };
        self.begin(
            wanted,
            &request,
            (kept.reader, reader.account),
            kept.id,
            secret,
        );
        Ok(())
    }
}

/// Passes changes to the host, and ends subscriptions with expired leases, until the links end. It
/// owns only the subscriptions.
pub(super) fn keeper(shared: &Arc<Shared>) -> AbortHandle {
    let (pushes, host) = (shared.pushes.clone(), shared.host.clone());
    let task = tokio::spawn(async move {
        loop {
            tokio::select! {
                () = pushes.news.notified() => tokio::time::sleep(KEEP_PAUSE).await,
                () = pushes.lease_over() => {
                    pushes.expire();
                    continue;
                }
            }
            let (pushes, host) = (pushes.clone(), host.clone());
            // The host writes a file.
            let kept = tokio::task::spawn_blocking(move || pushes.keep(&*host, false));
            if kept.await.is_err() {
                return;
            }
        }
    });
    task.abort_handle()
}
