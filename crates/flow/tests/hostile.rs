//! Goal: every protocol violation of a peer ends in a failure that names the side at fault, with a
//! code, which the peer receives; honest mishaps do not.
//!
//! Method: one machine against hand-written frames; and the fuzz target's programs at random.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/flow.rs"]
mod check;

use std::time::Duration;

use bytes::Bytes;
use chappe_flow::message::{
    Entry, FrameWriter, Hello, Message, Place, RollbackPoint, SchemaText, Stage, Welcome, decode,
    seal,
};
use chappe_flow::{
    Channel, Code, Credit, FETCH_WAIT, FETCHES_MAX, Failure, Fault, Grant, Level, LossReason,
    Offer, Position, Receiver, ReceiverCommand, ReceiverConfig, ReceiverEvent, ReceiverReceive,
    Records, RefusalReason, Schema, SchemaId, Sender, SenderCommand, SenderConfig, SenderEvent,
    SenderReceive, SessionCommand, SessionConfig, SessionEvent, Start, Subscription, VERSION_MAX,
};
use chappe_machine::{Input, Instant, Invariant, Machine, Output, drain};
use proptest::collection::vec;
use proptest::prelude::*;

const CHANNEL: Channel = Channel(3);

fn frame(messages: &[Message<'_>]) -> Bytes {
    let mut writer = FrameWriter::default();
    messages.iter().for_each(|message| writer.push(message));
    writer.finish().expect("there are messages")
}

fn records(count: usize) -> Records {
    (0..count).map(|_| (0, [5; 50])).collect()
}

/// An origin whose subscriber is the test.
struct Origin {
    machine: Sender,
    now: Instant,
    events: Vec<SenderEvent>,
    frames: Vec<Bytes>,
}

impl Origin {
    fn new() -> Self {
        Self::with(SenderConfig::default())
    }

    fn with(config: SenderConfig) -> Self {
        Self {
            machine: Sender::new(config),
            now: Instant::ZERO,
            events: Vec::new(),
            frames: Vec::new(),
        }
    }

    fn input(&mut self, input: Input<SenderReceive, SenderCommand>) {
        drain(&mut self.machine, self.now, input, |output| match output {
            Output::Transmit(frame) => self.frames.push(frame),
            Output::Event(event) => self.events.push(event),
        });
        self.machine.check().expect("an invariant");
    }

    fn frame(&mut self, frame: Bytes) {
        self.input(Input::Receive(SenderReceive::Frame(frame)));
    }

    /// One channel, on which elements 1 to 10 were sent.
    fn open() -> Self {
        let mut origin = Self::new();
        origin.frame(frame(&[Message::Hello(hello())]));
        origin.frame(frame(&[subscribe(CHANNEL)]));
        let offer = Offer::Accept(Grant {
            epoch: 9,
            next: 1,
            last: 0,
            level: Level::Power,
            schema: Schema {
                version: 1,
                ..Schema::default()
            },
        });
        let channel = CHANNEL;
        origin.input(Input::Command(SenderCommand::Answer { channel, offer }));
        origin.input(Input::Command(SenderCommand::Live {
            channel,
            epoch: 9,
            first: 1,
            schema_version: 1,
            records: records(10),
        }));
        assert_eq!(origin.machine.counters().elements, 10);
        origin
    }

    fn acknowledge(&mut self, entry: Entry) {
        let mut writer = FrameWriter::default();
        writer.push_acknowledge(&[entry], usize::MAX);
        self.frame(writer.finish().expect("it was pushed"));
    }

    fn failure(&self) -> Option<&Failure> {
        self.events.iter().find_map(|event| match event {
            SenderEvent::Session(SessionEvent::Failed(failure)) => Some(failure),
            _ => None,
        })
    }

    /// The session has failed by the peer's fault with this code, the peer was informed, and no
    /// input is accepted.
    fn assert_blamed(&mut self, code: Code) {
        let failure = self.failure().expect("a failure").clone();
        assert_eq!(
            (failure.fault, failure.code),
            (Fault::Peer, code),
            "{failure}"
        );
        assert_eq!(goodbye(&self.frames), Some(code));
        let (frames, events) = (self.frames.len(), self.events.len());
        self.frame(frame(&[Message::Ping { token: 1 }]));
        assert_eq!((self.frames.len(), self.events.len()), (frames, events));
        assert_eq!(self.machine.deadline(), None);
    }
}

/// The code of the last message of the last frame.
fn goodbye(frames: &[Bytes]) -> Option<Code> {
    match decode(frames.last()?).ok()?.last()?.ok()? {
        Message::Goodbye { code, .. } => Some(code),
        _ => None,
    }
}

fn hello() -> Hello {
    Hello {
        versions: (VERSION_MAX, VERSION_MAX),
        session: 4,
        frame_bytes_max: 100_000,
        window_bytes: 100_000,
        acknowledge_ms: 10,
        dead_after_ms: 20_000,
    }
}

fn subscribe(channel: Channel) -> Message<'static> {
    Message::Subscribe {
        channel,
        start: Start::First,
        earlier: Vec::new(),
        level: Level::Power,
        credit: Credit {
            bytes: 10_000,
            elements: 100,
        },
        serialization: "postcard",
        stream: "plant/temperature",
        known: None,
    }
}

