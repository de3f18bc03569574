//! `chappe registry subscribe --eventing`: a sink of WS-Eventing for changes of a node's registry.
//!
//! The node posts its notifications to a server of this command, at the address from which the command reaches the
//! node. The machine [`EventSink`] subscribes, renews the lease before it ends, and subscribes again when the node
//! has lost the subscription; the changes in between are missing then, and `resync` says so.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::eventing::{
    EndReason, EventSink, SinkCommand, SinkConfig, SinkEvent, SinkReceive, SinkTransmit, Source,
    SubscriptionKey, Token, TroubleReason,
};
use chappe_dpws::exchange::Reply;
use chappe_machine::{Input, Machine, Output, drain};
use chappe_soap::{EndpointReference, Envelope};
use chappe_transport::http::{Request, Response, Server, ServerLimits, StatusCode};
use chappe_transport::{Clock, Drops};
use chappe_xml::{Element, Str};
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::{is_change, show_event, subject};
use crate::cli::RegistrySubscribe;
use crate::command::network;
use crate::command::node_client::NodeClient;
use crate::output::{self, Failure, Outcome};

/// The only subscription.
const KEY: SubscriptionKey = SubscriptionKey(1);
/// The lease that the node is asked for; reason: a command that was killed is forgotten after as long.
const LEASE: Duration = Duration::from_secs(600);
/// Messages of the node that wait; reason: a node sends the next one after the answer to the one before.
const POSTED_QUEUED: usize = 16;
/// Time for the answer to a request; reason: the machine has given up by then.
const REQUEST_DEADLINE: Duration = Duration::from_secs(30);
/// Time to end the subscription at the node.
const FAREWELL: Duration = Duration::from_secs(2);

/// A message that the node posts, and where its answer goes.
struct Posted {
    peer: SocketAddr,
    path: String,
    envelope: Envelope,
    answer: oneshot::Sender<Reply>,
}

/// Subscribes, and prints events until the count is reached or an interrupt.
pub(super) async fn subscribe(flags: &RegistrySubscribe, json: bool) -> Outcome {
    let node = NodeClient::new(&flags.node)?;
    let (local, peer) = node.addresses().await?;
    let (sender, mut posted) = mpsc::channel(POSTED_QUEUED);
    let mut at = local;
    at.set_port(0);
    let handler = move |request| receive(sender.clone(), request);
    let server = Server::bind(at, ServerLimits::default(), Drops::default(), handler)?;
    let port = server.local_addr().port();
    let mut sink = Sink::new(node, flags.count, json)?;
    let subject = subject(flags);
    let parameters = subject.trim_start_matches('&');
    let source = Source {
        endpoint: EndpointReference::new(format!(
            "{}/registry/events?{parameters}",
            sink.node.url()
        )),
        peer,
        actions: Vec::new(),
        lease: flags.lease.unwrap_or(LEASE),
        base: format!("http://{}", SocketAddr::new(local.ip(), port)).into(),
        tree: None,
    };
    let source = Box::new(source);
    let mut input = Input::Command(SinkCommand::Subscribe { key: KEY, source });
    let mut interrupted = pin!(network::interrupted());
    let outcome = loop {
        if let Some(outcome) = sink.input(input) {
            break outcome;
        }
        let deadline = sink.machine.deadline();
        let deadline = deadline.map(|deadline| sink.clock.at(deadline));
        input = tokio::select! {
            biased;
            outcome = &mut interrupted => break outcome,
            () = tokio::time::sleep_until(deadline.unwrap_or_else(tokio::time::Instant::now)),
                if deadline.is_some() => Input::Timeout,
            Some(Ok(answer)) = sink.requests.join_next() => Input::Receive(answer),
            Some(message) = posted.recv() => Input::Receive(sink.posted(message)),
        };
    };
    let _ = tokio::time::timeout(FAREWELL, sink.end()).await;
    outcome
}

