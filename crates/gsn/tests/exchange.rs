//! Goal: no element that a server has is lost or stored twice by a receiver, whichever side is killed; a sender repeats
//! what was not answered.
//! Method: the machines on virtual time, and against a model of a GSN server: one thread for all deliveries, which waits
//! for each answer without a limit, and an element that is not repeated after its connection ended. A running GSN 2.0.1
//! behaves so.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use chappe_gsn::exchange::{
    ACCEPTED, Arrival, Delivery, DeliveryArrival, DeliveryDispatch, DeliveryOccurrence, Dispatch,
    Occurrence, Progress, Question, REFUSED, Reception, Registration, Verdict,
};
use chappe_gsn::kryo::{
    DataField, DataType, GsnElement, GsnValue, decode_element, encode_element, encode_structure,
};
use chappe_machine::{Input, Instant, Machine, Output, drain};
use proptest::prelude::*;

fn element(timed_ms: i64, value: i32) -> Vec<u8> {
    let element = GsnElement {
        timed_ms,
        is_timed: true,
        names: vec!["VALUE".to_owned()],
        types: vec![DataType::Integer],
        values: vec![GsnValue::Integer(value)],
    };
    encode_element(&element, Vec::new()).unwrap()
}

fn structure() -> Vec<u8> {
    let field = DataField {
        name: "VALUE".to_owned(),
        data_type: DataType::Integer,
        declared: "int".to_owned(),
        unit: String::new(),
        description: "Not Provided".to_owned(),
    };
    encode_structure(Some(&[field])).unwrap()
}

fn registration() -> Registration {
    Registration {
        sensor: "Station".to_owned(),
        endpoint: "tcp://127.0.0.1:24000".to_owned(),
        start_ms: Some(0),
        silence: Duration::from_secs(30),
    }
}

/// A receiver with its storage.
struct Receiver {
    machine: Reception,
    now: Instant,
    sent: Vec<Dispatch>,
    occurred: Vec<Occurrence>,
}

impl Receiver {
    fn new(registration: Option<Registration>, progress: Progress, now: Instant) -> Self {
        Self {
            machine: Reception::new(registration, progress, now),
            now,
            sent: Vec::new(),
            occurred: Vec::new(),
        }
    }

    fn input(&mut self, input: Input<Arrival, Verdict>) {
        let (sent, occurred) = (&mut self.sent, &mut self.occurred);
        drain(&mut self.machine, self.now, input, |output| match output {
            Output::Transmit(dispatch) => sent.push(dispatch),
            Output::Event(occurrence) => occurred.push(occurrence),
        });
    }

    fn arrive(&mut self, arrival: Arrival) -> Vec<Dispatch> {
        self.input(Input::Receive(arrival));
        std::mem::take(&mut self.sent)
    }

    fn pass(&mut self, duration: Duration) -> Vec<Dispatch> {
        self.now += duration;
        self.input(Input::Timeout);
        std::mem::take(&mut self.sent)
    }

    fn store(&mut self, number: u64) -> Vec<Dispatch> {
        self.input(Input::Command(Verdict::Stored(number)));
        std::mem::take(&mut self.sent)
    }
}

/// A frame that arrives in the year 2001.
fn frame_of(peer: u64, frame: Vec<u8>) -> Arrival {
    Arrival::Frame {
        peer,
        frame,
        latest_ms: LATEST_MS,
    }
}

const LATEST_MS: i64 = 1_000_000_000_000;

const SECOND: Duration = Duration::from_secs(1);

/// A receiver that has registered, and its server has connected as peer 1.
fn registered() -> Receiver {
    let mut receiver = Receiver::new(Some(registration()), Progress::default(), Instant::ZERO);
    let asked = receiver.pass(SECOND);
    let question = Question::Deliver {
        name: "station".to_owned(),
        endpoint: "tcp://127.0.0.1:24000".to_owned(),
        start_ms: Some(0),
    };
    assert_eq!(asked, [Dispatch::Ask(question)]);
    receiver.arrive(Arrival::Answer(structure()));
    receiver.arrive(Arrival::Connected(1));
    receiver
}