fn fetch(request: u64, channel: Channel) -> Message<'static> {
    Message::Fetch {
        request,
        channel,
        epoch: 9,
        from: 1,
        next: 5,
        bytes: 1_000,
    }
}

/// The acknowledgement of a subscriber that has stored the first `stored`.
fn entry(stored: u64) -> Entry {
    Entry {
        channel: CHANNEL.0,
        stage: 0,
        stored,
        elements: stored,
        bytes: stored * 59,
        elements_limit: 100 + stored,
        bytes_limit: 10_000 + stored * 59,
        refused: 0,
    }
}

#[test]
fn an_honest_acknowledgement_is_taken() {
    let mut origin = Origin::open();
    origin.acknowledge(entry(7));
    origin.acknowledge(entry(10));
    assert_eq!(origin.failure(), None);
    let position = Position {
        epoch: 9,
        sequence: 10,
    };
    let last = SenderEvent::Acknowledged {
        channel: CHANNEL,
        position,
        refused: 0,
    };
    assert_eq!(origin.events.last(), Some(&last));
    assert_eq!(origin.machine.in_flight().bytes, 0);
}

#[test]
fn a_frame_of_repeated_subscriptions_is_answered_once() {
    const SCHEMA_BYTES: usize = 50_000;
    let mut origin = Origin::new();
    origin.frame(frame(&[Message::Hello(hello())]));
    origin.frame(frame(&[subscribe(CHANNEL)]));
    let schema = Schema {
        version: 1,
        bytes: vec![b' '; SCHEMA_BYTES].into(),
        ..Schema::default()
    };
    let offer = Offer::Accept(Grant {
        epoch: 9,
        next: 1,
        last: 0,
        level: Level::Power,
        schema,
    });
    let channel = CHANNEL;
    origin.input(Input::Command(SenderCommand::Answer { channel, offer }));
    let before = origin.machine.counters().bytes_sent;
    assert!(before >= SCHEMA_BYTES as u64);
    origin.frame(frame(&vec![subscribe(CHANNEL); 1_000]));
    origin.assert_blamed(Code::Contradiction);
    let answered = origin.machine.counters().bytes_sent - before;
    assert!(answered < 1_000, "{answered} bytes answer one frame");
}

#[test]
fn acknowledgements_of_unsent_elements_are_refused() {
    let wrong = [
        entry(11),
        Entry {
            elements: 11,
            ..entry(10)
        },
        Entry {
            bytes: 591,
            ..entry(10)
        },
        Entry {
            stage: 1,
            ..entry(0)
        },
        entry(u64::MAX / 100),
    ];
    for entry in wrong {
        let mut origin = Origin::open();
        origin.acknowledge(entry);
        origin.assert_blamed(Code::AcknowledgedUnsent);
    }
}

