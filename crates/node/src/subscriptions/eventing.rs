//! Changes of the registry by WS-Eventing.
//!
//! The address of an event source says what its events are about: `/registry/events` with the parameters of
//! `GET /api/v1/registry/changes`. Each such address of each account is one [`EventSource`] with one
//! [`Follow`], run by a task as long as it has subscriptions. The filter by actions selects among the kinds of
//! events. Leases, order, retries and the end of a subscription whose receiver is dead are those of the
//! machine; notifications go only where the address policy allows.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::eventing::{
    DropReason, EventSource, Failure, Notification, Offer, SourceCommand, SourceConfig,
    SourceEvent, SourceReceive, SourceTransmit, SubscriptionId, Token,
};
use chappe_dpws::exchange::Reply;
use chappe_identity::Contact;
use chappe_machine::{Input, Output, drain};
use chappe_registry::{WatchItem, WatchStart, WatchSubject};
use chappe_transport::http::Client;
use chappe_transport::{Clock, Hop};
use chappe_xml::{Element, Name, Str};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::sources::{Audience, Inputs, Request, Source};
use super::{Follow, described};
use crate::accounts::Caller;
use crate::shared::App;
use crate::tasks::shutdown;

/// The namespace of the events, and the prefix of their actions.
pub(crate) const NAMESPACE: &str = "https://chappe.example/ns/registry/";
/// The path of event sources.
pub(crate) const SOURCES: &str = "/registry/events";
/// The path of subscription managers.
pub(crate) const MANAGERS: &str = "/registry/subscriptions";
/// The kinds of events, as [`described`] names them and as elements.
const KINDS: [(&str, &str); 6] = [
    ("added", "Added"),
    ("changed", "Changed"),
    ("removed", "Removed"),
    ("answer", "Answer"),
    ("resync", "Resync"),
    ("synced", "Synced"),
];
/// The members of events, likewise.
const MEMBERS: [(&str, &str); 7] = [
    ("key", "Key"),
    ("kind", "Kind"),
    ("name", "Name"),
    ("row", "Row"),
    ("answer", "Answer"),
    ("reason", "Reason"),
    ("position", "Position"),
];
/// Event sources at a time; reason: each follows the registry with a task of its own.
const SOURCES_MAX: usize = 64;
/// Subscriptions of one source.
const SUBSCRIPTIONS_MAX: usize = 64;
/// Requests that wait for one source.
const REQUESTS_QUEUED: usize = 16;
/// Time for the last messages of a source that ends.
const FAREWELL: Duration = Duration::from_secs(1);

/// Why a request gets no answer of a source.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EventingError {
    #[error("the subscription does not exist")]
    Unknown,
    #[error("{SOURCES_MAX} searches and queries are followed by WS-Eventing already")]
    Full,
    #[error(transparent)]
    Query(#[from] chappe_registry::SparqlError),
    #[error("the event source ended")]
    Ended,
}

/// Answers a request to the source of this subject.
pub(crate) async fn subscribe(
    app: &App,
    caller: &Caller,
    subject: WatchSubject,
    request: Request,
) -> Result<Reply, EventingError> {
    let account = caller.session();
    let audience = Audience {
        account: account.unwrap_or_else(|| caller.name().to_owned()),
        subject: format!("{subject:?}"),
    };
    let inputs = {
        let mut sources = app.events.lock();
        let known = sources
            .1
            .values()
            .find(|source| source.audience == audience);
        let known = known.map(|source| source.inputs.clone());
        match known.filter(|inputs| !inputs.is_closed()) {
            Some(inputs) => inputs,
            None => {
                if sources.1.len() >= SOURCES_MAX {
                    return Err(EventingError::Full);
                }
                let start = WatchStart::Now;
                let follow = Follow::start(app.clone(), caller.clone(), subject, start)?;
                sources.0 += 1;
                let number = sources.0;
                let (inputs, receiver) = mpsc::channel(REQUESTS_QUEUED);
                let source = Source {
                    audience,
                    inputs: inputs.clone(),
                };
                sources.1.insert(number, source);
                tokio::spawn(run(app.clone(), number, follow, receiver));
                inputs
            }
        }
    };
    ask(&inputs, request).await
}

/// Answers a request to a subscription manager.
pub(crate) async fn manage(app: &App, request: Request) -> Result<Reply, EventingError> {
    let rest = request.path.strip_prefix(MANAGERS);
    let number = rest.and_then(|rest| rest.trim_start_matches('/').split('/').next());
    let number = number.and_then(|number| number.parse::<u64>().ok());
    let inputs = number.and_then(|number| {
        let sources = app.events.lock();
        sources.1.get(&number).map(|source| source.inputs.clone())
    });
    ask(&inputs.ok_or(EventingError::Unknown)?, request).await
}