#[test]
fn an_element_is_answered_after_it_is_stored() {
    let mut receiver = registered();
    assert_eq!(receiver.arrive(frame_of(1, element(5, 1))), []);
    let Some(Occurrence::Element {
        number, progress, ..
    }) = receiver.occurred.pop()
    else {
        panic!("{:?}", receiver.occurred);
    };
    assert_eq!(progress.newest_ms, Some(5));
    assert_eq!(receiver.store(number), [Dispatch::Answer(1, ACCEPTED)]);
    // A frame that is no element is kept, and does not stall the server.
    assert_eq!(receiver.arrive(frame_of(1, vec![7])), []);
    let undecodable = matches!(
        receiver.occurred.pop(),
        Some(Occurrence::Undecodable { number: 2, .. })
    );
    assert!(undecodable);
    assert_eq!(receiver.store(2), [Dispatch::Answer(1, ACCEPTED)]);
}

#[test]
fn an_element_from_the_future_is_taken_and_does_not_stop_the_replay() {
    let mut receiver = registered();
    let times = [8, LATEST_MS + 1, i64::MAX, 9, LATEST_MS, 10];
    let mut newest = Vec::new();
    for (number, timed_ms) in (1..).zip(times) {
        receiver.arrive(frame_of(1, element(timed_ms, 1)));
        let Some(Occurrence::Element {
            progress, element, ..
        }) = receiver.occurred.pop()
        else {
            panic!("{:?}", receiver.occurred);
        };
        assert_eq!(element.timed_ms, timed_ms);
        newest.push(progress.newest_ms.unwrap());
        assert_eq!(receiver.store(number), [Dispatch::Answer(1, ACCEPTED)]);
    }
    assert_eq!(newest, [8, 8, 8, 9, LATEST_MS, LATEST_MS]);
    // It is recognized when it is replayed.
    let replayed = receiver.arrive(frame_of(1, element(i64::MAX, 1)));
    assert_eq!(replayed, [Dispatch::Answer(1, ACCEPTED)]);
}

#[test]
fn a_receiver_that_starts_again_asks_for_the_newest_millisecond_and_recognizes_it() {
    let mut receiver = registered();
    for (number, (timed_ms, value)) in [(5, 1), (8, 1), (8, 2)].into_iter().enumerate() {
        receiver.arrive(frame_of(1, element(timed_ms, value)));
        receiver.store(number as u64 + 1);
    }
    let Some(Occurrence::Element { progress, .. }) = receiver.occurred.pop() else {
        panic!("{:?}", receiver.occurred);
    };
    let mut receiver = Receiver::new(Some(registration()), progress, Instant::ZERO);
    let asked = receiver.pass(SECOND);
    let [
        Dispatch::Ask(Question::Deliver {
            start_ms: Some(7), ..
        }),
    ] = &asked[..]
    else {
        panic!("{asked:?}");
    };
    receiver.arrive(Arrival::Answer(structure()));
    receiver.arrive(Arrival::Connected(9));
    for value in [1, 2] {
        let answered = receiver.arrive(frame_of(9, element(8, value)));
        assert_eq!(answered, [Dispatch::Answer(9, ACCEPTED)]);
        assert_eq!(receiver.occurred.pop(), Some(Occurrence::Repeated));
    }
    assert_eq!(receiver.arrive(frame_of(9, element(8, 3))), []);
    assert!(matches!(
        receiver.occurred.pop(),
        Some(Occurrence::Element { .. })
    ));
}

#[test]
fn a_renewal_ends_the_deliveries_before_it() {
    let mut receiver = registered();
    let asked = receiver.pass(Duration::from_secs(30));
    assert!(matches!(&asked[..], [Dispatch::Ask(_)]), "{asked:?}");
    // The earlier delivery is alive, and brings an element before the directory answers.
    receiver.arrive(frame_of(1, element(5, 1)));
    assert_eq!(receiver.store(1), [Dispatch::Answer(1, ACCEPTED)]);
    receiver.arrive(Arrival::Connected(2));
    let refused = receiver.arrive(Arrival::Answer(structure()));
    assert_eq!(refused, [Dispatch::Answer(1, REFUSED)]);
    // The new delivery replays that element; the earlier one has nothing to say any more.
    receiver.occurred.clear();
    let answered = receiver.arrive(frame_of(2, element(5, 1)));
    assert_eq!(answered, [Dispatch::Answer(2, ACCEPTED)]);
    let answered = receiver.arrive(frame_of(1, element(6, 1)));
    assert_eq!(answered, [Dispatch::Answer(1, REFUSED)]);
    assert_eq!(
        receiver.occurred,
        [Occurrence::Repeated, Occurrence::Repeated]
    );
    // When the last delivery is gone, the next registration follows soon.
    receiver.arrive(Arrival::Disconnected(2));
    let asked = receiver.pass(SECOND);
    assert!(matches!(&asked[..], [Dispatch::Ask(_)]), "{asked:?}");
}