#[test]
fn credit_and_acknowledgements_never_go_back() {
    let wrong = [
        Entry {
            bytes_limit: 10_000,
            ..entry(8)
        },
        Entry {
            elements_limit: 100,
            ..entry(8)
        },
        Entry {
            stored: 3,
            ..entry(8)
        },
        Entry {
            elements: 3,
            ..entry(8)
        },
    ];
    for later in wrong {
        let mut origin = Origin::open();
        origin.acknowledge(entry(7));
        origin.acknowledge(later);
        origin.assert_blamed(Code::WentBack);
    }
}

#[test]
fn channels_that_never_were_are_refused() {
    let mut origin = Origin::open();
    origin.acknowledge(Entry {
        channel: 77,
        ..entry(0)
    });
    origin.assert_blamed(Code::UnknownChannel);
    let mut origin = Origin::open();
    origin.frame(frame(&[fetch(1, Channel(8))]));
    origin.assert_blamed(Code::UnknownChannel);
}

#[test]
fn a_channel_that_was_left_is_not_an_error() {
    let mut origin = Origin::open();
    let left = Message::Unsubscribe {
        channel: CHANNEL,
        reason: RefusalReason::Ended,
        text: "",
    };
    origin.frame(frame(std::slice::from_ref(&left)));
    origin.frame(frame(&[left]));
    origin.acknowledge(entry(3));
    origin.frame(frame(&[fetch(7, CHANNEL)]));
    assert_eq!(origin.failure(), None);
    let answer = decode(origin.frames.last().expect("a frame")).expect("a sound frame");
    let answer: Vec<_> = answer.map(Result::unwrap).collect();
    let none = Message::Fetched {
        request: 7,
        first: 1,
        records: Records::default(),
    };
    assert_eq!(answer, [none], "a repair is answered anyway");
}

#[test]
fn a_channel_is_subscribed_once_in_a_session() {
    let mut origin = Origin::open();
    origin.frame(frame(&[subscribe(CHANNEL)]));
    origin.assert_blamed(Code::Contradiction);
    let mut origin = Origin::open();
    origin.frame(frame(&[
        Message::Unsubscribe {
            channel: CHANNEL,
            reason: RefusalReason::Ended,
            text: "",
        },
        subscribe(CHANNEL),
    ]));
    origin.assert_blamed(Code::Contradiction);
    assert_eq!(origin.machine.channels().count(), 0, "it is not revived");
}

#[test]
fn more_open_repairs_than_the_limit_are_refused() {
    let mut origin = Origin::open();
    for request in 0..FETCHES_MAX as u64 {
        origin.frame(frame(&[fetch(request, CHANNEL)]));
    }
    assert_eq!(origin.failure(), None);
    origin.frame(frame(&[fetch(99, CHANNEL)]));
    origin.assert_blamed(Code::TooLarge);
}

#[test]
fn a_repair_that_is_not_answered_is_given_up_and_a_late_answer_dropped() {
    let mut origin = Origin::open();
    origin.input(Input::Command(SenderCommand::Session(
        SessionCommand::Fetch {
            channel: CHANNEL,
            epoch: 9,
            from: 1,
            next: 5,
        },
    )));
    let start = origin.now;
    while origin.now < start + FETCH_WAIT {
        let ended = |event: &SenderEvent| {
            matches!(event, SenderEvent::Session(SessionEvent::FetchEnded { .. }))
        };
        assert!(!origin.events.iter().any(ended), "{:?}", origin.now);
        // The peer is alive, but does not answer the repair.
        origin.frame(frame(&[Message::Pong { token: 1 }]));
        origin.now = origin.machine.deadline().expect("a deadline");
        origin.input(Input::Timeout);
    }
    let ended = SenderEvent::Session(SessionEvent::FetchEnded {
        channel: CHANNEL,
        epoch: 9,
        from: 1,
        next: 5,
        missing: 4,
    });
    assert_eq!(origin.events.last(), Some(&ended));
    let events = origin.events.len();
    origin.frame(frame(&[Message::Fetched {
        request: 1,
        first: 1,
        records: records(4),
    }]));
    assert_eq!((origin.failure(), origin.events.len()), (None, events));
}

