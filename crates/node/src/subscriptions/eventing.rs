//! Changes of the registry by WS-Eventing.
//!
//! The address of an event source says what its events are about: `/registry/events` with the parameters of
//! `GET /api/v1/registry/changes`. Each such address of each account is one [`EventSource`] with one
//! [`Follow`], run by a task as long as it has subscriptions. The filter by actions selects among the kinds of
//! events. Leases, order, retries and the end of a subscription whose receiver is dead are those of the
//! machine; notifications go only where the address policy allows.
//!
//! Subscriptions outlive the node: a source stores the Subscribe messages before it answers them, and from time to
//! time up to where all its subscribers have its events. The next run goes on from there, so that a crash repeats
//! events and loses none.

use std::collections::{BTreeMap, HashMap};
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
use chappe_registry::{Mark, WatchItem, WatchStart};
use chappe_soap::Envelope;
use chappe_transport::http::Client;
use chappe_transport::{Clock, Hop};
use chappe_xml::{Element, Name, Str};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::sources::{
    Audience, Inputs, Request, Source, StoredSource, StoredSubscription, Subscriber,
};
use super::stored::About;
use super::{Follow, described};
use crate::accounts::Caller;
use crate::notices::NoticeKind;
use crate::shared::App;
use crate::signatures;
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
/// Of these, for one account, or for all requests without one; reason: nobody takes the places of all others.
const SOURCES_EACH: usize = 16;
/// Subscriptions of one source.
const SUBSCRIPTIONS_MAX: usize = 64;
/// Requests that wait for one source.
const REQUESTS_QUEUED: usize = 16;
/// Time for the last messages of a source that ends.
const FAREWELL: Duration = Duration::from_secs(1);
/// Time between two records of how far events were delivered; reason: a crash repeats the events of so long.
const MARK_STEP: Duration = Duration::from_secs(1);
/// Time between two records of subscriptions; reason: nobody is to make the disk work without a pause.
const REPLY_STEP: Duration = Duration::from_millis(50);
/// Time between two records of how much of the leases is left.
const LEASE_STEP: Duration = Duration::from_secs(60);
/// Longest Subscribe in bytes; reason: it is stored, and the file of all has less than 64 MiB.
pub(crate) const SUBSCRIBE_BYTES_MAX: usize = 8 << 10;

/// Why a request gets no answer of a source.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EventingError {
    #[error("the subscription does not exist")]
    Unknown,
    #[error("{SOURCES_MAX} searches and queries are followed by WS-Eventing already")]
    Full,
    #[error("this account follows {SOURCES_EACH} searches and queries by WS-Eventing already")]
    Share,
    #[error(transparent)]
    Query(#[from] chappe_registry::SparqlError),
    #[error("the event source ended")]
    Ended,
}

/// Answers a request to the source of this subject.
pub(crate) async fn subscribe(
    app: &App,
    caller: &Caller,
    about: About,
    request: Request,
) -> Result<Reply, EventingError> {
    let audience = Audience {
        subscriber: Subscriber::of(caller),
        about,
    };
    let inputs = {
        let mut sources = app.events.lock();
        let mut known = sources.running.values();
        let known = known.find(|source| source.audience == audience);
        let known = known.map(|source| source.inputs.clone());
        match known.filter(|inputs| !inputs.is_closed()) {
            Some(inputs) => inputs,
            None => {
                if sources.running.len() >= SOURCES_MAX {
                    return Err(EventingError::Full);
                }
                let of = |source: &&Source| source.audience.subscriber == audience.subscriber;
                if sources.running.values().filter(of).count() >= SOURCES_EACH {
                    return Err(EventingError::Share);
                }
                let subject = audience.about.subject();
                let follow = Follow::start(app.clone(), caller.clone(), subject, WatchStart::Now)?;
                sources.last += 1;
                let source = StoredSource {
                    number: sources.last,
                    audience,
                    mark: Some(Mark::at(app.registry.revision()).to_string()),
                    subscriptions: Vec::new(),
                };
                let inputs = start(app, &mut sources.running, source, follow);
                let Some(inputs) = inputs else {
                    return Err(EventingError::Ended);
                };
                inputs
            }
        }
    };
    ask(&inputs, request).await
}

