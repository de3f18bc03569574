//! Subscriptions by contact point outlive restarts of the origin: the host keeps them, with how far
//! each was read.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use chappe_stream::Position;
use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;

use crate::handle::{Links, Shared};
use crate::{HttpRefusal, LinkHost, LinkStart, Reader, Serialization};

use super::SubscriptionRequest;
use super::push::{Pushes, new_secret};

/// How long a change waits for others before it is kept; what was sent within it may come again after
/// a crash of the origin.
const KEEP_PAUSE: Duration = Duration::from_secs(2);

/// A subscription as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSubscription {
    /// Its id.
    pub id: String,
    /// Its subscriber's secret; empty in files that were written before there was one.
    #[serde(default)]
    pub secret: String,
    /// The stream.
    pub stream: String,
    /// Where its elements go.
    pub contact_point: String,
    /// The fingerprint of the certificate there.
    #[serde(default)]
    pub fingerprint: Option<String>,
    /// Who asked for it.
    pub reader: SocketAddr,
    /// Everything up to here is there.
    pub after: Position,
    /// How elements are written.
    pub serialization: Serialization,
}

impl Links {
    /// Makes the subscriptions that were there before the restart; each has its whole lease again.
    /// Those that cannot be made are dropped, and the host is told. Call it within a runtime.
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
            true => new_secret(&*self.shared().host),
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

impl Pushes {
    /// Hands what is to be kept to the host; nothing more after the last time.
    pub(super) fn keep(&self, host: &dyn LinkHost, last: bool) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if !*ended {
            *ended = last;
            host.keep_subscriptions(&self.kept());
        }
    }
}