#[test]
fn another_version_is_refused_by_name() {
    let mut origin = Origin::new();
    origin.frame(frame(&[Message::Hello(Hello {
        versions: (3, 5),
        ..hello()
    })]));
    let failure = origin.failure().expect("a failure");
    assert_eq!(
        (failure.fault, failure.code),
        (Fault::Connection, Code::Version)
    );
    assert!(failure.text.contains("versions 2 to 2"), "{failure}");
    assert!(failure.text.contains("the peer 3 to 5"), "{failure}");
    assert!(failure.hint().is_some());
    // The subscriber reports the same when it receives the goodbye.
    let mut subscriber = Subscriber::new();
    subscriber.frame(origin.frames[0].clone());
    let failure = subscriber.failure().expect("a failure");
    assert_eq!(
        (failure.fault, failure.code),
        (Fault::Connection, Code::Version)
    );
    assert!(failure.text.contains("the peer 2 to 2"), "{failure}");
}

#[test]
fn the_newest_common_version_is_agreed() {
    let mut origin = Origin::new();
    origin.frame(frame(&[Message::Hello(Hello {
        versions: (1, 9),
        ..hello()
    })]));
    assert_eq!(origin.machine.version(), Some(VERSION_MAX));
}

#[test]
fn nothing_comes_before_hello_and_no_second_hello_after() {
    let mut origin = Origin::new();
    origin.frame(frame(&[subscribe(CHANNEL)]));
    origin.assert_blamed(Code::Unexpected);
    let mut origin = Origin::open();
    origin.frame(frame(&[Message::Hello(hello())]));
    origin.assert_blamed(Code::Contradiction);
}

#[test]
fn a_subscriber_cannot_send_an_origins_messages() {
    let mut origin = Origin::open();
    origin.frame(frame(&[Message::Ended { channel: CHANNEL }]));
    origin.assert_blamed(Code::Unexpected);
}

#[test]
fn frames_beyond_the_limit_and_malformed_ones_are_refused() {
    let mut origin = Origin::open();
    origin.frame(Bytes::from(vec![
        0;
        SessionConfig::default().frame_bytes_max
            + 1
    ]));
    origin.assert_blamed(Code::TooLarge);
    let mut origin = Origin::open();
    origin.frame(seal(&[99, 1, 1]));
    let failure = origin.failure().expect("a failure");
    assert!(
        failure.text.contains("unknown message kind 99"),
        "{failure}"
    );
    origin.assert_blamed(Code::Malformed);
}

#[test]
fn a_damaged_frame_ends_the_session() {
    for damaged in [&b"GET / HTTP/1.1\r\n"[..], b"no frame", b""] {
        let mut origin = Origin::open();
        origin.frame(Bytes::from_static(damaged));
        let failure = origin.failure().expect("a failure");
        assert_eq!(
            (failure.fault, failure.code),
            (Fault::Connection, Code::Damaged)
        );
        assert_eq!(goodbye(&origin.frames), Some(Code::Damaged));
    }
}

#[test]
fn too_many_channels_are_refused_one_by_one_then_altogether() {
    let mut origin = Origin::with(SenderConfig {
        channels_max: 4,
        ..SenderConfig::default()
    });
    origin.frame(frame(&[Message::Hello(hello())]));
    for number in 0..8 {
        origin.frame(frame(&[subscribe(Channel(number))]));
    }
    assert_eq!(origin.failure(), None);
    let asked = origin.events.iter();
    let asked = asked.filter(|event| matches!(event, SenderEvent::Subscribe { .. }));
    assert_eq!(asked.count(), 4);
    origin.frame(frame(&[subscribe(Channel(8))]));
    origin.assert_blamed(Code::TooManyChannels);
}