/// Starts a source; `None` if the operating system provides no randomness.
fn start(
    app: &App,
    running: &mut HashMap<u64, Source>,
    stored: StoredSource,
    follow: Follow,
) -> Option<Inputs> {
    let secret = chappe_transport::seed().ok()?;
    let (inputs, receiver) = mpsc::channel(REQUESTS_QUEUED);
    let source = Source {
        audience: stored.audience.clone(),
        inputs: inputs.clone(),
    };
    running.insert(stored.number, source);
    app.events
        .spawn(run(app.clone(), stored, follow, receiver, secret));
    Some(inputs)
}

/// Goes on with the subscriptions of an earlier run.
pub(crate) fn restore(app: &App) {
    let notices = &app.observability.notices;
    let stored = match app.events.read() {
        Ok(stored) => stored,
        Err(error) => {
            let text = format!("its subscribers by WS-Eventing hear nothing: {error}");
            return notices.notify(NoticeKind::Health, "registry", text);
        }
    };
    for source in stored.into_iter().take(SOURCES_MAX) {
        let Err(reason) = restore_one(app, source.clone()) else {
            continue;
        };
        let count = source.subscriptions.len();
        let text = format!("{count} subscriptions by WS-Eventing ended: {reason}");
        notices.notify(NoticeKind::Health, "registry", text);
        let none = StoredSource {
            subscriptions: Vec::new(),
            ..source
        };
        if let Err(error) = app.events.store(none) {
            tracing::warn!(%error, "cannot store the subscriptions by WS-Eventing");
        }
    }
}

fn restore_one(app: &App, source: StoredSource) -> Result<(), String> {
    let caller = source.audience.subscriber.caller(app);
    let caller = caller.ok_or("the account has ended, or may not read any more")?;
    let mark = source.mark.as_deref().and_then(|mark| mark.parse().ok());
    let begin = mark.map_or(WatchStart::Present, WatchStart::After);
    let subject = source.audience.about.subject();
    let follow = Follow::start(app.clone(), caller, subject, begin);
    let follow = follow.map_err(|error| error.to_string())?;
    let started = start(app, &mut app.events.lock().running, source, follow);
    started
        .map(drop)
        .ok_or_else(|| "there is no randomness".to_owned())
}

/// Waits at the end of the node until all sources have ended.
pub(crate) async fn finish(app: App) {
    shutdown(&mut app.drain.clone()).await;
    app.events.ended(2 * FAREWELL).await;
}

