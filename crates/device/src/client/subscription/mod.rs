//! Subscriptions to the events of devices.

mod delivery;
mod outputs;
mod sink;
mod sinks;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use chappe_dpws::eventing::{SinkCommand, Source, SubscriptionKey};
use chappe_transport::route_source;

use super::inbox::{self, QueueLimits, QueueReader};
use super::{DeviceClient, HostedService, Shared};
use crate::Error;

pub use delivery::{Delivery, Notification};
pub(super) use sink::Sink;
pub(super) use sinks::Sinks;

/// The requested lease; devices may grant less.
const LEASE: Duration = Duration::from_secs(600);

/// A subscription; it ends when it is closed or dropped.
///
/// When the limit on waiting notifications or their bytes is reached, devices wait for their answers.
pub struct Subscription {
    key: SubscriptionKey,
    reader: QueueReader,
    sink: Arc<Sink>,
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription")
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl Subscription {
    /// The next delivery; `None` after the client has closed.
    pub async fn next(&mut self) -> Option<Delivery> {
        let queued = self.reader.queue.recv().await?;
        Some(queued.delivery)
    }

    /// Like [`Subscription::next`], for polling several.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let queued = ready!(self.reader.queue.poll_recv(context));
        Poll::Ready(queued.map(|queued| queued.delivery))
    }

    /// Asks the device, which may have restarted, whether it still has the subscription.
    pub async fn verify(&self) {
        self.sink
            .command(SinkCommand::Verify { key: self.key })
            .await;
    }

    /// Unsubscribes. Events that have arrived are still delivered and acknowledged; then `None` follows.
    /// Later ones are refused.
    pub fn close(&mut self) {
        if self.end() {
            self.reader.admit_all();
        }
    }

    /// Stops accepting events, and unsubscribes once the arrived ones are read; false if it has ended
    /// before.
    fn end(&mut self) -> bool {
        let mut state = self.sink.state();
        if state.receivers.remove(&self.key).is_none() {
            return false;
        }
        state.hosts.remove(&self.key);
        state.signers.remove(&self.key);
        // The last tree events have no reader.
        if let Some(tree) = state.trees.remove(&self.key) {
            tree.leave(&self.sink, self.key);
        }
        true
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.end();
        // A device whose event waits for room learns that it is not received.
        self.reader.reject_all();
    }
}

impl DeviceClient {
    /// Subscribes to events of a service by their actions; an empty list means all events of its WSDL.
    ///
    /// The subscription is kept alive, and renewed if the device loses it, until it is dropped.
    ///
    /// # Errors
    /// The service has no events, or notifications cannot be received on the address that reaches the
    /// device. Answers of the device arrive as a [`Delivery`].
    pub async fn subscribe(
        &self,
        service: &HostedService,
        actions: &[String],
    ) -> Result<Subscription, Error> {
        let actions = match actions {
            [] => service.events(),
            actions => actions.to_vec(),
        };
        let shared = &self.shared;
        let peer = service.contact.address;
        let local = route_source(peer).map_err(|source| Error::Listen { at: None, source })?;
        let (sink, base, tree, key) = {
            let mut sinks = shared.sinks.lock().unwrap_or_else(PoisonError::into_inner);
            let sink = sinks.sink(shared, service.dialect)?;
            let base = sinks.base(shared, local, &service.contact)?;
            let tree = sinks.tree(shared, local)?;
            sinks.next_key += 1;
            (sink, base, tree, SubscriptionKey(sinks.next_key))
        };
        shared.schemas.add(&service.exi_schema);
        let limits = QueueLimits {
            notifications: shared.options.notifications_max,
            bytes: shared.options.notifications_bytes,
        };
        let (inbox, reader) = inbox::queue(key, limits, sink.inputs.clone());
        {
            let mut state = sink.state();
            state.receivers.insert(key, inbox);
            state.hosts.insert(key, peer.ip());
            if let Some(signer) = &service.signer {
                state.signers.insert(key, signer.clone());
            }
            if let Some(tree) = &tree {
                state.trees.insert(key, Arc::clone(tree));
            }
            if let SocketAddr::V6(peer) = peer {
                state.zones.insert(*peer.ip(), peer.scope_id());
            }
        }
        let source = Source {
            endpoint: service.endpoint.clone(),
            peer,
            actions: actions.into_iter().map(Into::into).collect(),
            lease: LEASE,
            base: base.into(),
            tree: tree.map(|tree| tree.sink),
        };
        let source = Box::new(source);
        sink.command(SinkCommand::Subscribe { key, source }).await;
        Ok(Subscription { key, reader, sink })
    }
}

impl Shared {
    /// Asks a host, which may have restarted, whether it still has its subscriptions.
    pub(super) async fn verify(&self, host: IpAddr) {
        let sinks = || self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut doubted = Vec::new();
        {
            let mut sinks = sinks();
            // A flood of Hellos must not become a queue of tasks.
            if !sinks.verifying.insert(host) {
                return;
            }
            for (sink, _) in sinks.by_dialect.values() {
                let state = sink.state();
                let keys = state.hosts.iter().filter(|(_, at)| **at == host);
                doubted.extend(keys.map(|(key, _)| (Arc::clone(sink), *key)));
            }
        }
        for (sink, key) in doubted {
            sink.command(SinkCommand::Verify { key }).await;
        }
        sinks().verifying.remove(&host);
    }
}
