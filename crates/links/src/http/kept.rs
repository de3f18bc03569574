//! Subscriptions by contact point outlive restarts of the origin: the host keeps them, with how far
//! each was read.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use super::SubscriptionRequest;
use super::secret;
use crate::handle::Links;
use crate::host::KeptSubscription;
use crate::shared::Shared;
use crate::{HttpRefusal, LinkStart, Reader};

/// How long a change waits for others before it is kept; what was sent within it may come again after
/// a crash of the origin.
const KEEP_PAUSE: Duration = Duration::from_secs(2);

impl Links {
    /// Makes the subscriptions that were there before the restart; each has its whole lease again.
    /// Those that cannot be made are dropped and reported to the host. Call it within a runtime.
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
            // Its subscriber cannot know the new one, and subscribes again.
            true => secret::new(&*self.shared().host),
            false => kept.secret,
        };
        self.begin(wanted, &request, kept.reader, kept.id, secret);
        Ok(())
    }
}

/// Hands changes to the host, and ends subscriptions whose lease is over, until the links end. It holds
/// nothing but what is to be kept.
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
            // It writes a file.
            let kept = tokio::task::spawn_blocking(move || pushes.keep(&*host, false));
            if kept.await.is_err() {
                return;
            }
        }
    });
    task.abort_handle()
}
