//! Goal: a sink keeps its subscription through lost messages and restarts of either side, and
//! delivers every event once and in order.
//! Method: both machines on one virtual clock, connected by a seeded channel with delay and loss;
//! their invariants are checked at every step.

mod lifetime;
mod refusals;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::Dialect;
use chappe_dpws::eventing::{
    EndReason, EventSink, EventSource, Failure, Offer, Request, SinkCommand, SinkConfig, SinkEvent,
    SinkReceive, SinkTransmit, Source, SourceCommand, SourceConfig, SourceEvent, SourceReceive,
    SourceTransmit, SubscriptionKey, Token,
};
use chappe_machine::{Harness, Input, Instant, Output};
use chappe_soap::{EndpointReference, Envelope};
use chappe_xml::{Element, Name, Str};

const REPORT: &str = "urn:x/Report";
const KEY: SubscriptionKey = SubscriptionKey(1);
const SINK: &str = "http://192.0.2.1:9";
const SOURCE: &str = "http://192.0.2.2:80";

/// A message in flight.
enum Packet {
    Request(u64, Box<Envelope>),
    Answer(u64, Result<Box<Envelope>, Str>),
    Notification(u64, String),
    Result(u64, Result<(), Failure>),
}

struct World {
    source: Harness<EventSource>,
    sink: Harness<EventSink>,
    /// Restarts of the source and the sink; packets for an earlier instance are dropped.
    incarnation: (u64, u64),
    packets: BTreeMap<(Instant, u64), ((u64, u64), Packet)>,
    sent: u64,
    random: fastrand::Rng,
    loss: f64,
    events: Vec<SinkEvent>,
    source_events: Vec<SourceEvent>,
    /// The number of requests of the sink.
    requests: usize,
    received: Vec<u32>,
    next_number: u32,
    dialect: Dialect,
    lease: Duration,
    verify_after: Option<Duration>,
}

/// A new secret for each start, as from the operating system.
fn secret(incarnation: u64, side: u8) -> [u8; 16] {
    let mut secret = [side; 16];
    secret[..8].copy_from_slice(&incarnation.to_le_bytes());
    secret
}

fn source(incarnation: u64) -> EventSource {
    let config = SourceConfig {
        offers: vec![Offer {
            path: "/thermometer".into(),
            actions: vec![REPORT.into()],
        }],
        lease_max: Duration::from_secs(20),
        failures_max: 4,
        delivery_timeout: Duration::from_secs(3),
        queue_max: 1_000,
        ..SourceConfig::default()
    };
    EventSource::new(config, Arc::new(|_, _| Ok(())), secret(incarnation, 1))
}

