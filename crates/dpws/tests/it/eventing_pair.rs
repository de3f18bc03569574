//! Goal: a sink keeps its subscription through lost messages and restarts of either side, and
//! delivers every event once and in order.
//! Method: both machines on one virtual clock, connected by a seeded channel with delay and loss;
//! their invariants are checked at every step.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chappe_dpws::eventing::message::{DELIVERY_MODE_PUSH, Subscribe};
use chappe_dpws::eventing::{
    EndReason, EndStatus, EventSink, EventSource, Expiration, Failure, Offer, Request, SinkCommand,
    SinkConfig, SinkEvent, SinkReceive, SinkRefusal, SinkTransmit, Source, SourceCommand,
    SourceConfig, SourceEvent, SourceReceive, SourceRefusal, SourceTransmit, SubscriptionKey,
    Token, TroubleReason,
};
use chappe_dpws::{Dialect, exchange};
use chappe_machine::{Harness, Input, Instant, Output};
use chappe_soap::{Addressing, EndpointReference, Envelope};
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

#[test]
fn subscription_is_renewed_until_stopped() {
    for dialect in Dialect::ALL {
        let mut world = World::new(1);
        world.dialect = dialect;
        world.restart_sink();
        world.subscribe(&[REPORT]);
        for _ in 0..60 {
            world.run(Duration::from_secs(1));
            world.notify();
        }
        world.run(Duration::from_secs(1));
        assert_eq!(world.received, (0..60).collect::<Vec<_>>(), "{dialect:?}");
        // Renewal after 50 to 75 % of 10 s, during 60 s.
        let renewed = world.count(is_renewed);
        assert!((7..=12).contains(&renewed), "{renewed} renewals");
        world.command(SinkCommand::Stop);
        world.run(Duration::from_secs(1));
        assert_eq!(world.ended(), [&EndReason::Unsubscribed]);
        assert_eq!(world.live(), 0);
        assert_eq!(world.sink.deadline(), None);
    }
}

#[test]
fn lossy_channel_keeps_order_and_deduplicates() {
    for seed in 0..40 {
        let mut world = World::new(seed);
        world.subscribe(&[REPORT]);
        world.run(Duration::from_secs(1));
        world.loss = 0.2;
        for _ in 0..100 {
            world.run(Duration::from_millis(700));
            world.notify();
        }
        world.loss = 0.0;
        // Leases of orphaned attempts expire and pauses end.
        world.run(Duration::from_secs(40));
        assert_eq!(world.live(), 1, "seed {seed}");
        assert!(
            world.last_state_is_granted(),
            "seed {seed}: {:?}",
            world.events
        );
        let rising = world.received.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(rising, "seed {seed}: {:?}", world.received);
        if world.ended().is_empty() {
            let all: Vec<_> = (0..100).collect();
            assert_eq!(
                world.received, all,
                "seed {seed}: events are lost only with an end"
            );
        }
        let received_before = world.received.len();
        for _ in 0..10 {
            world.notify();
            world.run(Duration::from_secs(1));
        }
        assert_eq!(
            world.received.len(),
            received_before + 10,
            "seed {seed}: delivery has recovered"
        );
    }
}

#[test]
fn sink_resubscribes_after_source_restart() {
    let mut world = World::new(3);
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    world.restart_source();
    // Automatically when a renewal fails, at the latest after three quarters of the lease.
    world.run(Duration::from_secs(8));
    assert_eq!(world.live(), 1);
    assert_eq!(world.ended(), [&EndReason::Forgotten]);
    // Faster when the application noticed the restart.
    world.restart_source();
    world.command(SinkCommand::Verify { key: KEY });
    world.run(Duration::from_secs(1));
    assert_eq!(world.live(), 1);
    world.notify();
    world.run(Duration::from_secs(1));
    assert_eq!(world.received, [0]);
}

#[test]
fn verifying_live_subscription_changes_nothing() {
    let mut world = World::new(4);
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    world.command(SinkCommand::Verify { key: KEY });
    world.run(Duration::from_secs(1));
    assert!(world.ended().is_empty());
    let (_, remaining) = world.sink.machine().subscriptions().next().unwrap();
    let remaining = remaining.unwrap();
    assert!(
        remaining > Duration::from_secs(7) && remaining < Duration::from_secs(9),
        "{remaining:?}"
    );
}

