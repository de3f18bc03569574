//! Presence by WS-Eventing: subscribers get each Hello and Bye of the devices that the proxy offers.
//!
//! This is the form of discovery proxies in IHE SDPi. A filter lists the actions Hello and Bye of one dialect or
//! both, or is the empty one of the prototype at HL7 ([`ALL_DIALECT`]). A subscriber asks by Probe for the devices
//! that are offered already.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::discovery::{Content, Message, Target};
use chappe_dpws::eventing::message::action::SUBSCRIPTION_END;
use chappe_dpws::eventing::{
    EventSource, Failure, FilterDialect, Notification, Offer, Request as SourceRequest,
    SourceCommand, SourceConfig, SourceEvent, SourceReceive, SourceTransmit, Token,
};
use chappe_dpws::exchange::Reply;
use chappe_identity::Contact;
use chappe_machine::{Input, Output};
use chappe_soap::{EndpointReference, Envelope};
use chappe_transport::http::Client;
use chappe_transport::{Drops, Hop};
use chappe_xml::Str;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::serving::Replies;
use super::{Posted, ProxyOptions, QUEUE_MAX};
use crate::Error;
use crate::driver::{InputOf, OutputHandler, drive};

/// The filter of the prototype at HL7, by which SDC libraries subscribe to a discovery proxy: all events.
const ALL_DIALECT: &str = "http://discoproxy";
/// The path of event source and subscription managers, whatever path a request names.
const PATH: &str = "/";
const MANAGERS: &str = "/subscriptions";
/// Subscriptions in all. Reason: a network has few consoles that follow all devices, and each subscription keeps
/// a queue and a connection.
const SUBSCRIPTIONS_MAX: usize = 64;
/// Subscriptions of one IPv4 address or IPv6 /64. Reason: one for each program, dialect and action, with room for
/// those of an earlier run.
const SUBSCRIPTIONS_PER_PEER_MAX: usize = 8;
/// Notifications queued for one subscriber, one for each device. Reason: the devices of a large site start together;
/// all queues are at most 32,768 entries of about 200 bytes.
const QUEUE_PER_SINK_MAX: usize = 512;
/// Deliveries at once, beyond which the end of a subscription is not sent. Reason: one in flight and one last message
/// for each subscription.
const DELIVERIES_MAX: usize = 2 * SUBSCRIPTIONS_MAX;
/// Time for the last messages to subscribers.
const END_DEADLINE: Duration = Duration::from_secs(1);

/// The subscribers of a proxy.
pub(super) struct Subscribers {
    inputs: mpsc::Sender<Option<InputOf<EventSource>>>,
    replies: Arc<Replies>,
    /// The endpoints that are offered.
    offered: Mutex<BTreeSet<Str>>,
}

impl Subscribers {
    pub(super) fn start(
        options: &ProxyOptions,
        drops: &Drops,
        tasks: &mut JoinSet<()>,
    ) -> Result<Self, Error> {
        let (inputs, receive_inputs) = mpsc::channel(QUEUE_MAX);
        let replies = Arc::new(Replies::default());
        let actions = Dialect::ALL
            .into_iter()
            .flat_map(|dialect| ["Hello", "Bye"].map(|action| dialect.discovery_action(action)));
        let config = SourceConfig {
            offers: vec![Offer {
                path: PATH.into(),
                actions: actions.collect(),
            }],
            manager_path: MANAGERS.into(),
            filters: vec![FilterDialect::new(ALL_DIALECT, |_| {
                Ok(Arc::new(|_, _| true))
            })],
            subscriptions_max: SUBSCRIPTIONS_MAX,
            subscriptions_per_peer_max: SUBSCRIPTIONS_PER_PEER_MAX,
            queue_max: QUEUE_PER_SINK_MAX,
            utc_at_origin_ns: Some(crate::http::utc_at_origin_ns()),
            ..SourceConfig::default()
        };
        let policy = options.policy.clone();
        let check = move |uri: &str, peer| {
            let checked = policy.check(uri, peer);
            checked.map(drop).map_err(|refusal| refusal.to_string())
        };
        let source = EventSource::new(config, Arc::new(check), crate::http::secret()?);
        let mut outputs = Outputs {
            inputs: inputs.clone(),
            replies: Arc::clone(&replies),
            http: Client::to_sinks(options.client.clone(), options.tls.as_ref()),
            drops: drops.clone(),
            deliveries: JoinSet::new(),
        };
        tasks.spawn(async move {
            drive(source, receive_inputs, &mut outputs).await;
            let last = async { while outputs.deliveries.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(END_DEADLINE, last).await;
        });
        Ok(Self {
            inputs,
            replies,
            offered: Mutex::default(),
        })
    }

    /// Answers Subscribe, Renew, GetStatus and Unsubscribe.
    pub(super) async fn answer(&self, message: Posted, envelope: Envelope) -> Reply {
        let (token, replied) = self.replies.wait();
        let path = match message.path.starts_with(MANAGERS) {
            true => message.path,
            false => PATH.to_owned(),
        };
        let request = SourceRequest {
            token: Token(token),
            peer: message.peer,
            base: message.base.into(),
            path: path.into(),
            envelope,
        };
        let receive = SourceReceive::Request(Box::new(request));
        self.input(Input::Receive(receive)).await;
        replied.await.unwrap_or(Reply::UNAVAILABLE)
    }

    /// Tells the subscribers of a device; returns the number of offered ones.
    pub(super) async fn present(&self, target: Target, dialects: &[Dialect]) -> usize {
        let count = {
            let mut offered = self.offered();
            offered.insert(target.endpoint.address.clone());
            offered.len()
        };
        let endpoint = target.endpoint.address.clone();
        self.notify(&endpoint, &Content::Hello(target), dialects)
            .await;
        count
    }

    /// Tells the subscribers that a device is gone; returns the number of offered ones.
    pub(super) async fn absent(&self, endpoint: &Str, dialects: &[Dialect]) -> usize {
        let count = {
            let mut offered = self.offered();
            offered.remove(endpoint);
            offered.len()
        };
        let target = Target {
            endpoint: EndpointReference::new(endpoint.clone()),
            ..Target::default()
        };
        self.notify(endpoint, &Content::Bye(target), dialects).await;
        count
    }

    fn offered(&self) -> std::sync::MutexGuard<'_, BTreeSet<Str>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn notify(&self, endpoint: &Str, content: &Content, dialects: &[Dialect]) {
        for dialect in dialects {
            let message = Message {
                dialect: *dialect,
                message_id: Str::default(),
                relates_to: None,
                to: None,
                reply_to: None,
                sequence: None,
                content: content.clone(),
            };
            let envelope = message.to_envelope(&[]);
            let action = envelope.addressing.action.clone();
            if let Some(body) = envelope.body.into_iter().next() {
                // A Hello replaces a waiting Bye of the same device, and the reverse.
                let command = SourceCommand::NotifyLatest {
                    key: format!("{dialect:?} {endpoint}").into(),
                    action,
                    body: body.into(),
                };
                self.input(Input::Command(command)).await;
            }
        }
    }