/// A subscriber whose origin is the test.
struct Subscriber {
    machine: Receiver,
    now: Instant,
    events: Vec<ReceiverEvent>,
    frames: Vec<Bytes>,
}

impl Subscriber {
    fn new() -> Self {
        let config = ReceiverConfig {
            window_bytes: 50_000,
            credit: Credit {
                bytes: 10_000,
                elements: 100,
            },
            ..ReceiverConfig::default()
        };
        let mut subscriber = Self {
            machine: Receiver::new(config, 1),
            now: Instant::ZERO,
            events: Vec::new(),
            frames: Vec::new(),
        };
        subscriber.input(Input::Command(ReceiverCommand::Subscribe {
            channel: CHANNEL,
            subscription: Subscription::new("plant/temperature", Start::First),
        }));
        subscriber
    }

    fn input(&mut self, input: Input<ReceiverReceive, ReceiverCommand>) {
        drain(&mut self.machine, self.now, input, |output| match output {
            Output::Transmit(frame) => self.frames.push(frame),
            Output::Event(event) => self.events.push(event),
        });
        self.machine.check().expect("an invariant");
    }

    fn frame(&mut self, frame: Bytes) {
        self.input(Input::Receive(ReceiverReceive::Frame(frame)));
    }

    fn welcomed() -> Self {
        let mut subscriber = Self::new();
        let first = subscriber.frames[0].clone();
        let Some(Ok(Message::Hello(hello))) = decode(&first).expect("sound").next() else {
            panic!("no Hello");
        };
        subscriber.frame(frame(&[Message::Welcome(Welcome {
            version: VERSION_MAX,
            session: hello.session,
            frame_bytes_max: 100_000,
            dead_after_ms: 20_000,
        })]));
        subscriber
    }

    /// One channel, in epoch 9, from number 1 on.
    fn open() -> Self {
        let mut subscriber = Self::welcomed();
        subscriber.frame(frame(&[accepted(CHANNEL)]));
        subscriber
    }

    fn failure(&self) -> Option<&Failure> {
        self.events.iter().find_map(|event| match event {
            ReceiverEvent::Session(SessionEvent::Failed(failure)) => Some(failure),
            _ => None,
        })
    }

    fn assert_blamed(&self, code: Code) {
        let failure = self.failure().expect("a failure");
        assert_eq!(
            (failure.fault, failure.code),
            (Fault::Peer, code),
            "{failure}"
        );
        assert_eq!(goodbye(&self.frames), Some(code));
    }

    fn stored(&self) -> Vec<(u64, usize)> {
        let stored = self.events.iter().filter_map(|event| match event {
            ReceiverEvent::Store { first, records, .. } => Some((*first, records.len())),
            _ => None,
        });
        stored.collect()
    }
}

fn accepted(channel: Channel) -> Message<'static> {
    Message::Accepted {
        channel,
        rollback: RollbackPoint::No,
        epoch: 9,
        next: 1,
        last: 0,
        level: Level::Power,
        schema: SchemaText {
            version: 1,
            id: SchemaId::default(),
            bytes: Some(b"schema"),
        },
    }
}

fn elements(first: u64, count: usize) -> Message<'static> {
    Message::Records {
        place: place(0, 0, 9),
        first,
        schema: 0,
        behind: 0,
        records: records(count),
    }
}

fn place(number: u32, first: u64, epoch: u64) -> Place {
    Place {
        channel: CHANNEL,
        stage: Stage {
            number,
            first,
            kept: 0,
        },
        epoch,
    }
}