#[test]
fn recovered_subscription_is_reported() {
    let mut world = World::new(4);
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    world.loss = 1.0;
    world.command(SinkCommand::Verify { key: KEY });
    while world.last_state_is_granted() {
        world.run(Duration::from_millis(100));
    }
    world.loss = 0.0;
    world.command(SinkCommand::Verify { key: KEY });
    // One round trip; the next renewal is due later.
    world.run(Duration::from_millis(400));
    assert!(world.last_state_is_granted(), "{:?}", world.events);
    assert!(world.ended().is_empty());
}

#[test]
fn restarted_sink_leaves_no_orphan() {
    let mut world = World::new(5);
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    world.restart_sink();
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    assert_eq!(
        world.live(),
        2,
        "the source has not noticed the restart yet"
    );
    for _ in 0..8 {
        world.notify();
        world.run(Duration::from_secs(1));
    }
    assert_eq!(
        world.live(),
        1,
        "the orphan rejected its notifications and ended"
    );
    assert!(world.sink.machine().refused(SinkRefusal::Path) >= 4);
    assert_eq!(world.received, (0..8).collect::<Vec<_>>());
}

#[test]
fn renewal_racing_with_expiry_recovers() {
    let mut raced = 0;
    for seed in 0..20 {
        let mut world = World::new(seed);
        // A round trip takes up to 0.4 s and a renewal starts after 0.5 s at the earliest.
        world.lease = Duration::from_millis(650);
        world.subscribe(&[REPORT]);
        for _ in 0..100 {
            world.run(Duration::from_millis(100));
            world.notify();
        }
        raced += world.ended().len();
        let rising = world.received.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(
            rising && world.received.len() > 25,
            "seed {seed}: {:?}",
            world.received
        );
        assert!(world.live() <= 2, "seed {seed}");
    }
    assert!(raced > 0, "no run had a race");
}

#[test]
fn unsubscribe_wins_over_pending_renewal() {
    for seed in 0..20 {
        let mut world = World::new(seed);
        world.subscribe(&[REPORT]);
        let renewing = |world: &World| {
            let renew = |packet: &Packet| match packet {
                Packet::Request(_, envelope) => envelope.addressing.action.ends_with("/Renew"),
                _ => false,
            };
            world.packets.values().any(|(_, packet)| renew(packet))
        };
        while !renewing(&world) {
            world.run(Duration::from_millis(1));
        }
        world.command(SinkCommand::Unsubscribe { key: KEY });
        world.run(Duration::from_secs(1));
        assert_eq!(world.ended(), [&EndReason::Unsubscribed]);
        assert_eq!(
            (world.live(), world.count(is_renewed)),
            (0, 0),
            "seed {seed}"
        );
        assert_eq!(world.sink.deadline(), None);
    }
}

#[test]
fn silence_is_verified_if_configured() {
    let mut world = World::new(13);
    world.verify_after = Some(Duration::from_secs(2));
    world.restart_sink();
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    world.restart_source();
    world.run(Duration::from_secs(3));
    assert_eq!(world.live(), 1, "before the renewal is due");
    assert_eq!(world.ended(), [&EndReason::Forgotten]);
}

#[test]
fn dead_source_is_retried_with_growing_pauses() {
    let mut world = World::new(6);
    world.loss = 1.0;
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(60));
    let troubles = world.count(|event| {
        matches!(
            event,
            SinkEvent::Trouble {
                reason: TroubleReason::Unreachable(_),
                hint: Some(_),
                ..
            }
        )
    });
    // Each attempt takes 2 s, the pauses are 1, 2, 4, 8, 8, … s.
    assert!((6..=9).contains(&troubles), "{troubles} attempts");
    world.loss = 0.0;
    world.run(Duration::from_secs(12));
    assert_eq!(world.live(), 1);
}

#[test]
fn unanswered_lease_expires() {
    let mut world = World::new(7);
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    world.loss = 1.0;
    world.run(Duration::from_secs(12));
    assert_eq!(world.ended(), [&EndReason::Expired]);
    assert_eq!(world.live(), 0);
    world.loss = 0.0;
    world.run(Duration::from_secs(12));
    assert_eq!(world.live(), 1);
}