    pub(super) async fn end(&self) {
        self.input(Input::Command(SourceCommand::Shutdown)).await;
        let _ = self.inputs.send(None).await;
    }

    async fn input(&self, input: InputOf<EventSource>) {
        // A closed source has no subscribers.
        let _ = self.inputs.send(Some(input)).await;
    }
}

struct Outputs {
    inputs: mpsc::Sender<Option<InputOf<EventSource>>>,
    replies: Arc<Replies>,
    http: Client,
    drops: Drops,
    deliveries: JoinSet<()>,
}

impl OutputHandler<EventSource> for Outputs {
    fn handle(&mut self, output: Output<SourceTransmit, SourceEvent>) {
        while self.deliveries.try_join_next().is_some() {}
        match output {
            Output::Transmit(SourceTransmit::Response { token, envelope }) => {
                self.replies.reply(token.0, Reply::message(*envelope));
            }
            Output::Transmit(SourceTransmit::Notify(notification)) => {
                let (http, drops) = (self.http.clone(), self.drops.clone());
                let is_end = notification.action() == SUBSCRIPTION_END;
                if is_end && self.deliveries.len() >= DELIVERIES_MAX {
                    let detail = format!("{DELIVERIES_MAX} deliveries are under way");
                    let what = "end of a subscription not sent";
                    drops.record(Hop::Event, what, notification.to(), detail, None);
                    return;
                }
                let inputs = self.inputs.clone();
                self.deliveries.spawn(async move {
                    let receive = deliver(&http, &drops, &notification).await;
                    let _ = inputs.send(Some(Input::Receive(receive))).await;
                });
            }
            Output::Event(SourceEvent::Refused {
                peer,
                reason,
                detail,
            }) => {
                let detail = format!("{reason:?}: {detail}");
                let reason = "subscription refused";
                self.drops
                    .record(Hop::Event, reason, peer.ip(), detail, None);
            }
            Output::Event(SourceEvent::Dropped { reason, count, .. }) => {
                let detail = format!("{reason:?}");
                let what = "event not delivered";
                self.drops
                    .record_times(count as u64, Hop::Event, what, "", detail, None);
            }
            // There are no trees.
            Output::Transmit(_) | Output::Event(_) => {}
        }
    }
}

async fn deliver(http: &Client, drops: &Drops, notification: &Notification) -> SourceReceive {
    let delivery = notification.delivery;
    let failed = |failure| SourceReceive::Failed { delivery, failure };
    // The machine had the address checked.
    let Ok(contact) = Contact::parse(notification.to(), 0) else {
        return failed(Failure::Refused);
    };
    let posted = http.post_text(&contact, notification.action(), notification.to_text());
    match posted.await {
        Ok(answer) if answer.status.is_success() => SourceReceive::Delivered { delivery },
        Ok(answer) if answer.status.is_client_error() => failed(Failure::Refused),
        Ok(_) => failed(Failure::Unreachable),
        Err(error) => {
            let failure = Failure::of(error.is_of_this_host());
            let (peer, hint) = (contact.address.ip(), error.hint());
            let detail = error.to_string();
            drops.record(Hop::Event, "event not delivered", peer, detail, hint);
            failed(failure)
        }
    }
}