async fn ask(inputs: &Inputs, request: Request) -> Result<Reply, EventingError> {
    let (reply, replied) = oneshot::channel();
    let sent = inputs.send((request, reply)).await;
    sent.map_err(|_| EventingError::Ended)?;
    replied.await.map_err(|_| EventingError::Ended)
}

/// The action and the body of an event.
fn notification(item: &WatchItem) -> (String, Element) {
    let (kind, data) = described(item);
    let known = KINDS.iter().find(|(name, _)| *name == kind);
    let local = known.map_or("Changed", |(_, local)| local);
    let mut body = Element::new(Name::new(NAMESPACE, local));
    for (member, element) in MEMBERS {
        let text = match &data[member] {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            // A row is in the form of SPARQL's results in JSON.
            other => other.to_string(),
        };
        body = body.with_child(Element::new(Name::new(NAMESPACE, element)).with_text(text));
    }
    (format!("{NAMESPACE}{local}"), body)
}

/// A running event source.
struct Running {
    app: App,
    source: EventSource,
    clock: Clock,
    client: Client,
    waiting: HashMap<u64, oneshot::Sender<Reply>>,
    token: u64,
    deliveries: JoinSet<SourceReceive>,
    subscriptions: BTreeSet<SubscriptionId>,
}

/// Why a source woke up.
enum Woken {
    Draining,
    Request(Option<Box<(Request, oneshot::Sender<Reply>)>>),
    Delivery(SourceReceive),
    Timeout,
    Event(Box<Result<WatchItem, super::FollowEnd>>),
}

async fn run(
    app: App,
    number: u64,
    mut follow: Follow,
    mut requests: mpsc::Receiver<(Request, oneshot::Sender<Reply>)>,
) {
    let Ok(secret) = chappe_transport::seed() else {
        app.events.lock().1.remove(&number);
        return;
    };
    let (secret, _) = secret.split_at(16);
    let allowed = app.config.contact_policy();
    let check = move |uri: &str, source: SocketAddr| {
        let checked = allowed.check(uri, source);
        checked.map(|_| ()).map_err(|refusal| refusal.to_string())
    };
    let actions: Vec<Str> = KINDS
        .iter()
        .map(|(_, local)| format!("{NAMESPACE}{local}").into())
        .collect();
    let config = SourceConfig {
        offers: vec![Offer {
            path: SOURCES.into(),
            actions,
        }],
        manager_path: format!("{MANAGERS}/{number}").into(),
        subscriptions_max: SUBSCRIPTIONS_MAX,
        ..SourceConfig::default()
    };
    let secret = secret.try_into().unwrap_or_default();
    let mut running = Running {
        source: EventSource::new(config, Arc::new(check), secret),
        clock: Clock::process(),
        client: Client::new(Default::default()),
        waiting: HashMap::new(),
        token: 0,
        deliveries: JoinSet::new(),
        subscriptions: BTreeSet::new(),
        app: app.clone(),
    };
    running.serve(&mut follow, &mut requests).await;
    app.events.lock().1.remove(&number);
    let mut farewell = std::pin::pin!(tokio::time::sleep(FAREWELL));
    loop {
        tokio::select! {
            () = &mut farewell => return,
            sent = running.deliveries.join_next() => if sent.is_none() { return },
        }
    }
}

impl Running {
    async fn serve(
        &mut self,
        follow: &mut Follow,
        requests: &mut mpsc::Receiver<(Request, oneshot::Sender<Reply>)>,
    ) {
        let mut drain = self.app.drain.clone();
        let mut is_new = true;
        while is_new || self.source.subscriptions() > 0 {
            let deadline = chappe_machine::Machine::deadline(&self.source);
            let at = deadline.map(|deadline| self.clock.at(deadline));
            let woken = tokio::select! {
                biased;
                () = shutdown(&mut drain) => Woken::Draining,
                request = requests.recv() => Woken::Request(request.map(Box::new)),
                Some(Ok(sent)) = self.deliveries.join_next() => Woken::Delivery(sent),
                () = tokio::time::sleep_until(at.unwrap_or_else(tokio::time::Instant::now)),
                    if at.is_some() => Woken::Timeout,
                event = follow.next() => Woken::Event(Box::new(event)),
            };
            match woken {
                Woken::Request(Some(asked)) => {
                    let (request, reply) = *asked;
                    is_new = false;
                    self.request(request, reply);
                }
                Woken::Delivery(sent) => self.input(Input::Receive(sent)),
                Woken::Timeout => self.input(Input::Timeout),
                Woken::Event(event) => match *event {
                    Ok(item) => {
                        let (action, body) = notification(&item);
                        let action = action.into();
                        self.input(Input::Command(SourceCommand::Notify { action, body }));
                    }
                    Err(end) => return self.cancel(&end.to_string()),
                },
                Woken::Draining | Woken::Request(None) => {
                    return self.input(Input::Command(SourceCommand::Shutdown));
                }
            }
        }
        // Late requests get a fault.
        requests.close();
        while let Ok((request, reply)) = requests.try_recv() {
            self.request(request, reply);
        }
    }