#[test]
fn numbers_that_repeat_or_are_left_out_are_refused() {
    for wrong in [
        elements(1, 5),
        elements(3, 5),
        elements(5, 1),
        elements(7, 2),
    ] {
        let mut subscriber = Subscriber::open();
        subscriber.frame(frame(&[elements(1, 5)]));
        subscriber.frame(frame(&[wrong]));
        assert_eq!(subscriber.stored(), [(1, 5)]);
        subscriber.assert_blamed(Code::Contradiction);
    }
    let lost = |from, next| Message::Lost {
        place: place(0, 0, 9),
        from,
        next,
        reason: LossReason::Trimmed,
    };
    for wrong in [lost(1, 9), lost(5, 7), lost(7, 9)] {
        let mut subscriber = Subscriber::open();
        subscriber.frame(frame(&[elements(1, 5)]));
        subscriber.frame(frame(&[wrong]));
        subscriber.assert_blamed(Code::Contradiction);
    }
    let mut subscriber = Subscriber::open();
    subscriber.frame(frame(&[elements(1, 5), lost(6, 9), elements(9, 1)]));
    assert_eq!(subscriber.failure(), None);
    assert_eq!(subscriber.stored(), [(1, 5), (9, 1)]);
}

#[test]
fn more_than_the_credit_is_refused() {
    let mut subscriber = Subscriber::open();
    for round in 0..10 {
        subscriber.frame(frame(&[elements(1 + round * 10, 10)]));
    }
    assert_eq!(subscriber.failure(), None);
    subscriber.frame(frame(&[elements(101, 1)]));
    subscriber.assert_blamed(Code::CreditExceeded);
}

#[test]
fn epochs_and_stages_do_not_contradict_each_other() {
    let records = |place, first| Message::Records {
        place,
        first,
        schema: 0,
        behind: 0,
        records: records(1),
    };
    let wrong = [
        records(place(0, 0, 10), 6),
        records(place(2, 6, 10), 6),
        records(place(1, 7, 10), 6),
        // Back to number 3, in the same epoch.
        records(place(1, 3, 9), 3),
    ];
    for message in wrong {
        let mut subscriber = Subscriber::open();
        subscriber.frame(frame(&[elements(1, 5)]));
        subscriber.frame(frame(&[message]));
        subscriber.assert_blamed(Code::Contradiction);
    }
    // In a new epoch it may be rolled back, with a report.
    let mut subscriber = Subscriber::open();
    subscriber.frame(frame(&[elements(1, 5)]));
    subscriber.frame(frame(&[records(place(1, 3, 10), 3)]));
    assert_eq!(subscriber.failure(), None);
    let rollbacks = subscriber.events.iter();
    let rollbacks = rollbacks.filter(|event| matches!(event, ReceiverEvent::Rollback { .. }));
    assert_eq!(rollbacks.count(), 1);
    assert_eq!(subscriber.stored(), [(1, 5), (3, 1)]);
    // An epoch whose elements are still being stored does not return.
    subscriber.frame(frame(&[records(place(2, 4, 9), 4)]));
    subscriber.assert_blamed(Code::Contradiction);
}

#[test]
fn an_origin_cannot_send_a_subscribers_messages() {
    let mut subscriber = Subscriber::open();
    subscriber.frame(frame(&[subscribe(CHANNEL)]));
    subscriber.assert_blamed(Code::Unexpected);
    let mut subscriber = Subscriber::new();
    subscriber.frame(frame(&[elements(1, 1)]));
    subscriber.assert_blamed(Code::Unexpected);
    let mut subscriber = Subscriber::welcomed();
    subscriber.frame(frame(&[accepted(Channel(9))]));
    subscriber.assert_blamed(Code::UnknownChannel);
}

#[test]
fn elements_before_their_grant_or_schema_are_refused() {
    let mut subscriber = Subscriber::welcomed();
    subscriber.frame(frame(&[elements(1, 5)]));
    subscriber.assert_blamed(Code::Unexpected);
    let mut subscriber = Subscriber::open();
    subscriber.frame(frame(&[Message::Records {
        place: place(0, 0, 9),
        first: 1,
        schema: 1,
        behind: 0,
        records: records(1),
    }]));
    subscriber.assert_blamed(Code::Contradiction);
    assert_eq!(subscriber.stored(), []);
}

