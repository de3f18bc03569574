//! Goal: a subscriber alone keeps its contract: the changes it requests of the log, their order,
//! and its acknowledgements.
//!
//! Method: one machine, an origin whose frames are written by hand, and a log that answers as each
//! test specifies. The machine's invariants are checked after each input.

use std::time::Duration;

use bytes::Bytes;
use chappe_flow::message::{
    Entry, FrameWriter, Hello, Message, Place, RollbackPoint, SchemaText, Stage, Welcome, decode,
};
use chappe_flow::{
    Channel, DeadLetterReason, Level, LossReason, Position, Records, RefusalReason, Schema,
    SchemaId, SessionEvent, Start, Subscription, VERSION_MAX,
};
use chappe_link::{
    StorageOutcome, StorageRequest, Subscriber, SubscriberCommand, SubscriberConfig,
    SubscriberEvent, SubscriberReceive,
};
use chappe_machine::{Input, Instant, Invariant as _, Machine as _, Output, drain};

const ONE: Channel = Channel(0);
const TWO: Channel = Channel(1);
const EPOCH: u64 = 9;

fn at(epoch: u64, sequence: u64) -> Position {
    Position { epoch, sequence }
}

fn records(count: usize) -> Records {
    (0..count).map(|_| (0, [5; 50])).collect()
}

fn frame(messages: &[Message<'_>]) -> Bytes {
    let mut writer = FrameWriter::default();
    messages.iter().for_each(|message| writer.push(message));
    writer.finish().expect("there are messages")
}

const fn place(channel: Channel) -> Place {
    Place {
        channel,
        stage: Stage {
            number: 0,
            first: 0,
            kept: 0,
        },
        epoch: EPOCH,
    }
}

fn schema_text(version: u32) -> SchemaText<'static> {
    SchemaText {
        version,
        id: SchemaId([version as u8; 8]),
        bytes: Some(b"schema"),
    }
}

fn schema(version: u32) -> Schema {
    Schema {
        id: SchemaId([version as u8; 8]),
        version,
        bytes: Bytes::from_static(b"schema"),
    }
}

fn accepted(channel: Channel, next: u64) -> Message<'static> {
    Message::Accepted {
        channel,
        rollback: RollbackPoint::No,
        epoch: EPOCH,
        next,
        last: next - 1,
        level: Level::Power,
        schema: schema_text(1),
    }
}

/// Elements by the schema with this index.
fn elements(place: Place, first: u64, count: usize, schema: u32) -> Message<'static> {
    Message::Records {
        place,
        first,
        schema,
        behind: 0,
        records: records(count),
    }
}

fn lost(place: Place, from: u64, next: u64) -> Message<'static> {
    Message::Lost {
        place,
        from,
        next,
        reason: LossReason::Trimmed,
    }
}

fn append(first: Position, count: usize, schema_version: u32) -> StorageRequest {
    StorageRequest::Append {
        first,
        schema_version,
        records: records(count),
        behind: 0,
    }
}

/// A subscriber whose origin and log are written by hand.
struct Alone {
    machine: Subscriber,
    now: Instant,
    frames: Vec<Bytes>,
    events: Vec<SubscriberEvent>,
}

impl Alone {
    /// Completes the handshake.
    fn new() -> Self {
        let mut alone = Self {
            machine: Subscriber::new(SubscriberConfig::default(), 1),
            now: Instant::ZERO,
            frames: Vec::new(),
            events: Vec::new(),
        };
        alone.command(SubscriberCommand::Open);
        let hello = alone.frames[0].clone();
        let Some(Ok(Message::Hello(Hello { session, .. }))) = decode(&hello).expect("sound").next()
        else {
            panic!("no Hello");
        };
        alone.receive(&[Message::Welcome(Welcome {
            version: VERSION_MAX,
            session,
            frame_bytes_max: 100_000,
            dead_after_ms: 20_000,
        })]);
        alone.events.clear();
        alone
    }

