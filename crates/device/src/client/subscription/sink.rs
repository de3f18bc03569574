//! The handle on one event sink: its subscriptions, and the messages that its machine is processing.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chappe_dpws::eventing::message::action::SUBSCRIPTION_END;
use chappe_dpws::eventing::{EventSink, SinkCommand, SinkReceive, SubscriptionKey, Token};
use chappe_dpws::exchange::Reply;
use chappe_identity::CertificateName;
use chappe_machine::Input;
use chappe_soap::Envelope;
use chappe_transport::Drops;
use tokio::sync::{mpsc, oneshot};

use crate::client::inbox::{Inbox, QueueSlot};
use crate::client::tree::TreeNode;
use crate::driver::InputOf;

/// One event sink and the state of its driver.
pub(in crate::client) struct Sink {
    pub(in crate::client) inputs: mpsc::Sender<Option<InputOf<EventSink>>>,
    pub(in crate::client) path: &'static str,
    pub(super) state: Mutex<State>,
}

/// A message that the machine is processing.
pub(super) struct Posted {
    /// Receives the answer; `None` if the notification has no reader any longer.
    pub(super) answer: oneshot::Sender<Option<Reply>>,
    /// The reserved room, if the message may be a notification.
    pub(super) slot: Option<QueueSlot>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) receivers: HashMap<SubscriptionKey, Arc<Inbox>>,
    /// The hosts of the subscriptions.
    pub(super) hosts: HashMap<SubscriptionKey, IpAddr>,
    /// The certificates that have to sign the messages of subscriptions.
    pub(super) signers: HashMap<SubscriptionKey, CertificateName>,
    /// The nodes of notification trees that subscriptions may use.
    pub(super) trees: HashMap<SubscriptionKey, Arc<TreeNode>>,
    /// Open queries for the subscription at a path. At most one for each request being served.
    pub(super) path_queries: Vec<(String, oneshot::Sender<Option<SubscriptionKey>>)>,
    /// Posted messages without an answer yet. At most one for each request being served.
    pub(super) posted: HashMap<u64, Posted>,
    next_token: u64,
    /// The interfaces of link-local devices, which addresses in messages do not name.
    pub(super) zones: HashMap<Ipv6Addr, u32>,
}

impl Sink {
    /// The queue of a subscription, while it is open.
    pub(in crate::client) fn inbox(&self, key: SubscriptionKey) -> Option<Arc<Inbox>> {
        self.state().receivers.get(&key).map(Arc::clone)
    }

    /// Ends all receivers.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.posted.clear();
        state
            .receivers
            .drain()
            .for_each(|(_, inbox)| inbox.reject_all());
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The certificate that has to sign the messages of a subscription.
    pub(in crate::client) fn signer(&self, key: SubscriptionKey) -> Option<CertificateName> {
        self.state().signers.get(&key).cloned()
    }

    pub(super) async fn command(&self, command: SinkCommand) {
        // If the machine has ended, the client and its subscriptions are closed.
        let _ = self.inputs.send(Some(Input::Command(command))).await;
    }

    /// The subscription at this path.
    pub(in crate::client) async fn subscription_at(&self, path: &str) -> Option<SubscriptionKey> {
        let (answer, answered) = oneshot::channel();
        self.state().path_queries.push((path.to_owned(), answer));
        // Paths are looked up after each input of the machine; this input changes nothing.
        if self.inputs.send(Some(Input::Timeout)).await.is_err() {
            self.state().path_queries.clear();
        }
        answered.await.ok().flatten()
    }

    pub(super) fn answer_paths(&self, machine: &EventSink) {
        let asked = std::mem::take(&mut self.state().path_queries);
        for (path, answer) in asked {
            // The connection may be closed.
            let _ = answer.send(machine.subscription_at(&path));
        }
    }

    /// Gives the machine a posted message once there is room for it, and returns the answer; `None` if its
    /// subscription has ended. `key` is the subscription at the path.
    pub(in crate::client) async fn post(
        &self,
        (peer, drops): (SocketAddr, &Drops),
        (path, key): (String, Option<SubscriptionKey>),
        envelope: Envelope,
    ) -> Option<Reply> {
        let mut slot = None;
        // SubscriptionEnd is not a notification, and its device may not wait for long.
        if let Some(key) = key
            && envelope.addressing.action != SUBSCRIPTION_END
        {
            let inbox = self.inbox(key)?;
            slot = Some(inbox.reserve(envelope.body(), (peer.ip(), drops)).await?);
        }
        // No await between here and the machine, so that a sender that hangs up leaves no state.
        let input = self.inputs.reserve().await.ok()?;
        let (answer, answered) = oneshot::channel();
        let token = {
            let mut state = self.state();
            state.next_token += 1;
            let token = state.next_token;
            state.posted.insert(token, Posted { answer, slot });
            token
        };
        input.send(Some(Input::Receive(SinkReceive::Posted {
            token: Token(token),
            peer,
            path: path.into(),
            envelope: Box::new(envelope),
        })));
        answered.await.ok()?
    }
}
