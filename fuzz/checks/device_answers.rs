//! Invariants of the client of a device for any answers and events: metadata, and the messages to an event sink.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::eventing::{
    EventSink, SinkCommand, SinkConfig, SinkEvent, SinkReceive, SinkTransmit, Source,
    SubscriptionKey, Token,
};
use chappe_dpws::metadata::Metadata;
use chappe_machine::{Harness, Input, Output};
use chappe_soap::{EndpointReference, Envelope};
use chappe_xml::{Element, Limits};

use crate::bounds::Bound;

/// A document as tree, as metadata, and both again when they are written and read. Each message to the sink is gone before
/// the next one comes.
pub(crate) const BOUND: Bound = Bound::memory(4 << 20, 400);
/// Messages of one input. Reason: each costs a machine's step.
const MESSAGES_MAX: usize = 16;
/// Longer than any pause before a subscription is tried again.
const PAUSE: Duration = Duration::from_secs(120);

const BASE: &str = "http://192.0.2.1:1";
const KEY: SubscriptionKey = SubscriptionKey(1);
/// The first byte of a message that answers the oldest request of the sink. Any other is posted to the sink.
const ANSWER: u8 = b'a';

/// A document that is metadata is the same after a second way there and back. Any other input is messages to an event
/// sink, separated by zero bytes: each that is posted gets one reply, an event is delivered once, and no request goes to a
/// forbidden address.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || {
        if let Ok(document) = Element::parse_within(data, Limits::datagram()) {
            check_metadata(&document);
        } else {
            check_sink(data);
        }
    });
}

fn check_metadata(document: &Element) {
    let Some((first, dialect, _)) = Metadata::from_element(document) else {
        return;
    };
    let again = |metadata: &Metadata| {
        let text = metadata.to_element(dialect).to_text();
        let written = Element::parse(text.as_bytes()).ok()?;
        Metadata::from_element(&written).map(|(read, ..)| read)
    };
    // What is too long or of another profile is cut off or left out once. Declarations may exceed the limits of a document.
    let Some(second) = again(&first) else {
        return;
    };
    assert_eq!(again(&second).as_ref(), Some(&second));
}

struct World {
    sink: Harness<EventSink>,
    requests: VecDeque<u64>,
    /// The path of the latest subscription.
    path: String,
    replies: usize,
    events: usize,
}

fn check_sink(data: &[u8]) {
    let check = Arc::new(|address: &str, _| match address.contains("forbidden") {
        true => Err("the address is forbidden".to_owned()),
        false => Ok(()),
    });
    let sink = EventSink::new(SinkConfig::default(), check, [7; 16]);
    let mut world = World {
        sink: Harness::new(sink, 7),
        requests: VecDeque::new(),
        path: String::new(),
        replies: 0,
        events: 0,
    };
    let source = Source {
        endpoint: EndpointReference::new("http://192.0.2.7/clock"),
        peer: ([192, 0, 2, 7], 80).into(),
        actions: Vec::new(),
        lease: Duration::from_secs(600),
        base: BASE.into(),
        tree: None,
    };
    let source = Box::new(source);
    world.input(Input::Command(SinkCommand::Subscribe { key: KEY, source }));
    let messages = data.split(|byte| *byte == 0).take(MESSAGES_MAX);
    for (token, message) in messages.enumerate() {
        world.message(Token(token as u64), message);
    }
    world.input(Input::Command(SinkCommand::Stop));
    assert_eq!(world.sink.machine().subscriptions().count(), 0);
}

impl World {
    fn message(&mut self, token: Token, message: &[u8]) {
        let Some((kind, text)) = message.split_first() else {
            let outputs = self.sink.advance(PAUSE).expect("no violation");
            return self.settle(outputs);
        };
        let envelope = Envelope::parse_within(text, Limits::datagram()).map(Box::new);
        if *kind == ANSWER {
            if let Some(request) = self.requests.pop_front() {
                let answer = envelope.map_err(|error| error.to_string().into());
                self.input(Input::Receive(SinkReceive::Answer { request, answer }));
            }
            return;
        }
        let Ok(envelope) = envelope else {
            return;
        };
        (self.replies, self.events) = (0, 0);
        self.input(Input::Receive(SinkReceive::Posted {
            token,
            peer: ([192, 0, 2, 7], 4711).into(),
            path: self.path.clone().into(),
            envelope,
        }));
        assert_eq!(self.replies, 1, "each message has one reply");
        assert!(self.events <= 1, "an event is delivered once");
    }

    fn input(&mut self, input: Input<SinkReceive, SinkCommand>) {
        let outputs = self.sink.input(input).expect("no violation");
        self.settle(outputs);
    }

    fn settle(&mut self, outputs: Vec<Output<SinkTransmit, SinkEvent>>) {
        for output in outputs {
            match output {
                Output::Transmit(SinkTransmit::Request {
                    request, envelope, ..
                }) => {
                    let to = envelope.addressing.to.as_deref().unwrap_or_default();
                    assert!(!to.contains("forbidden"));
                    let text = envelope.to_text();
                    assert!(Envelope::parse(text.as_bytes()).is_ok(), "{text}");
                    // Where events are to be posted.
                    if let Some((_, after)) = text.split_once(BASE) {
                        let path = after.split('<').next().unwrap_or_default();
                        self.path = path.to_owned();
                    }
                    self.requests.push_back(request);
                }
                Output::Transmit(SinkTransmit::Reply { reply, .. }) => {
                    self.replies += 1;
                    assert!(matches!(reply.status, 200 | 202 | 400 | 404 | 500 | 503));
                    if let Some(envelope) = reply.envelope() {
                        let text = envelope.to_text();
                        assert!(Envelope::parse(text.as_bytes()).is_ok(), "{text}");
                    }
                }
                Output::Event(SinkEvent::Notification { .. }) => self.events += 1,
                Output::Event(_) => {}
            }
        }
    }
}