/// Hands a message of the node over to the machine.
async fn receive(sender: mpsc::Sender<Posted>, request: Request) -> Response {
    let Ok(envelope) = Envelope::parse(&request.body) else {
        return Response::empty(StatusCode::BAD_REQUEST);
    };
    let (answer, answered) = oneshot::channel();
    let message = Posted {
        peer: request.peer,
        path: request.path,
        envelope,
        answer,
    };
    let sent = sender.send(message).await;
    let reply = match sent {
        Ok(()) => answered.await.unwrap_or(Reply::UNAVAILABLE),
        Err(_) => Reply::UNAVAILABLE,
    };
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    match reply.content_type() {
        Some(kind) => Response::new(status, kind, reply.to_text()),
        None => Response::empty(status),
    }
}

/// The machine with what its outputs need.
struct Sink {
    machine: EventSink,
    clock: Clock,
    node: NodeClient,
    requests: JoinSet<SinkReceive>,
    waiting: HashMap<u64, oneshot::Sender<Reply>>,
    last_token: u64,
    has_subscribed: bool,
    /// Changes until the end.
    left: u64,
    json: bool,
}

impl Sink {
    fn new(node: NodeClient, count: Option<u64>, json: bool) -> Result<Self, Failure> {
        let seed = chappe_transport::seed()?;
        let mut secret = [0; 16];
        secret.copy_from_slice(&seed[..16]);
        // The node has its subscription managers at its own address.
        let prefix = format!("{}/", node.url());
        let check = move |uri: &str, _: SocketAddr| match uri.starts_with(&prefix) {
            true => Ok(()),
            false => Err(format!("{uri} is not below {prefix}")),
        };
        let config = SinkConfig {
            subscriptions_max: 1,
            ..SinkConfig::default()
        };
        Ok(Self {
            machine: EventSink::new(config, Arc::new(check), secret),
            clock: Clock::process(),
            node,
            requests: JoinSet::new(),
            waiting: HashMap::new(),
            last_token: 0,
            has_subscribed: false,
            left: count.unwrap_or(u64::MAX),
            json,
        })
    }

    fn posted(&mut self, message: Posted) -> SinkReceive {
        self.last_token += 1;
        self.waiting.insert(self.last_token, message.answer);
        SinkReceive::Posted {
            token: Token(self.last_token),
            peer: message.peer,
            path: message.path.into(),
            envelope: Box::new(message.envelope),
        }
    }

    /// Handles an input; `Some`: the command ends.
    fn input(&mut self, input: Input<SinkReceive, SinkCommand>) -> Option<Outcome> {
        let mut outputs = Vec::new();
        let now = self.clock.now();
        drain(&mut self.machine, now, input, |output| outputs.push(output));
        let mut outcome = None;
        for output in outputs {
            match output {
                Output::Transmit(SinkTransmit::Request {
                    request, envelope, ..
                }) => {
                    let node = self.node.clone();
                    self.requests.spawn(async move {
                        let answer = ask(&node, &envelope).await;
                        SinkReceive::Answer { request, answer }
                    });
                }
                Output::Transmit(SinkTransmit::Reply { token, reply }) => {
                    if let Some(answer) = self.waiting.remove(&token.0) {
                        // The node may have hung up.
                        let _ = answer.send(reply);
                    }
                }
                Output::Event(event) => outcome = outcome.or(self.event(event)),
            }
        }
        outcome
    }

    fn event(&mut self, event: SinkEvent) -> Option<Outcome> {
        match event {
            SinkEvent::Subscribed { granted, .. } => {
                if std::mem::replace(&mut self.has_subscribed, true) {
                    let reason = "subscribed again: changes in between are missing";
                    show_event("resync", &json!({ "reason": reason }), None, self.json);
                } else {
                    let seconds = granted.as_secs();
                    output::progress(format_args!("subscribed, with a lease of {seconds} s"));
                }
            }
            // Exactly as many are printed as were asked for.
            SinkEvent::Notification { body, .. } if self.left > 0 => {
                let (name, data) = described(&body);
                show_event(&name, &data, None, self.json);
                if is_change(&name) {
                    self.left -= 1;
                    return (self.left == 0).then_some(Ok(()));
                }
            }
            SinkEvent::Trouble { reason, .. } if !self.has_subscribed => {
                return Some(Err(refused(&reason)));
            }
            SinkEvent::Trouble { reason, .. } => output::note(reason),
            SinkEvent::Ended {
                reason: EndReason::Source { reason, .. },
                ..
            } => {
                let reason = reason.unwrap_or_else(|| "without a reason".into());
                output::note(format_args!(
                    "the node has ended the subscription: {reason}"
                ));
            }
            _ => {}
        }
        None
    }