#[test]
fn a_directory_without_the_sensor_is_asked_again_after_pauses() {
    let mut receiver = Receiver::new(Some(registration()), Progress::default(), Instant::ZERO);
    receiver.pass(SECOND);
    for (answer, pause) in [
        (Arrival::Answer(vec![0]), 1),
        (Arrival::NoAnswer, 2),
        (Arrival::NoAnswer, 4),
    ] {
        receiver.arrive(answer);
        let deadline = receiver.machine.deadline();
        assert_eq!(deadline, Some(receiver.now + Duration::from_secs(pause)));
        receiver.pass(Duration::from_secs(pause));
    }
    assert_eq!(receiver.occurred, [Occurrence::Structure(None)]);
}

#[test]
fn a_socket_without_a_registration_takes_windows_of_elements_and_answers_in_order() {
    let mut receiver = Receiver::new(None, Progress::default(), Instant::ZERO);
    assert_eq!(receiver.machine.deadline(), None);
    receiver.arrive(Arrival::Connected(1));
    receiver.arrive(frame_of(1, element(1, 1)));
    // A repeated element waits for the answer to the one before.
    assert_eq!(receiver.arrive(frame_of(1, element(1, 1))), []);
    receiver.arrive(frame_of(1, element(2, 1)));
    let accepted = Dispatch::Answer(1, ACCEPTED);
    assert_eq!(receiver.store(1), [accepted.clone(), accepted.clone()]);
    assert_eq!(receiver.store(2), [accepted]);
}

/// A model of a GSN server: an element has the time 10 times its number.
#[derive(Default)]
struct Server {
    elements: i64,
    deliveries: Vec<Line>,
    /// The delivery whose answer the thread waits for.
    waits_for: Option<usize>,
    turn: usize,
}

struct Line {
    peer: u64,
    next: i64,
    is_connected: bool,
    is_ended: bool,
    /// To be sent when it is connected.
    outgoing: Option<Vec<u8>>,
    /// Answers that nobody asked for.
    stale: VecDeque<u8>,
}

impl Server {
    fn answer(&mut self, peer: u64, byte: u8) {
        let Some(index) = self.deliveries.iter().position(|line| line.peer == peer) else {
            return;
        };
        match self.waits_for == Some(index) {
            true => self.take(index, byte),
            false => self.deliveries[index].stale.push_back(byte),
        }
    }

    fn take(&mut self, index: usize, byte: u8) {
        self.waits_for = None;
        let line = &mut self.deliveries[index];
        line.outgoing = None;
        line.is_ended |= byte != ACCEPTED;
    }

    /// Sends the next element, if the thread does not wait.
    fn step(&mut self) -> Option<(u64, Vec<u8>)> {
        if let Some(index) = self.waits_for {
            let line = &mut self.deliveries[index];
            return match line.is_connected {
                true => line.outgoing.take().map(|frame| (line.peer, frame)),
                false => None,
            };
        }
        let count = self.deliveries.len();
        for offset in 0..count {
            let index = (self.turn + offset) % count;
            let line = &mut self.deliveries[index];
            if line.is_ended || line.next > self.elements {
                continue;
            }
            line.outgoing = Some(element(10 * line.next, 0));
            line.next += 1;
            self.turn = index + 1;
            self.waits_for = Some(index);
            let sent = line.is_connected.then(|| line.outgoing.take()).flatten();
            let peer = line.peer;
            if let Some(byte) = line.stale.pop_front() {
                self.take(index, byte);
            }
            return sent.map(|frame| (peer, frame));
        }
        None
    }
}

