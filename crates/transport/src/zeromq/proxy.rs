//! Connects remote publishers to a local one, like XSUB and XPUB (29/PUBSUB).

use std::collections::BTreeSet;

use bytes::Bytes;
use tokio::task::AbortHandle;

use super::{Publisher, Subscriber};

/// Forwards the subscriptions of a [`Publisher`] to remote publishers, and their messages to its subscribers: a stream
/// flows only if it has a subscriber.
///
/// Publishers in this process need no proxy: they are clones of the [`Publisher`]. Dropping the proxy ends the
/// forwarding.
#[derive(Debug)]
pub struct Proxy {
    tasks: Vec<AbortHandle>,
}

impl Proxy {
    /// Forwards between `publisher` and these, which should be connected without prefixes.
    #[must_use]
    pub fn new(publisher: &Publisher, elsewhere: impl IntoIterator<Item = Subscriber>) -> Self {
        let forward = |upstream| tokio::spawn(forward(publisher.clone(), upstream)).abort_handle();
        Self {
            tasks: elsewhere.into_iter().map(forward).collect(),
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

async fn forward(publisher: Publisher, mut upstream: Subscriber) {
    let mut changes = publisher.changes();
    changes.mark_changed();
    let mut wanted = BTreeSet::<Bytes>::new();
    loop {
        tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
                let now: BTreeSet<Bytes> = publisher.subscriptions().into_iter().collect();
                for prefix in now.difference(&wanted) {
                    upstream.subscribe(prefix.clone()).await;
                }
                for prefix in wanted.difference(&now) {
                    upstream.cancel(prefix.clone()).await;
                }
                wanted = now;
            }
            message = upstream.recv() => {
                publisher.publish_message(&message);
            }
        }
    }
}