    /// Ends the subscription at the node.
    async fn end(&mut self) {
        let mut input = Input::Command(SinkCommand::Stop);
        loop {
            let _ = self.input(input);
            match self.requests.join_next().await {
                Some(Ok(answer)) => input = Input::Receive(answer),
                Some(Err(_)) => input = Input::Timeout,
                None => return,
            }
        }
    }
}

/// Why the node does not take the subscription.
fn refused(reason: &TroubleReason) -> Failure {
    let hint = match reason {
        TroubleReason::Refused(_) => {
            "a node posts to the host of a subscriber, and to the addresses in its discovery.contact, where one on the \
             loopback has to be"
        }
        TroubleReason::Fault(_) => {
            "a node with signatures.subscriptions = \"required\" takes no unsigned Subscribe; leave out --eventing"
        }
        _ => "leave out --eventing to follow over the connection of this command",
    };
    Failure::new(reason.to_string())
        .coded("subscription_refused")
        .hint(hint)
}

/// Posts a request to the node, whose path is in its `To`.
async fn ask(node: &NodeClient, envelope: &Envelope) -> Result<Box<Envelope>, Str> {
    let to = envelope.addressing.to.as_deref().unwrap_or_default();
    let path = to.strip_prefix(&node.url()).unwrap_or_default();
    let asking = node.post_soap(path, envelope.to_text());
    let asked = tokio::time::timeout(REQUEST_DEADLINE, asking).await;
    let asked = asked.map_err(|_| Str::from("it does not answer in time"))?;
    let answer = asked.map_err(|failure| Str::from(failure.message))?;
    let answer = Envelope::parse(&answer).map_err(|error| Str::from(error.to_string()))?;
    Ok(Box::new(answer))
}

/// The name of an event and its data, as server-sent events have them.
fn described(body: &Element) -> (String, Value) {
    let name = body.name.local.to_lowercase();
    let mut data = Map::new();
    for child in body.elements() {
        let (member, text) = (child.name.local.to_lowercase(), child.text());
        let parsed = match member.as_str() {
            "row" | "answer" | "position" => serde_json::from_str(&text).ok(),
            _ => None,
        };
        let value = parsed.unwrap_or_else(|| Value::from(text.into_owned()));
        data.insert(member, value);
    }
    if matches!(name.as_str(), "added" | "changed" | "removed") {
        data.insert("change".to_owned(), name.clone().into());
    }
    (name, data.into())
}

#[cfg(test)]
mod tests {
    use chappe_xml::Name;

    use super::*;

    #[test]
    fn events_have_the_members_of_server_sent_events() {
        let name = |local| Name::new("https://chappe.example/ns/registry/", local);
        let member = |local, text: &'static str| Element::new(name(local)).with_text(text);
        let added = Element::new(name("Added")).with_children([
            member("Key", "urn:x:1"),
            member("Name", "7"),
            member("Position", "41"),
        ]);
        let data = json!({"change": "added", "key": "urn:x:1", "name": "7", "position": 41});
        assert_eq!(described(&added), ("added".to_owned(), data));
        let row =
            Element::new(name("Removed")).with_child(member("Row", r#"{"s": {"value": "a"}}"#));
        let data = json!({"change": "removed", "row": {"s": {"value": "a"}}});
        assert_eq!(described(&row), ("removed".to_owned(), data));
        let answer = Element::new(name("Answer")).with_child(member("Answer", "true"));
        assert_eq!(
            described(&answer),
            ("answer".to_owned(), json!({"answer": true}))
        );
    }
}