/// Both, until nothing happens any more.
struct World {
    server: Server,
    receiver: Receiver,
    progress: Progress,
    stored: Vec<i64>,
    next_peer: u64,
    server_is_up: bool,
}

impl World {
    fn settle(&mut self) {
        for _ in 0..10_000 {
            let sent = std::mem::take(&mut self.receiver.sent);
            let is_quiet = sent.is_empty();
            sent.into_iter()
                .for_each(|dispatch| self.dispatch(dispatch));
            let occurred = std::mem::take(&mut self.receiver.occurred);
            for occurrence in occurred {
                if let Occurrence::Element {
                    number,
                    progress,
                    element,
                } = occurrence
                {
                    self.stored.push(element.timed_ms);
                    self.progress = progress;
                    self.receiver.input(Input::Command(Verdict::Stored(number)));
                }
            }
            match self.server.step() {
                Some((peer, frame)) => self.receiver.input(Input::Receive(frame_of(peer, frame))),
                None if is_quiet && self.receiver.sent.is_empty() => return,
                None => {}
            }
        }
        panic!("it does not settle");
    }

    fn dispatch(&mut self, dispatch: Dispatch) {
        match dispatch {
            Dispatch::Ask(Question::Deliver { start_ms, .. }) if self.server_is_up => {
                self.next_peer += 1;
                let peer = self.next_peer;
                let next = start_ms.unwrap_or(0).div_euclid(10) + 1;
                self.server.deliveries.push(Line {
                    peer,
                    next,
                    is_connected: true,
                    is_ended: false,
                    outgoing: None,
                    stale: VecDeque::new(),
                });
                // The new connection may come before the answer.
                self.receiver
                    .input(Input::Receive(Arrival::Connected(peer)));
                self.receiver
                    .input(Input::Receive(Arrival::Answer(structure())));
            }
            Dispatch::Ask(_) => self.receiver.input(Input::Receive(Arrival::NoAnswer)),
            Dispatch::Answer(peer, byte) => self.server.answer(peer, byte),
            Dispatch::Disconnect(_) => {}
        }
    }

    /// The receiver is killed: answers on their way are lost, and its connections end.
    fn kill_receiver(&mut self, answers_are_lost: bool) {
        if !answers_are_lost {
            self.settle();
        }
        for line in &mut self.server.deliveries {
            line.is_connected = false;
        }
        let now = self.receiver.now;
        self.receiver = Receiver::new(Some(registration()), self.progress.clone(), now);
        for line in &mut self.server.deliveries {
            if line.is_ended {
                continue;
            }
            self.next_peer += 1;
            (line.peer, line.is_connected) = (self.next_peer, true);
            self.receiver
                .input(Input::Receive(Arrival::Connected(line.peer)));
        }
    }

    fn kill_server(&mut self) {
        let deliveries = std::mem::take(&mut self.server.deliveries);
        self.server.waits_for = None;
        self.server.turn = 0;
        for line in deliveries {
            self.receiver
                .input(Input::Receive(Arrival::Disconnected(line.peer)));
        }
    }
}

#[derive(Debug, Clone)]
enum Deed {
    Produce(i64),
    Pass(u64),
    KillReceiver,
    /// Killed after it has stored an element, and before the answer is sent.
    KillReceiverBeforeItsAnswer,
    KillServer,
    ServerDown(bool),
}