fn sink(dialect: Dialect, verify_after: Option<Duration>, incarnation: u64) -> EventSink {
    let config = SinkConfig {
        dialect,
        verify_after,
        request_timeout: Duration::from_secs(2),
        backoff_max: Duration::from_secs(8),
        ..SinkConfig::default()
    };
    EventSink::new(config, Arc::new(|_, _| Ok(())), secret(incarnation, 2))
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            source: Harness::new(source(0), seed),
            sink: Harness::new(sink(Dialect::V2009, None, 0), seed),
            incarnation: (0, 0),
            packets: BTreeMap::new(),
            sent: 0,
            random: fastrand::Rng::with_seed(seed),
            loss: 0.0,
            events: Vec::new(),
            source_events: Vec::new(),
            requests: 0,
            received: Vec::new(),
            next_number: 0,
            dialect: Dialect::V2009,
            lease: Duration::from_secs(10),
            verify_after: None,
        }
    }

    fn send(&mut self, packet: Packet) {
        // The sender gets no error for a lost message; the machines' timers must suffice.
        if self.random.f64() < self.loss {
            return;
        }
        let delay = Duration::from_micros(self.random.u64(100..200_000));
        self.sent += 1;
        let key = (self.sink.now() + delay, self.sent);
        self.packets.insert(key, (self.incarnation, packet));
    }

    fn subscribe(&mut self, actions: &[&'static str]) {
        let source = Source {
            endpoint: EndpointReference::new(format!("{SOURCE}/thermometer")),
            peer: ([192, 0, 2, 2], 80).into(),
            actions: actions.iter().map(|action| (*action).into()).collect(),
            lease: self.lease,
            base: SINK.into(),
            tree: None,
        };
        let source = Box::new(source);
        self.command(SinkCommand::Subscribe { key: KEY, source });
    }

    fn command(&mut self, command: SinkCommand) {
        let outputs = self.sink.input(Input::Command(command)).unwrap();
        self.apply_sink_outputs(outputs);
    }

    fn notify(&mut self) {
        let text = self.next_number.to_string();
        self.next_number += 1;
        let body = Element::new(Name::new("urn:x", "R")).with_text(text);
        let action = REPORT.into();
        self.source_command(SourceCommand::Notify {
            action,
            body: body.into(),
        });
    }

    fn source_command(&mut self, command: SourceCommand) {
        let outputs = self.source.input(Input::Command(command)).unwrap();
        self.apply_source_outputs(outputs);
    }

    fn apply_source_outputs(&mut self, outputs: Vec<Output<SourceTransmit, SourceEvent>>) {
        for output in outputs {
            match output {
                Output::Transmit(SourceTransmit::Response { token, envelope }) => {
                    self.send(Packet::Answer(token.0, Ok(envelope)));
                }
                Output::Transmit(SourceTransmit::Notify(notification)) => {
                    let text = notification.to_text();
                    self.send(Packet::Notification(notification.delivery, text));
                }
                Output::Transmit(other) => panic!("unexpected tree output: {other:?}"),
                Output::Event(event) => self.source_events.push(event),
            }
        }
    }

    fn apply_sink_outputs(&mut self, outputs: Vec<Output<SinkTransmit, SinkEvent>>) {
        for output in outputs {
            match output {
                Output::Transmit(SinkTransmit::Request {
                    request, envelope, ..
                }) => {
                    self.requests += 1;
                    self.send(Packet::Request(request, envelope));
                }
                Output::Transmit(SinkTransmit::Reply { token, reply }) => {
                    let result = match reply.status {
                        200..=299 => Ok(()),
                        400..=499 => Err(Failure::Refused),
                        _ => Err(Failure::Unreachable),
                    };
                    self.send(Packet::Result(token.0, result));
                }
                Output::Event(SinkEvent::Notification { body, .. }) => {
                    self.received.push(body.text().parse().unwrap());
                }
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    fn arrive(&mut self, (source_then, sink_then): (u64, u64), packet: Packet) {
        let same_source = source_then == self.incarnation.0;
        let same_sink = sink_then == self.incarnation.1;
        match packet {
            Packet::Request(request, envelope) => {
                let text = envelope.to_text();
                let envelope = Envelope::parse(text.as_bytes()).unwrap();
                let to = envelope.addressing.to.clone().unwrap();
                let path = to.strip_prefix(SOURCE).unwrap().to_owned().into();
                let request = Request {
                    token: Token(request),
                    peer: ([192, 0, 2, 1], 5000).into(),
                    base: SOURCE.into(),
                    path,
                    envelope,
                };
                let receive = SourceReceive::Request(Box::new(request));
                let outputs = self.source.input(Input::Receive(receive)).unwrap();
                self.apply_source_outputs(outputs);
            }
            Packet::Notification(delivery, text) => {
                let envelope = Envelope::parse(text.as_bytes()).unwrap();
                let to = envelope.addressing.to.clone().unwrap();
                self.post(Token(delivery), to.strip_prefix(SINK).unwrap(), envelope);
            }
            Packet::Answer(request, answer) if same_sink => {
                let receive = SinkReceive::Answer { request, answer };
                let outputs = self.sink.input(Input::Receive(receive)).unwrap();
                self.apply_sink_outputs(outputs);
            }
            Packet::Result(delivery, result) if same_source => {
                let receive = match result {
                    Ok(()) => SourceReceive::Delivered { delivery },
                    Err(failure) => SourceReceive::Failed { delivery, failure },
                };
                let outputs = self.source.input(Input::Receive(receive)).unwrap();
                self.apply_source_outputs(outputs);
            }
            Packet::Answer(..) | Packet::Result(..) => {}
        }
    }

    fn post(&mut self, token: Token, path: &str, envelope: Envelope) {
        let receive = SinkReceive::Posted {
            token,
            peer: ([192, 0, 2, 2], 6000).into(),
            path: path.to_owned().into(),
            envelope: Box::new(envelope),
        };
        let outputs = self.sink.input(Input::Receive(receive)).unwrap();
        self.apply_sink_outputs(outputs);
    }

    fn run(&mut self, duration: Duration) {
        let end = self.sink.now() + duration;
        loop {
            let now = self.sink.now();
            let packet = self.packets.keys().next().map(|(at, _)| *at);
            let deadlines = [packet, self.source.deadline(), self.sink.deadline()];
            let next = deadlines
                .into_iter()
                .flatten()
                .min()
                .filter(|next| *next <= end);
            let step = next.unwrap_or(end) - now;
            let outputs = self.source.advance(step).unwrap();
            self.apply_source_outputs(outputs);
            let outputs = self.sink.advance(step).unwrap();
            self.apply_sink_outputs(outputs);
            let due = self.packets.first_key_value().map(|((at, _), _)| *at);
            if due.is_some_and(|at| at <= self.sink.now()) {
                let (_, (then, packet)) = self.packets.pop_first().unwrap();
                self.arrive(then, packet);
            } else if next.is_none() {
                return;
            }
        }
    }

    fn restart_source(&mut self) {
        let now = self.sink.now();
        self.incarnation.0 += 1;
        self.source = Harness::new(source(self.incarnation.0), 0);
        self.source.advance(now - Instant::ZERO).unwrap();
    }

    fn restart_sink(&mut self) {
        let now = self.source.now();
        self.incarnation.1 += 1;
        self.sink = Harness::new(sink(self.dialect, self.verify_after, self.incarnation.1), 0);
        self.sink.advance(now - Instant::ZERO).unwrap();
    }

    fn live(&self) -> usize {
        self.source.machine().subscriptions()
    }

    fn ended(&self) -> Vec<&EndReason> {
        let ends = self.events.iter().filter_map(|event| match event {
            SinkEvent::Ended { reason, .. } => Some(reason),
            _ => None,
        });
        ends.collect()
    }

    fn count(&self, matches: impl Fn(&SinkEvent) -> bool) -> usize {
        self.events.iter().filter(|event| matches(event)).count()
    }

    /// Whether the last state event reports a granted subscription.
    fn last_state_is_granted(&self) -> bool {
        let mut events = self.events.iter().rev();
        events
            .find(|event| is_granted(event) || is_failure(event))
            .is_some_and(is_granted)
    }
}

fn is_renewed(event: &SinkEvent) -> bool {
    matches!(event, SinkEvent::Renewed { .. })
}

fn is_granted(event: &SinkEvent) -> bool {
    is_renewed(event) || matches!(event, SinkEvent::Subscribed { .. })
}

fn is_failure(event: &SinkEvent) -> bool {
    matches!(event, SinkEvent::Trouble { .. } | SinkEvent::Ended { .. })
}