    /// Subscribes one stream after `last`, granted and defined from `next`.
    fn open(last: Option<Position>, next: u64) -> Self {
        let mut alone = Self::new();
        alone.subscribe(ONE, last, Start::First);
        alone.receive(&[accepted(ONE, next)]);
        assert_eq!(
            alone.request(),
            Some(StorageRequest::Define { schema: schema(1) })
        );
        alone.outcome(StorageOutcome::Done);
        alone
    }

    fn subscribe(&mut self, channel: Channel, last: Option<Position>, start: Start) {
        let subscription = Subscription::new("stream", start);
        self.command(SubscriberCommand::Subscribe {
            channel,
            last,
            subscription,
        });
    }

    fn input(&mut self, input: Input<SubscriberReceive, SubscriberCommand>) {
        drain(&mut self.machine, self.now, input, |output| match output {
            Output::Transmit(frame) => self.frames.push(frame),
            Output::Event(event) => self.events.push(event),
        });
        self.machine.check().expect("an invariant");
    }

    fn command(&mut self, command: SubscriberCommand) {
        self.input(Input::Command(command));
    }

    fn receive(&mut self, messages: &[Message<'_>]) {
        self.input(Input::Receive(SubscriberReceive::Frame(frame(messages))));
    }

    fn outcome(&mut self, outcome: StorageOutcome) {
        self.command(SubscriberCommand::Outcome(outcome));
    }

    /// A batch of the open request is in the log's queue.
    fn queued(&mut self, last: Position, count: u64, dead_letter: Option<DeadLetterReason>) {
        self.command(SubscriberCommand::Queued {
            last,
            count,
            dead_letter,
        });
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(deadline) = self.machine.deadline().filter(|deadline| *deadline <= end) {
            self.now = self.now.max(deadline);
            self.input(Input::Timeout);
        }
        self.now = end;
    }

    /// The storage requests since the last call, with their channels.
    fn requests(&mut self) -> Vec<(Channel, StorageRequest)> {
        let events = std::mem::take(&mut self.events);
        let (requests, others) = events
            .into_iter()
            .partition::<Vec<_>, _>(|event| matches!(event, SubscriberEvent::Storage { .. }));
        self.events = others;
        let requests = requests.into_iter().map(|event| match event {
            SubscriberEvent::Storage { channel, request } => (channel, request),
            _ => unreachable!("they were chosen"),
        });
        requests.collect()
    }

    /// The only request since the last call.
    fn request(&mut self) -> Option<StorageRequest> {
        let mut requests = self.requests();
        assert!(requests.len() <= 1, "one is open at a time: {requests:?}");
        requests.pop().map(|(_, request)| request)
    }

    /// Applies a request's change: an append as one batch.
    fn make(&mut self, request: &StorageRequest) {
        if let StorageRequest::Append { first, records, .. } = request {
            let count = records.len() as u64;
            self.queued(at(first.epoch, first.sequence + count - 1), count, None);
        }
        self.outcome(StorageOutcome::Done);
    }

    /// The last acknowledgement of a channel.
    fn acknowledged(&self, channel: Channel) -> Option<Entry> {
        let mut last = None;
        for frame in &self.frames {
            for message in decode(frame).expect("a sound frame") {
                if let Ok(Message::Acknowledge { entries }) = message {
                    let mut entries = entries.iter();
                    last = entries.find(|it| it.channel == channel.0).or(last);
                }
            }
        }
        last
    }
}

/// Every kind of change, as an origin sends them, and the expected requests to the log in order.
fn every_change(alone: &mut Alone) -> Vec<StorageRequest> {
    let next = Place {
        stage: Stage {
            number: 1,
            first: 8,
            kept: 7,
        },
        epoch: EPOCH + 1,
        ..place(ONE)
    };
    alone.subscribe(ONE, None, Start::First);
    alone.receive(&[
        accepted(ONE, 1),
        elements(place(ONE), 1, 3, 0),
        lost(place(ONE), 4, 7),
        Message::Schema {
            channel: ONE,
            index: 1,
            schema: schema_text(2),
        },
        elements(place(ONE), 7, 4, 1),
        Message::Stage { place: next },
        elements(next, 8, 2, 1),
    ]);
    vec![
        StorageRequest::Define { schema: schema(1) },
        append(at(EPOCH, 1), 3, 1),
        StorageRequest::Lost {
            from: at(EPOCH, 4),
            next: 7,
            reason: LossReason::Trimmed,
        },
        StorageRequest::Define { schema: schema(2) },
        append(at(EPOCH, 7), 4, 2),
        StorageRequest::Rollback {
            have: at(EPOCH, 10),
            kept: Some(at(EPOCH, 7)),
            next: at(EPOCH + 1, 8),
        },
        append(at(EPOCH + 1, 8), 2, 2),
    ]
}

#[test]
fn a_full_queue_delays_every_kind_of_change_and_none_overtakes() {
    let pause = SubscriberConfig::default().busy_pause;
    for full in 0..7 {
        let mut alone = Alone::new();
        for (step, expected) in every_change(&mut alone).into_iter().enumerate() {
            assert_eq!(alone.request().as_ref(), Some(&expected), "step {step}");
            let attempts = if step == full { 3 } else { 0 };
            for _ in 0..attempts {
                alone.outcome(StorageOutcome::Busy);
                assert_eq!(
                    alone.requests(),
                    [],
                    "step {step}: every later change waits"
                );
                assert!(alone.machine.is_waiting());
                alone.pass(pause - Duration::from_nanos(1));
                assert_eq!(
                    alone.requests(),
                    [],
                    "step {step}: before the pause is over"
                );
                alone.pass(Duration::from_nanos(1));
                assert_eq!(
                    alone.request().as_ref(),
                    Some(&expected),
                    "step {step}: again"
                );
            }
            alone.make(&expected);
        }
        assert_eq!(alone.requests(), []);
        assert!(!alone.machine.is_waiting());
        assert_eq!(alone.machine.lost(), 3);
    }
}

#[test]
fn lost_numbers_wait_behind_elements_that_found_no_room() {
    let mut alone = Alone::open(None, 1);
    alone.receive(&[elements(place(ONE), 1, 3, 0)]);
    assert_eq!(alone.request(), Some(append(at(EPOCH, 1), 3, 1)));
    alone.outcome(StorageOutcome::Busy);
    alone.receive(&[lost(place(ONE), 4, 9)]);
    assert_eq!(
        alone.requests(),
        [],
        "it would move the position past 1 to 3"
    );
    assert_eq!(alone.machine.lost(), 0, "it is not reported yet");
    alone.pass(SubscriberConfig::default().busy_pause);
    let request = alone.request().expect("the elements again");
    assert_eq!(request, append(at(EPOCH, 1), 3, 1));
    alone.make(&request);
    let expected = StorageRequest::Lost {
        from: at(EPOCH, 4),
        next: 9,
        reason: LossReason::Trimmed,
    };
    assert_eq!(alone.request(), Some(expected));
    assert_eq!(alone.machine.lost(), 0);
    alone.outcome(StorageOutcome::Done);
    assert_eq!(alone.machine.lost(), 5);
}

#[test]
fn a_stream_that_is_being_defined_holds_up_no_other() {
    let mut alone = Alone::new();
    alone.subscribe(ONE, None, Start::First);
    alone.subscribe(TWO, None, Start::First);
    alone.receive(&[
        accepted(ONE, 1),
        elements(place(ONE), 1, 1, 0),
        accepted(TWO, 1),
        elements(place(TWO), 1, 2, 0),
    ]);
    let define = StorageRequest::Define { schema: schema(1) };
    assert_eq!(alone.requests(), [(ONE, define.clone())]);
    alone.outcome(StorageOutcome::Defining);
    assert_eq!(alone.requests(), [(TWO, define.clone())]);
    alone.outcome(StorageOutcome::Done);
    let of_two = append(at(EPOCH, 1), 2, 1);
    assert_eq!(alone.requests(), [(TWO, of_two.clone())]);
    alone.make(&of_two);
    assert_eq!(
        alone.requests(),
        [],
        "the first stream's element waits for it"
    );
    alone.pass(SubscriberConfig::default().busy_pause);
    assert_eq!(alone.requests(), [(ONE, define)]);
    alone.outcome(StorageOutcome::Done);
    assert_eq!(alone.requests(), [(ONE, append(at(EPOCH, 1), 1, 1))]);
}

#[test]
fn only_the_rest_of_a_partial_success_is_requested_again() {
    let mut alone = Alone::open(None, 1);
    alone.receive(&[elements(place(ONE), 1, 6, 0), elements(place(ONE), 7, 1, 0)]);
    assert_eq!(alone.request(), Some(append(at(EPOCH, 1), 6, 1)));
    alone.queued(at(EPOCH, 2), 2, None);
    alone.queued(at(EPOCH, 3), 1, Some(DeadLetterReason::Unreadable));
    alone.outcome(StorageOutcome::Busy);
    alone.pass(SubscriberConfig::default().busy_pause);
    assert_eq!(alone.request(), Some(append(at(EPOCH, 4), 3, 1)));
    // All of it is queued before the log is full: nothing of it is repeated.
    alone.queued(at(EPOCH, 6), 3, None);
    alone.outcome(StorageOutcome::Busy);
    alone.pass(SubscriberConfig::default().busy_pause);
    assert_eq!(alone.request(), Some(append(at(EPOCH, 7), 1, 1)));
}

#[test]
fn a_stream_trimmed_beyond_its_position_resumes_after_a_named_loss() {
    // The origin names the loss, or only grants a later start.
    let mut named = Alone::open(Some(at(EPOCH, 10)), 11);
    named.receive(&[lost(place(ONE), 11, 20)]);
    let mut skipped = Alone::new();
    skipped.subscribe(ONE, Some(at(EPOCH, 10)), Start::First);
    skipped.receive(&[accepted(ONE, 20)]);
    assert_eq!(
        skipped.request(),
        Some(StorageRequest::Define { schema: schema(1) })
    );
    skipped.outcome(StorageOutcome::Done);
    for (mut alone, reason) in [(named, LossReason::Trimmed), (skipped, LossReason::Skipped)] {
        let expected = StorageRequest::Lost {
            from: at(EPOCH, 11),
            next: 20,
            reason,
        };
        assert_eq!(alone.request(), Some(expected));
        alone.outcome(StorageOutcome::Done);
        assert_eq!(alone.machine.lost(), 9);
        alone.receive(&[elements(place(ONE), 20, 2, 0)]);
        assert_eq!(alone.request(), Some(append(at(EPOCH, 20), 2, 1)));
    }
}

#[test]
fn an_origin_that_was_restored_is_a_rollback_and_its_numbers_are_stored() {
    let mut alone = Alone::new();
    alone.subscribe(ONE, Some(at(EPOCH, 10)), Start::First);
    alone.receive(&[Message::Accepted {
        channel: ONE,
        rollback: RollbackPoint::Kept(at(EPOCH, 4)),
        epoch: EPOCH + 1,
        next: 5,
        last: 4,
        level: Level::Power,
        schema: schema_text(1),
    }]);
    let expected = StorageRequest::Rollback {
        have: at(EPOCH, 10),
        kept: Some(at(EPOCH, 4)),
        next: at(EPOCH + 1, 5),
    };
    assert_eq!(alone.request(), Some(expected));
    alone.outcome(StorageOutcome::Done);
    assert_eq!(
        alone.request(),
        Some(StorageRequest::Define { schema: schema(1) })
    );
    alone.outcome(StorageOutcome::Done);
    let restored = Place {
        epoch: EPOCH + 1,
        ..place(ONE)
    };
    alone.receive(&[elements(restored, 5, 3, 0)]);
    assert_eq!(alone.request(), Some(append(at(EPOCH + 1, 5), 3, 1)));
}

#[test]
fn a_start_at_the_end_is_stored_before_the_first_schema() {
    let mut alone = Alone::new();
    alone.subscribe(ONE, None, Start::New);
    alone.receive(&[accepted(ONE, 50)]);
    let begin = StorageRequest::Begin { at: at(EPOCH, 49) };
    assert_eq!(alone.request(), Some(begin.clone()));
    alone.outcome(StorageOutcome::Busy);
    alone.pass(SubscriberConfig::default().busy_pause);
    assert_eq!(alone.request(), Some(begin));
    alone.outcome(StorageOutcome::Done);
    assert_eq!(
        alone.request(),
        Some(StorageRequest::Define { schema: schema(1) })
    );
    alone.outcome(StorageOutcome::Done);
    let granted = SubscriberEvent::Accepted {
        channel: ONE,
        next: at(EPOCH, 50),
    };
    assert_eq!(alone.events, [granted]);
}

#[test]
fn only_what_is_stored_is_acknowledged() {
    const DELAY: Duration = Duration::from_millis(200);
    let mut alone = Alone::open(None, 1);
    alone.receive(&[elements(place(ONE), 1, 5, 0)]);
    assert_eq!(alone.request(), Some(append(at(EPOCH, 1), 5, 1)));
    alone.queued(at(EPOCH, 3), 3, None);
    alone.queued(at(EPOCH, 4), 1, Some(DeadLetterReason::Schema));
    alone.queued(at(EPOCH, 5), 1, None);
    alone.outcome(StorageOutcome::Done);
    alone.pass(DELAY);
    assert_eq!(alone.acknowledged(ONE).map(|it| it.stored), Some(0));
    let stored = [(1, 3, 0), (1, 4, 1), (1, 5, 1)];
    for (batches, number, refused) in stored {
        alone.command(SubscriberCommand::Stored { batches });
        alone.pass(DELAY);
        let entry = alone.acknowledged(ONE).expect("an acknowledgement");
        assert_eq!((entry.stored, entry.refused), (number, refused));
    }
    let report = |last, count| SubscriberEvent::Stored {
        channel: ONE,
        last: at(EPOCH, last),
        count,
    };
    let reports = alone.events.iter();
    let reports: Vec<_> = reports
        .filter(|event| matches!(event, SubscriberEvent::Stored { .. }))
        .collect();
    assert_eq!(reports, [&report(3, 3), &report(5, 1)]);
}

#[test]
fn a_stream_that_cannot_be_stored_is_abandoned_and_others_go_on() {
    let mut alone = Alone::open(None, 1);
    alone.subscribe(TWO, None, Start::First);
    alone.receive(&[elements(place(ONE), 1, 1, 0), lost(place(ONE), 2, 9)]);
    assert!(alone.request().is_some());
    let frames = alone.frames.len();
    alone.outcome(StorageOutcome::Refused {
        reason: RefusalReason::Schema,
        text: "it does not fit".into(),
    });
    let told = decode(&alone.frames[frames]).expect("sound").next();
    let told = told.expect("a message").expect("it decodes");
    let expected = Message::Unsubscribe {
        channel: ONE,
        reason: RefusalReason::Schema,
        text: "it does not fit",
    };
    assert_eq!(told, expected);
    assert_eq!(alone.requests(), [], "the loss is of the abandoned stream");
    assert_eq!(alone.machine.lost(), 0);
    alone.receive(&[accepted(TWO, 1)]);
    let define = StorageRequest::Define { schema: schema(1) };
    assert_eq!(alone.requests(), [(TWO, define)]);
}

#[test]
fn nothing_is_requested_after_the_end_and_a_late_outcome_is_taken() {
    let mut alone = Alone::open(None, 1);
    alone.receive(&[elements(place(ONE), 1, 3, 0), elements(place(ONE), 4, 1, 0)]);
    let request = alone.request().expect("the elements");
    alone.receive(&[elements(place(ONE), 9, 1, 0)]);
    let failed = |event: &SubscriberEvent| {
        matches!(event, SubscriberEvent::Session(SessionEvent::Failed(_)))
    };
    assert!(alone.events.iter().any(failed), "number 5 is missing");
    alone.make(&request);
    assert_eq!(alone.requests(), []);
    assert_eq!(alone.machine.deadline(), None);
}