    /// Ends all subscriptions.
    fn cancel(&mut self, reason: &str) {
        for subscription in self.subscriptions.clone() {
            let reason = reason.to_owned().into();
            self.input(Input::Command(SourceCommand::Cancel {
                subscription,
                reason,
            }));
        }
    }

    fn request(&mut self, request: Request, reply: oneshot::Sender<Reply>) {
        self.token += 1;
        self.waiting.insert(self.token, reply);
        let request = chappe_dpws::eventing::Request {
            token: Token(self.token),
            peer: request.peer,
            base: request.base.into(),
            path: request.path.into(),
            envelope: request.envelope,
        };
        self.input(Input::Receive(SourceReceive::Request(Box::new(request))));
    }

    fn input(&mut self, input: Input<SourceReceive, SourceCommand>) {
        let mut outputs = Vec::new();
        let now = self.clock.now();
        drain(&mut self.source, now, input, |output| outputs.push(output));
        for output in outputs {
            match output {
                Output::Transmit(SourceTransmit::Response { token, envelope }) => {
                    if let Some(reply) = self.waiting.remove(&token.0) {
                        // The connection may be closed.
                        let _ = reply.send(Reply::message(*envelope));
                    }
                }
                Output::Transmit(SourceTransmit::Notify(notification)) => {
                    let (app, client) = (self.app.clone(), self.client.clone());
                    self.deliveries
                        .spawn(async move { deliver(&app, &client, &notification).await });
                }
                Output::Event(event) => self.on_event(event),
                // There are no trees.
                Output::Transmit(_) => {}
            }
        }
    }

    fn on_event(&mut self, event: SourceEvent) {
        let drops = &self.app.observability.drops;
        match event {
            SourceEvent::Subscribed { subscription, .. } => {
                self.subscriptions.insert(subscription);
            }
            SourceEvent::Unsubscribed { subscription }
            | SourceEvent::Expired { subscription }
            | SourceEvent::Ended { subscription, .. } => {
                self.subscriptions.remove(&subscription);
            }
            SourceEvent::Dropped {
                subscription,
                reason,
                count,
            } => {
                let detail = format!("{count} for the reason {reason:?}");
                drops.record(Hop::Event, "event not delivered", "registry", detail, None);
                // A subscriber never misses an event without a message that says so.
                if matches!(reason, DropReason::QueueFull | DropReason::Refused)
                    && self.subscriptions.contains(&subscription)
                {
                    let reason =
                        "events were not delivered: subscribe again, and read the present state";
                    let reason = reason.into();
                    self.input(Input::Command(SourceCommand::Cancel {
                        subscription,
                        reason,
                    }));
                }
            }
            SourceEvent::Refused {
                peer,
                reason,
                detail,
            } => {
                let detail = format!("{reason:?}: {detail}");
                drops.record(Hop::Http, "subscription refused", peer.ip(), detail, None);
            }
            _ => {}
        }
    }
}

async fn deliver(app: &App, client: &Client, notification: &Notification) -> SourceReceive {
    let delivery = notification.delivery;
    let failed = |failure| SourceReceive::Failed { delivery, failure };
    // The machine had the address checked.
    let Ok(contact) = Contact::parse(notification.to(), 0) else {
        return failed(Failure::Refused);
    };
    let text = notification.to_text();
    let posted = client.post_text(&contact, notification.action(), text);
    match posted.await {
        Ok(answer) if answer.status.is_success() => SourceReceive::Delivered { delivery },
        Ok(answer) if answer.status.is_client_error() => failed(Failure::Refused),
        Ok(_) => failed(Failure::Unreachable),
        Err(error) => {
            let (peer, hint) = (contact.address.ip(), error.hint());
            let detail = error.to_string();
            let drops = &app.observability.drops;
            drops.record(Hop::Event, "event not delivered", peer, detail, hint);
            failed(Failure::Unreachable)
        }
    }
}