fn deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        4 => (1i64..5).prop_map(Deed::Produce),
        4 => (1u64..60).prop_map(Deed::Pass),
        1 => Just(Deed::KillReceiver),
        1 => Just(Deed::KillReceiverBeforeItsAnswer),
        1 => Just(Deed::KillServer),
        1 => any::<bool>().prop_map(Deed::ServerDown),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_element_is_lost_or_doubled_whichever_side_is_killed(deeds in prop::collection::vec(deed(), 1..40)) {
        let mut world = World {
            server: Server::default(),
            receiver: Receiver::new(Some(registration()), Progress::default(), Instant::ZERO),
            progress: Progress::default(),
            stored: Vec::new(),
            next_peer: 0,
            server_is_up: true,
        };
        for deed in deeds.into_iter().chain([Deed::ServerDown(false)]) {
            match deed {
                Deed::Produce(count) => world.server.elements += count,
                Deed::Pass(seconds) => {
                    for _ in 0..seconds {
                        world.receiver.now += SECOND;
                        world.receiver.input(Input::Timeout);
                        world.settle();
                    }
                }
                Deed::KillReceiver => world.kill_receiver(false),
                Deed::KillReceiverBeforeItsAnswer => {
                    if let Some((peer, frame)) = world.server.step() {
                        world.receiver.input(Input::Receive(frame_of(peer, frame)));
                        for occurrence in std::mem::take(&mut world.receiver.occurred) {
                            if let Occurrence::Element { progress, element, .. } = occurrence {
                                world.stored.push(element.timed_ms);
                                world.progress = progress;
                            }
                        }
                    }
                    world.kill_receiver(true);
                }
                Deed::KillServer => world.kill_server(),
                Deed::ServerDown(is_down) => {
                    world.server_is_up = !is_down;
                    if is_down {
                        world.kill_server();
                    }
                }
            }
            world.settle();
        }
        // More pauses than one after the other can be needed: registrations that find no directory, and renewals.
        for _ in 0..40 {
            let now = world.receiver.now;
            world.receiver.now = world.receiver.machine.deadline().unwrap_or(now).max(now);
            world.receiver.input(Input::Timeout);
            world.settle();
        }
        let all: Vec<i64> = (1..=world.server.elements).map(|number| 10 * number).collect();
        prop_assert_eq!(world.stored, all);
    }
}

/// A sender and what it does.
struct Sender(Delivery, Vec<DeliveryDispatch>, Vec<DeliveryOccurrence>);

impl Sender {
    fn input(&mut self, now: Instant, input: Input<DeliveryArrival, Bytes>) {
        let Self(machine, sent, occurred) = self;
        drain(machine, now, input, |output| match output {
            Output::Transmit(dispatch) => sent.push(dispatch),
            Output::Event(occurrence) => occurred.push(occurrence),
        });
    }

    /// The numbers that were sent.
    fn sent(&mut self) -> Vec<i64> {
        let number = |dispatch| match dispatch {
            DeliveryDispatch::Frame(frame) => decode_element(&frame).unwrap().timed_ms,
            DeliveryDispatch::Disconnect => -1,
        };
        std::mem::take(&mut self.1)
            .into_iter()
            .map(number)
            .collect()
    }
}

#[test]
fn a_sender_keeps_a_window_in_flight_and_repeats_what_was_not_answered() {
    let mut sender = Sender(Delivery::new(3, 10 * SECOND), Vec::new(), Vec::new());
    let now = Instant::ZERO;
    for number in 1..=5 {
        sender.input(now, Input::Command(element(number, 0).into()));
    }
    assert_eq!(sender.sent(), [0i64; 0]);
    sender.input(now, Input::Receive(DeliveryArrival::Connected));
    assert_eq!(sender.sent(), [1, 2, 3]);
    let answer =
        |byte: &'static [u8]| Input::Receive(DeliveryArrival::Answer(Bytes::from_static(byte)));
    sender.input(now, answer(&[ACCEPTED]));
    sender.input(now, answer(&[REFUSED]));
    assert_eq!(sender.sent(), [4, 5]);
    assert_eq!(
        sender.2,
        [DeliveryOccurrence::Accepted, DeliveryOccurrence::Refused]
    );
    sender.input(now, Input::Receive(DeliveryArrival::Disconnected));
    assert_eq!(sender.0.deadline(), None);
    sender.input(now, Input::Receive(DeliveryArrival::Connected));
    assert_eq!(sender.sent(), [3, 4, 5]);
    // A peer that is silent, or answers with something else, is left.
    sender.input(now + 10 * SECOND, Input::Timeout);
    assert_eq!(
        (sender.sent(), sender.2.pop()),
        (vec![-1], Some(DeliveryOccurrence::Late))
    );
    sender.input(now, Input::Receive(DeliveryArrival::Connected));
    sender.input(now, answer(b"??"));
    assert_eq!(sender.sent(), [3, 4, 5, -1]);
    assert_eq!(sender.2.pop(), Some(DeliveryOccurrence::BadAnswer));
    assert_eq!(sender.0.unanswered(), 3);
}