#[test]
fn sink_resubscribes_after_source_shutdown() {
    let mut world = World::new(8);
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    world.source_command(SourceCommand::Shutdown);
    world.run(Duration::from_secs(3));
    let shutting_down = |reason: &&EndReason| {
        matches!(
            reason,
            EndReason::Source {
                status: EndStatus::SourceShuttingDown,
                ..
            }
        )
    };
    assert_eq!(
        world
            .ended()
            .iter()
            .filter(|reason| shutting_down(reason))
            .count(),
        1
    );
    assert!(world.source.machine().refused(SourceRefusal::Stopping) > 0);
    world.restart_source();
    world.run(Duration::from_secs(15));
    assert_eq!(world.live(), 1);
}

#[test]
fn forged_notifications_are_rejected() {
    let mut world = World::new(9);
    world.subscribe(&[REPORT]);
    world.run(Duration::from_secs(1));
    let version = Dialect::V2009.addressing();
    let forged = |action: &'static str| {
        Envelope::new(Addressing::new(version, action))
            .with_body(Element::new(Name::new("urn:x", "R")).with_text("666"))
    };
    for path in [
        "/events/",
        "/events",
        "/",
        "",
        "/events/0123456789abcdef0123456789abcdef",
    ] {
        world.post(Token(1), path, forged(REPORT));
    }
    assert_eq!(world.sink.machine().refused(SinkRefusal::Path), 5);
    assert!(world.received.is_empty());
    // A correct path still admits only subscribed actions.
    world.notify();
    let path = world.packets.values().find_map(|(_, packet)| match packet {
        Packet::Notification(_, text) => Envelope::parse(text.as_bytes()).unwrap().addressing.to,
        _ => None,
    });
    let path = path.unwrap();
    let path = path.strip_prefix(SINK).unwrap();
    world.post(Token(1), path, forged("urn:x/Other"));
    assert_eq!(world.sink.machine().refused(SinkRefusal::Action), 1);
    world.post(
        Token(1),
        path,
        Envelope::new(Addressing::new(version, REPORT)),
    );
    assert_eq!(world.sink.machine().refused(SinkRefusal::Malformed), 1);
    assert_eq!(world.live(), 1);
}

#[test]
fn rejected_subscription_backs_off_with_hint() {
    let mut world = World::new(10);
    world.subscribe(&["urn:x/Other"]);
    world.run(Duration::from_secs(1));
    let SinkEvent::Trouble { reason, hint, .. } = &world.events[0] else {
        panic!("{:?}", world.events);
    };
    assert!(matches!(reason, TroubleReason::Refused(_)));
    assert_eq!(
        *hint,
        Some("compare the requested actions with the service's WSDL")
    );
    world.run(Duration::from_secs(60));
    assert!(world.source.machine().refused(SourceRefusal::FilterAction) < 12);
}

#[test]
fn late_grant_is_unsubscribed() {
    let mut world = World::new(11);
    world.subscribe(&[REPORT]);
    // The request arrives; its answer stays in flight until it is abandoned.
    world.run(Duration::from_millis(1));
    let (_, (_, packet)) = world.packets.pop_first().unwrap();
    world.arrive((0, 0), packet);
    let (_, (_, answer)) = world.packets.pop_first().unwrap();
    world.command(SinkCommand::Unsubscribe { key: KEY });
    assert_eq!(world.live(), 1);
    world.arrive((0, 0), answer);
    world.run(Duration::from_secs(1));
    assert_eq!(world.live(), 0);
}

#[test]
fn hostile_answers_change_nothing() {
    let version = Dialect::V2009.addressing();
    let sink_endpoint = EndpointReference::new("http://h/");
    let reply = exchange::request(version, &sink_endpoint, "urn:any", "urn:uuid:1");
    let wrong = Subscribe {
        end_to: None,
        mode: Some(DELIVERY_MODE_PUSH.into()),
        notify_to: None,
        expires: Some(Expiration::At(0)),
        filter: None,
        tree: Ok(None),
    };
    for answer in [reply.clone(), reply.with_body(wrong.to_element(version))] {
        let mut world = World::new(12);
        world.subscribe(&[REPORT]);
        world.packets.clear();
        for request in [0, 1, 1, 7] {
            world.arrive(
                (0, 0),
                Packet::Answer(request, Ok(Box::new(answer.clone()))),
            );
        }
        assert!(matches!(
            &world.events[..],
            [SinkEvent::Trouble {
                reason: TroubleReason::Unusable(_),
                ..
            }]
        ));
    }
}