#[test]
fn a_channel_is_granted_once_and_its_schemas_come_in_order() {
    let mut subscriber = Subscriber::open();
    subscriber.frame(frame(&[accepted(CHANNEL)]));
    subscriber.assert_blamed(Code::Contradiction);
    for index in [0, 2] {
        let mut subscriber = Subscriber::open();
        subscriber.frame(frame(&[Message::Schema {
            channel: CHANNEL,
            index,
            schema: SchemaText {
                version: 2,
                id: SchemaId::default(),
                bytes: Some(b"schema"),
            },
        }]));
        subscriber.assert_blamed(Code::Contradiction);
    }
}

#[test]
fn elements_on_an_ending_channel_are_dropped() {
    let mut subscriber = Subscriber::open();
    subscriber.input(Input::Command(ReceiverCommand::Unsubscribe {
        channel: CHANNEL,
        reason: RefusalReason::Ended,
        text: String::new(),
    }));
    subscriber.frame(frame(&[
        elements(1, 5),
        Message::Ended { channel: CHANNEL },
    ]));
    subscriber.frame(frame(&[elements(6, 5)]));
    assert_eq!((subscriber.failure(), subscriber.stored()), (None, vec![]));
    assert_eq!(subscriber.machine.counters().stale, 2);
}

#[test]
fn a_schema_that_was_not_sent_must_be_known() {
    let mut subscriber = Subscriber::welcomed();
    let mut message = accepted(CHANNEL);
    if let Message::Accepted { schema, .. } = &mut message {
        schema.bytes = None;
    }
    subscriber.frame(frame(&[message]));
    subscriber.assert_blamed(Code::Contradiction);
}

#[test]
fn storing_undelivered_elements_is_the_callers_fault() {
    let mut subscriber = Subscriber::open();
    let position = Position {
        epoch: 9,
        sequence: 1,
    };
    let channel = CHANNEL;
    subscriber.input(Input::Command(ReceiverCommand::Stored {
        channel,
        position,
    }));
    let failure = subscriber.failure().expect("a failure");
    assert_eq!((failure.fault, failure.code), (Fault::Caller, Code::Misuse));
}

#[test]
fn a_silent_peer_is_given_up() {
    let mut origin = Origin::open();
    while let Some(at) = origin.machine.deadline() {
        assert!(at <= Instant::ZERO + Duration::from_secs(20), "{at:?}");
        origin.now = at;
        origin.input(Input::Timeout);
    }
    assert_eq!(origin.now, Instant::ZERO + Duration::from_secs(20));
    let failure = origin.failure().expect("a failure");
    assert_eq!(
        (failure.fault, failure.code),
        (Fault::Connection, Code::Silent)
    );
    assert!(
        origin.frames.len() < 40,
        "{} frames to nobody",
        origin.frames.len()
    );
}

#[test]
fn a_handshake_that_does_not_end_is_given_up() {
    let mut origin = Origin::new();
    origin.input(Input::Timeout);
    let mut subscriber = Subscriber::new();
    for _ in 0..20 {
        if let Some(at) = origin.machine.deadline() {
            origin.now = at;
            origin.input(Input::Timeout);
        }
        if let Some(at) = subscriber.machine.deadline() {
            subscriber.now = at;
            subscriber.input(Input::Timeout);
        }
    }
    assert_eq!(
        origin.failure().map(|failure| failure.code),
        Some(Code::Handshake)
    );
    assert_eq!(
        subscriber.failure().map(|failure| failure.code),
        Some(Code::Handshake)
    );
    assert_eq!(subscriber.now, Instant::ZERO + Duration::from_secs(10));
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_peer_breaks_an_invariant(bytes in vec(any::<u8>(), 0..2_000)) {
        check::check(&bytes);
    }
}
