//! Runs the machine of an event sink: sends its requests, answers posted messages, and delivers to subscriptions.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use chappe_dpws::eventing::{EventSink, SinkEvent, SinkReceive, SinkTransmit};
use chappe_identity::CertificateName;
use chappe_machine::{Input, Output};
use chappe_soap::Envelope;
use chappe_transport::Hop;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::delivery::{Delivery, Notification};
use super::sink::{Posted, Sink};
use crate::client::Shared;
use crate::driver::{InputOf, OutputHandler, drive};

/// The time limit for Unsubscribe when the client closes.
const UNSUBSCRIBE_DEADLINE: Duration = Duration::from_secs(1);

/// Handles the outputs of the machine.
pub(super) struct SinkOutputs {
    pub(super) sink: Weak<Sink>,
    pub(super) shared: Weak<Shared>,
    /// A posted notification, whose answer is the next output.
    pub(super) notification: Option<Delivery>,
    pub(super) requests: JoinSet<()>,
}

pub(super) async fn run(
    machine: EventSink,
    inputs: mpsc::Receiver<Option<InputOf<EventSink>>>,
    mut outputs: SinkOutputs,
) {
    drive(machine, inputs, &mut outputs).await;
    if let Some(sink) = outputs.sink.upgrade() {
        sink.state().path_queries.clear();
    }
    // The last requests are Unsubscribes.
    let rest = async { while outputs.requests.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(UNSUBSCRIBE_DEADLINE, rest).await;
}

impl OutputHandler<EventSink> for SinkOutputs {
    fn handle(&mut self, output: Output<SinkTransmit, SinkEvent>) {
        while self.requests.try_join_next().is_some() {}
        let (Some(sink), Some(shared)) = (self.sink.upgrade(), self.shared.upgrade()) else {
            return;
        };
        match output {
            Output::Transmit(SinkTransmit::Request {
                request,
                key,
                envelope,
            }) => {
                let signer = sink.signer(key);
                self.requests.spawn(async move {
                    let answer = send(&shared, &sink, &envelope, signer).await;
                    let answer = SinkReceive::Answer { request, answer };
                    let _ = sink.inputs.send(Some(Input::Receive(answer))).await;
                });
            }
            Output::Transmit(SinkTransmit::Reply { token, reply }) => {
                let notification = self.notification.take();
                let posted = sink.state().posted.remove(&token.0);
                let Some(Posted { answer, slot }) = posted else {
                    return;
                };
                let is_queued = match (notification, slot) {
                    (None, _) => true,
                    (Some(notification), Some(slot)) => slot.put(notification),
                    (Some(_), None) => false,
                };
                // The sender may have closed the connection.
                let _ = answer.send(is_queued.then_some(reply));
            }
            Output::Event(SinkEvent::Tree {
                key,
                offer,
                actions,
            }) => {
                let tree = sink.state().trees.get(&key).map(Arc::clone);
                if let Some(tree) = tree {
                    tree.join(&sink, key, &offer, &actions, &shared.drops);
                }
            }
            Output::Event(SinkEvent::Ignored { key }) => {
                shared.tree_counters.duplicate();
                if let Some(inbox) = sink.inbox(key) {
                    inbox.deliver_spread(None);
                }
            }
            Output::Event(event) => self.handle_event(&sink, &shared, event),
        }
    }

    fn on_drained(&mut self, machine: &EventSink) {
        if let Some(sink) = self.sink.upgrade() {
            sink.answer_paths(machine);
        }
    }
}

impl SinkOutputs {
    fn handle_event(&mut self, sink: &Arc<Sink>, shared: &Shared, event: SinkEvent) {
        let (key, delivery) = match event {
            SinkEvent::Subscribed { key, granted } => (key, Delivery::Subscribed { granted }),
            SinkEvent::Renewed { key, granted } => (key, Delivery::Renewed { granted }),
            SinkEvent::Ended { key, reason } => {
                let tree = sink.state().trees.get(&key).map(Arc::clone);
                if let Some(tree) = tree {
                    tree.leave(sink, key);
                }
                (key, Delivery::Ended(reason))
            }
            SinkEvent::Notification {
                key,
                action,
                body,
                by_tree,
            } => {
                let notification = Delivery::Notification(Notification {
                    action: action.into_owned(),
                    body,
                    received_at: SystemTime::now(),
                });
                if !by_tree {
                    self.notification = Some(notification);
                } else if let Some(inbox) = sink.inbox(key) {
                    inbox.deliver_spread(Some(notification));
                }
                return;
            }
            SinkEvent::Trouble { key, reason, hint } => {
                let detail = reason.to_string();
                let (what, hint_text) = ("subscription in trouble", hint.map(str::to_owned));
                shared
                    .drops
                    .record(Hop::Event, what, "", detail.clone(), hint_text);
                (key, Delivery::Trouble { detail, hint })
            }
            SinkEvent::Refused { peer, reason } => {
                let detail = format!("{reason:?}");
                let what = "notification refused";
                shared
                    .drops
                    .record(Hop::Event, what, peer.ip(), detail, None);
                return;
            }
            _ => return,
        };
        if let Some(inbox) = sink.inbox(key) {
            inbox.send(delivery);
        }
    }
}

/// Sends a request of the machine.
async fn send(
    shared: &Shared,
    sink: &Sink,
    envelope: &Envelope,
    signer: Option<CertificateName>,
) -> Result<Box<Envelope>, chappe_xml::Str> {
    let to = envelope.addressing.to.as_deref().unwrap_or_default();
    // The machine had the address checked.
    let contact = shared.known.contact(to);
    let mut contact = contact.map_err(|refusal| refusal.to_string())?;
    if let SocketAddr::V6(address) = &mut contact.address {
        let zones = &sink.state().zones;
        address.set_scope_id(zones.get(address.ip()).copied().unwrap_or(0));
    }
    let signing = shared.options.signing.as_ref();
    let http = &shared.http;
    let answer = http.exchange_signed(&contact, envelope, signing, signer.as_ref());
    match answer.await.map(|answer| answer.envelope) {
        Ok(Some(answer)) => Ok(Box::new(answer)),
        Ok(None) => Err("the device answered without a message".into()),
        Err(error) => Err(error.to_string().into()),
    }
}