/// Answers a request to a subscription manager.
pub(crate) async fn manage(app: &App, request: Request) -> Result<Reply, EventingError> {
    let rest = request.path.strip_prefix(MANAGERS);
    let number = rest.and_then(|rest| rest.trim_start_matches('/').split('/').next());
    let number = number.and_then(|number| number.parse::<u64>().ok());
    let inputs = number.and_then(|number| {
        let sources = app.events.lock();
        let source = sources.running.get(&number);
        source.map(|source| source.inputs.clone())
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
    subscriptions: BTreeMap<SubscriptionId, StoredSubscription>,
    /// The Subscribe that is handled now.
    asked: Option<StoredSubscription>,
    /// Answers that wait until what they say is stored.
    replies: Vec<(oneshot::Sender<Reply>, Reply)>,
    stored: StoredSource,
    /// Whether the subscriptions differ from those stored.
    is_changed: bool,
    /// Whether there were events since the stored mark.
    is_behind: bool,
    stored_at: Instant,
}

/// Why a source woke up.
enum Woken {
    Request(Option<Box<(Request, oneshot::Sender<Reply>)>>),
    Delivery(SourceReceive),
    Timeout,
    Store,
    Event(Box<Result<WatchItem, super::FollowEnd>>),
}

async fn run(
    app: App,
    stored: StoredSource,
    mut follow: Follow,
    mut requests: mpsc::Receiver<(Request, oneshot::Sender<Reply>)>,
    secret: [u8; 32],
) {
    let (secret, _) = secret.split_at(16);
    let number = stored.number;
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
        subscriptions: BTreeMap::new(),
        asked: None,
        replies: Vec::new(),
        stored,
        is_changed: false,
        is_behind: false,
        stored_at: Instant::now(),
        app: app.clone(),
    };
    let is_new = running.stored.subscriptions.is_empty();
    running.restore();
    running.serve(&mut follow, &mut requests, is_new).await;
    app.events.lock().running.remove(&number);
    let mut farewell = std::pin::pin!(tokio::time::sleep(FAREWELL));
    loop {
        tokio::select! {
            () = &mut farewell => break,
            sent = running.deliveries.join_next() => match sent {
                Some(Ok(sent)) => running.input(Input::Receive(sent)),
                Some(Err(_)) => {}
                None => break,
            },
        }
    }
    running.store(&follow).await;
    running.reply();
}

impl Running {
    /// Goes on with the stored subscriptions.
    fn restore(&mut self) {
        // What cannot be restored is not stored any more.
        self.is_changed = !self.stored.subscriptions.is_empty();
        for one in std::mem::take(&mut self.stored.subscriptions) {
            let id = SubscriptionId::from_path(&one.id);
            let envelope = Envelope::parse(one.message.as_bytes());
            let (Some(subscription), Ok(envelope)) = (id, envelope) else {
                continue;
            };
            let request = chappe_dpws::eventing::Request {
                token: Token(0),
                peer: one.peer,
                base: one.base.clone().into(),
                path: SOURCES.into(),
                envelope,
            };
            // A lease that is over would not be one.
            let lease = Duration::from_millis(one.left_ms.max(1));
            self.asked = Some(one);
            self.input(Input::Command(SourceCommand::Restore {
                subscription,
                request: Box::new(request),
                lease,
            }));
        }
    }

    async fn serve(
        &mut self,
        follow: &mut Follow,
        requests: &mut mpsc::Receiver<(Request, oneshot::Sender<Reply>)>,
        mut is_new: bool,
    ) {
        let mut drain = self.app.drain.clone();
        while is_new || self.source.subscriptions() > 0 {
            let deadline = chappe_machine::Machine::deadline(&self.source);
            let at = deadline.map(|deadline| self.clock.at(deadline));
            let store_at = self.stored_at + self.until_stored(follow);
            let woken = tokio::select! {
                biased;
                () = shutdown(&mut drain) => return,
                () = tokio::time::sleep_until(store_at) => Woken::Store,
                request = requests.recv() => Woken::Request(request.map(Box::new)),
                Some(Ok(sent)) = self.deliveries.join_next() => Woken::Delivery(sent),
                () = tokio::time::sleep_until(at.unwrap_or_else(tokio::time::Instant::now)),
                    if at.is_some() => Woken::Timeout,
                event = follow.next() => Woken::Event(Box::new(event)),
            };
            match woken {
                Woken::Store => {
                    self.store(follow).await;
                    self.reply();
                }
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
                        self.is_behind = true;
                        self.input(Input::Command(SourceCommand::Notify {
                            action,
                            body: body.into(),
                        }));
                    }
                    Err(end) => {
                        self.cancel(&end.to_string());
                        break;
                    }
                },
                Woken::Request(None) => break,
            }
            if !self.is_changed {
                self.reply();
            }
        }
        // Late requests get a fault.
        self.input(Input::Command(SourceCommand::Shutdown));
        requests.close();
        while let Ok((request, reply)) = requests.try_recv() {
            self.request(request, reply);
        }
    }

    /// Time from the last record to the next one.
    fn until_stored(&self, follow: &Follow) -> Duration {
        let can_advance = self.is_behind && self.mark(follow).is_some();
        match can_advance || self.is_changed {
            _ if !self.replies.is_empty() => REPLY_STEP,
            true => MARK_STEP,
            false => LEASE_STEP,
        }
    }

    /// Up to where all subscribers have the events; `None` while some are on their way.
    fn mark(&self, follow: &Follow) -> Option<String> {
        let mark = follow.mark().filter(|_| self.source.undelivered() == 0);
        mark.map(|mark| mark.to_string())
    }

    /// Stores the subscriptions, and up to where their events were delivered.
    async fn store(&mut self, follow: &Follow) {
        if !self.is_changed && self.subscriptions.is_empty() {
            self.stored_at = Instant::now();
            return;
        }
        let now = self.clock.now();
        let subscriptions = self.subscriptions.iter().map(|(id, one)| {
            let left = self.source.lease_left(*id, now).unwrap_or_default();
            let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
            StoredSubscription {
                left_ms,
                ..one.clone()
            }
        });
        self.stored.subscriptions = subscriptions.collect();
        if let Some(mark) = self.mark(follow) {
            self.stored.mark = Some(mark);
            self.is_behind = false;
        }
        (self.is_changed, self.stored_at) = (false, Instant::now());
        let (app, stored) = (self.app.clone(), self.stored.clone());
        let done = tokio::task::spawn_blocking(move || app.events.store(stored)).await;
        if let Ok(Err(error)) = done {
            tracing::warn!(%error, "cannot store the subscriptions by WS-Eventing");
        }
    }

    /// Sends the answers whose effects are stored.
    fn reply(&mut self) {
        for (reply, answer) in self.replies.drain(..) {
            // The connection may be closed.
            let _ = reply.send(answer);
        }
    }

    /// Ends all subscriptions.
    fn cancel(&mut self, reason: &str) {
        for subscription in self.subscriptions.keys().copied().collect::<Vec<_>>() {
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
        self.asked = Some(StoredSubscription {
            id: String::new(),
            peer: request.peer,
            base: request.base.clone(),
            message: request.envelope.to_text(),
            left_ms: 0,
        });
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
                        self.replies.push((reply, Reply::message(*envelope)));
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
                if let Some(mut asked) = self.asked.take() {
                    asked.id = subscription.path();
                    self.subscriptions.insert(subscription, asked);
                }
                self.is_changed = true;
            }
            SourceEvent::Renewed { .. } => self.is_changed = true,
            SourceEvent::Unsubscribed { subscription }
            | SourceEvent::Expired { subscription }
            | SourceEvent::Ended { subscription, .. } => {
                self.subscriptions.remove(&subscription);
                self.is_changed = true;
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
                    && self.subscriptions.contains_key(&subscription)
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
    let posted = match signatures::signing(app, app.config.signatures.subscriptions) {
        Some(signing) => {
            let envelope = notification.to_envelope();
            client.post_signed(&contact, envelope, &signing).await
        }
        None => {
            let text = notification.to_text();
            let posted = client.post_text(&contact, notification.action(), text);
            posted.await
        }
    };
    match posted {
        Ok(answer) if answer.status.is_success() => SourceReceive::Delivered { delivery },
        Ok(answer) if answer.status.is_client_error() => failed(Failure::Refused),
        Ok(_) => failed(Failure::Unreachable),
        Err(error) => {
            let failure = Failure::of(error.is_of_this_host());
            let (peer, hint) = (contact.address.ip(), error.hint());
            let detail = error.to_string();
            let drops = &app.observability.drops;
            drops.record(Hop::Event, "event not delivered", peer, detail, hint);
            failed(failure)
        }
    }
}
