//! Goal: the client keeps its promises over a network that loses, doubles and reorders datagrams.
//! Method: a server on virtual time, answer by answer, and a whole one in seeded runs.

use std::collections::BTreeMap;
use std::time::Duration;

use chappe_machine::{Input, Instant, Machine as _, Output, drain};
use coap_lite::{CoapOption, MessageClass, MessageType, Packet, RequestType, ResponseType};
use proptest::prelude::*;

use super::client::{BODY_MAX, Client, Event, Pace};
use super::message::Target;
use crate::tests::{examples, wrapper_file};

const PACE: Pace = Pace {
    poll: Duration::from_secs(10),
    silence: Duration::from_secs(120),
};

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

/// A client of one resource, and what it did.
struct Run {
    client: Client,
    now: Instant,
    sent: Vec<Packet>,
    events: Vec<Event>,
}

impl Run {
    fn new() -> Self {
        let target = Target {
            path: vec!["a".to_owned()],
            ..Target::default()
        };
        let mut run = Self {
            client: Client::new(vec![target], PACE, [7; 32]),
            now: Instant::ZERO,
            sent: Vec::new(),
            events: Vec::new(),
        };
        run.input(Input::Timeout);
        run
    }

    fn input(&mut self, input: Input<Vec<u8>, u16>) {
        let (sent, events) = (&mut self.sent, &mut self.events);
        drain(&mut self.client, self.now, input, |output| match output {
            Output::Transmit(bytes) => sent.push(Packet::from_bytes(&bytes).unwrap()),
            Output::Event(event) => events.push(event),
        });
    }

    fn receive(&mut self, packet: &Packet) {
        self.input(Input::Receive(packet.to_bytes_unlimited().unwrap()));
    }

    /// Lets this time pass, with everything that is due in it.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(due) = self.client.deadline().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.input(Input::Timeout);
        }
        self.now = end;
    }

    /// The newest request.
    fn request(&self) -> Packet {
        let is_request = |it: &&Packet| it.header.code == MessageClass::Request(RequestType::Get);
        self.sent.iter().rfind(is_request).unwrap().clone()
    }

    fn requests(&self) -> usize {
        let is_request = |it: &&Packet| it.header.code == MessageClass::Request(RequestType::Get);
        self.sent.iter().filter(is_request).count()
    }

    /// The bodies of the states so far, which are forgotten.
    fn states(&mut self) -> Vec<String> {
        let bodies = self.events.drain(..).filter_map(|event| match event {
            Event::State { body, .. } => Some(String::from_utf8(body).unwrap()),
            _ => None,
        });
        bodies.collect()
    }

    fn lost(&self) -> Vec<&'static str> {
        let reasons = self.events.iter().filter_map(|event| match event {
            Event::Lost { reason, .. } => Some(*reason),
            _ => None,
        });
        reasons.collect()
    }
}

/// A response to a request: its acknowledgement, or another message.
fn response(to: &Packet, message_type: MessageType, id: u16, body: &[u8]) -> Packet {
    let mut packet = Packet::new();
    packet.header.code = MessageClass::Response(ResponseType::Content);
    packet.header.set_type(message_type);
    packet.header.message_id = id;
    packet.set_token(to.get_token().to_vec());
    packet.payload = body.to_vec();
    packet
}

fn answer(to: &Packet, observe: Option<u32>, body: &[u8]) -> Packet {
    let mut packet = response(to, MessageType::Acknowledgement, to.header.message_id, body);
    if let Some(number) = observe {
        packet.set_observe_value(number);
    }
    packet
}

fn notification(to: &Packet, id: u16, observe: u32, body: &[u8]) -> Packet {
    let mut packet = response(to, MessageType::Confirmable, id, body);
    packet.set_observe_value(observe);
    packet
}

fn block(mut packet: Packet, number: u32, has_more: bool, etag: u8) -> Packet {
    let value = number << 4 | u32::from(has_more) << 3;
    packet.add_option(CoapOption::Block2, value.to_be_bytes()[2..].to_vec());
    packet.add_option(CoapOption::ETag, vec![etag]);
    packet
}

#[test]
fn a_notification_is_acknowledged_when_its_state_is_stored() {
    let mut run = Run::new();
    let request = run.request();
    assert_eq!(request.get_first_option(CoapOption::Observe), Some(&vec![]));
    run.receive(&answer(&request, Some(2), b"1"));
    assert_eq!(run.states(), ["1"]);
    let newer = notification(&request, 900, 3, b"2");
    run.receive(&newer);
    assert!(run.events.iter().any(|it| matches!(
        it,
        Event::State {
            acknowledge: Some(900),
            ..
        }
    )));
    assert_eq!(run.states(), ["2"]);
    let before = run.sent.len();
    // It is repeated while the state is not stored yet.
    run.receive(&newer);
    assert_eq!(run.sent.len(), before);
    run.input(Input::Command(900));
    run.receive(&newer);
    let acknowledgements = &run.sent[before..];
    assert_eq!(acknowledgements.len(), 2);
    for one in acknowledgements {
        assert_eq!(
            (one.header.get_type(), one.header.message_id),
            (MessageType::Acknowledgement, 900)
        );
    }
    assert_eq!(run.states(), [""; 0]);
}

#[test]
fn an_older_notification_is_counted_and_not_stored() {
    let mut run = Run::new();
    let request = run.request();
    run.receive(&answer(&request, Some(0xff_fffe), b"1"));
    run.receive(&notification(&request, 1, 1, b"3"));
    run.receive(&notification(&request, 2, 0xff_ffff, b"2"));
    assert_eq!(run.lost(), ["reordered"]);
    assert_eq!(run.states(), ["1", "3"]);
    // After 128 s any number is newer.
    run.now += seconds(129);
    run.receive(&notification(&request, 3, 0, b"4"));
    assert_eq!(run.states(), ["4"]);
}

#[test]
fn a_silent_server_is_asked_five_times_and_then_registered_anew() {
    let mut run = Run::new();
    let first = run.request();
    run.pass(seconds(95));
    assert!(
        run.events
            .iter()
            .any(|it| matches!(it, Event::Problem { .. })),
        "{:?}",
        run.events
    );
    let same = run
        .sent
        .iter()
        .filter(|it| it.header.message_id == first.header.message_id);
    assert_eq!(same.count(), 5);
    run.pass(seconds(3));
    let second = run.request();
    assert_ne!(second.get_token(), first.get_token());
    run.receive(&answer(&second, Some(0), b"1"));
    assert_eq!(run.states(), ["1"]);
}

#[test]
fn a_registration_is_refreshed_before_its_state_is_too_old() {
    let mut run = Run::new();
    let first = run.request();
    let mut packet = answer(&first, Some(5), b"1");
    packet.add_option(CoapOption::MaxAge, vec![20]);
    run.receive(&packet);
    assert_eq!(run.states(), ["1"]);
    run.pass(seconds(20));
    let second = run.request();
    assert_ne!(second.header.message_id, first.header.message_id);
    assert_eq!(second.get_token(), first.get_token());
    // The same state again is nothing new.
    run.receive(&answer(&second, Some(5), b"1"));
    assert_eq!(run.states(), [""; 0]);
    run.receive(&notification(&first, 1, 6, b"1"));
    assert_eq!(run.states(), ["1"]);
}

#[test]
fn a_server_that_numbers_again_is_registered_under_another_token() {
    let mut run = Run::new();
    let first = run.request();
    run.receive(&answer(&first, Some(50), b"1"));
    run.pass(seconds(60));
    let second = run.request();
    assert_eq!(second.get_token(), first.get_token());
    run.receive(&answer(&second, Some(0), b"9"));
    let third = run.request();
    assert_ne!(third.get_token(), first.get_token());
    // The server sends what waited before: its number is higher, its state older.
    run.receive(&notification(&first, 1, 51, b"2"));
    run.receive(&answer(&third, Some(0), b"9"));
    run.receive(&notification(&third, 2, 1, b"10"));
    assert_eq!(run.states(), ["1", "9", "10"]);
}

#[test]
fn a_resource_that_cannot_be_observed_is_polled() {
    let mut run = Run::new();
    for (round, body) in ["1", "1", "2"].iter().enumerate() {
        assert_eq!(run.requests(), round + 1);
        let request = run.request();
        run.receive(&answer(&request, None, body.as_bytes()));
        run.pass(seconds(10));
    }
    assert_eq!(run.states(), ["1", "2"]);
}

#[test]
fn a_response_may_come_apart_and_an_acknowledgement_may_be_lost() {
    let mut run = Run::new();
    let request = run.request();
    let mut acknowledgement = Packet::new();
    acknowledgement
        .header
        .set_type(MessageType::Acknowledgement);
    acknowledgement.header.code = MessageClass::Empty;
    acknowledgement.header.message_id = request.header.message_id;
    run.receive(&acknowledgement);
    run.pass(seconds(9));
    assert_eq!(run.requests(), 1);
    run.receive(&notification(&request, 77, 9, b"1"));
    assert_eq!(run.states(), ["1"]);
    let mut run = Run::new();
    let request = run.request();
    run.receive(&notification(&request, 77, 9, b"1"));
    run.pass(seconds(3));
    run.receive(&acknowledgement.clone());
    run.pass(seconds(40));
    assert_eq!(run.states(), ["1"]);
    assert!(run.requests() <= 3);
}

#[test]
fn a_state_in_blocks_is_read_whole_or_not_at_all() {
    let mut run = Run::new();
    let request = run.request();
    let (a, b) = ([b'a'; 16], [b'b'; 16]);
    run.receive(&block(answer(&request, Some(1), &a), 0, true, 1));
    let second = run.request();
    assert_ne!(second.get_token(), request.get_token());
    assert_eq!(
        second.get_first_option(CoapOption::Block2),
        Some(&vec![0x10])
    );
    assert_eq!(second.get_first_option(CoapOption::Observe), None);
    run.receive(&block(answer(&second, None, &b), 1, true, 1));
    let third = run.request();
    run.receive(&block(answer(&third, None, b"c"), 2, false, 1));
    assert_eq!(
        run.states(),
        [format!("{}{}c", "a".repeat(16), "b".repeat(16))]
    );
    // Another state between two blocks: read again from the first block.
    run.receive(&block(notification(&request, 5, 2, &a), 0, true, 2));
    let second = run.request();
    run.receive(&block(answer(&second, None, b"d"), 1, false, 3));
    let again = run.request();
    assert_eq!(again.get_token(), request.get_token());
    run.receive(&block(answer(&again, Some(3), &b), 0, true, 3));
    let second = run.request();
    run.receive(&block(answer(&second, None, b"d"), 1, false, 3));
    assert_eq!(run.states(), [format!("{}d", "b".repeat(16))]);
    // A block that is not the next one.
    run.receive(&block(notification(&request, 6, 4, &a), 0, true, 4));
    let second = run.request();
    run.receive(&block(answer(&second, None, b"d"), 2, false, 4));
    assert_eq!(run.lost(), ["incomplete"]);
    assert_eq!(run.states(), [""; 0]);
}

#[test]
fn a_state_has_a_longest_length() {
    let mut run = Run::new();
    let request = run.request();
    let whole = |packet: Packet, number: u32| {
        let mut packet = packet;
        let value = number << 4 | 8 | 6;
        packet.add_option(CoapOption::Block2, value.to_be_bytes()[1..].to_vec());
        packet
    };
    run.receive(&whole(answer(&request, Some(1), &[b'a'; 1_024]), 0));
    for number in 1..=BODY_MAX as u32 / 1_024 {
        let next = run.request();
        run.receive(&whole(answer(&next, None, &[b'a'; 1_024]), number));
    }
    let is_cut = |it: &Event| matches!(it, Event::State { is_cut: true, .. });
    assert!(run.events.iter().any(is_cut));
}

#[test]
fn messages_of_nobody_are_reset_and_errors_end_an_observation() {
    let mut run = Run::new();
    let request = run.request();
    let mut stranger = notification(&request, 9, 1, b"x");
    stranger.set_token(b"stranger".to_vec());
    run.receive(&stranger);
    run.receive(&stranger);
    let resets = run
        .sent
        .iter()
        .filter(|it| it.header.get_type() == MessageType::Reset);
    assert_eq!(resets.count(), 2);
    assert_eq!(run.states(), [""; 0]);
    run.receive(&answer(&request, Some(1), b"1"));
    let mut gone = notification(&request, 10, 2, b"gone");
    gone.header.code = MessageClass::Response(ResponseType::NotFound);
    run.receive(&gone);
    let problem = Event::Problem {
        resource: 0,
        text: "the server answers 4.04: gone".to_owned(),
    };
    assert!(run.events.contains(&problem), "{:?}", run.events);
    run.pass(seconds(3));
    assert_ne!(run.request().get_token(), request.get_token());
}

/// A server whose resource counts: a new state each second.
#[derive(Default)]
struct Counter {
    state: u32,
    observer: Option<Vec<u8>>,
    /// The notification that is not acknowledged, and its repetitions.
    open: Option<(u16, Packet, u32)>,
    next_id: u16,
    answers: BTreeMap<u16, Packet>,
}

impl Counter {
    fn receive(&mut self, packet: &Packet) -> Option<Packet> {
        let id = packet.header.message_id;
        match packet.header.get_type() {
            MessageType::Acknowledgement => self.open = self.open.take().filter(|it| it.0 != id),
            MessageType::Reset => {
                // It may be about an observation that has another token by now.
                if let Some((_, packet, _)) = self.open.take_if(|it| it.0 == id) {
                    let token = packet.get_token();
                    self.observer.take_if(|it| **it == *token);
                }
            }
            _ => {
                if let Some(known) = self.answers.get(&id) {
                    return Some(known.clone());
                }
                self.observer = Some(packet.get_token().to_vec());
                let mut made = answer(packet, Some(self.state), self.state.to_string().as_bytes());
                made.add_option(CoapOption::MaxAge, vec![10]);
                self.answers.insert(id, made.clone());
                return Some(made);
            }
        }
        None
    }

    fn count(&mut self) -> Option<Packet> {
        self.state += 1;
        self.next_id += 1;
        let mut to = Packet::new();
        to.set_token(self.observer.clone()?);
        let body = self.state.to_string();
        let mut made = notification(&to, self.next_id, self.state, body.as_bytes());
        made.add_option(CoapOption::MaxAge, vec![10]);
        self.open = Some((self.next_id, made.clone(), 0));
        Some(made)
    }

    fn repeat(&mut self) -> Option<Packet> {
        let (_, packet, count) = self.open.as_mut().filter(|it| it.2 < 4)?;
        *count += 1;
        Some(packet.clone())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_newest_state_arrives_and_no_older_one_follows_it(
        fates in prop::collection::vec((0..10_u8, 0..3_000_u64), 64),
    ) {
        let mut run = Run::new();
        let mut server = Counter::default();
        // Datagrams on their way, by arrival: to the server or not.
        let mut network: Vec<(u64, bool, Packet)> = Vec::new();
        let (mut fate, mut states) = (0, Vec::new());
        for tick in 0..3_000_u64 {
            let now_ms = tick * 100;
            // The network is good in the end.
            let is_good = tick > 2_500;
            let mut put = |to_server: bool, packet: Packet, network: &mut Vec<_>| {
                fate += 1;
                let (kind, delay_ms) = fates[fate % fates.len()];
                let delay_ms = if is_good { 10 } else { delay_ms };
                match kind {
                    0..3 if !is_good => {}
                    3..5 if !is_good => {
                        network.push((now_ms + delay_ms, to_server, packet.clone()));
                        network.push((now_ms + 2 * delay_ms + 1, to_server, packet));
                    }
                    _ => network.push((now_ms + delay_ms, to_server, packet)),
                }
            };
            if tick % 10 == 0 && tick < 2_700 && let Some(packet) = server.count() {
                put(false, packet, &mut network);
            } else if tick % 20 == 5 && let Some(packet) = server.repeat() {
                put(false, packet, &mut network);
            }
            network.sort_by_key(|(at, ..)| *at);
            while network.first().is_some_and(|(at, ..)| *at <= now_ms) {
                let (_, to_server, packet) = network.remove(0);
                match to_server {
                    true => if let Some(packet) = server.receive(&packet) {
                        put(false, packet, &mut network);
                    },
                    false => run.receive(&packet),
                }
            }
            run.pass(Duration::from_millis(100));
            for event in std::mem::take(&mut run.events) {
                if let Event::State { body, acknowledge, .. } = event {
                    states.push(String::from_utf8(body).unwrap().parse::<u32>().unwrap());
                    if let Some(id) = acknowledge {
                        run.input(Input::Command(id));
                    }
                }
            }
            for packet in std::mem::take(&mut run.sent) {
                put(true, packet, &mut network);
            }
        }
        prop_assert!(states.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", states);
        prop_assert_eq!(states.last(), Some(&server.state));
        prop_assert!(states.len() > 20, "{:?}", states);
    }

    #[test]
    fn no_datagrams_are_a_panic_and_outputs_end(
        datagrams in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..60)), 0..30),
    ) {
        let mut run = Run::new();
        for (kind, datagram) in datagrams {
            let request = run.request();
            match kind % 4 {
                0 => run.input(Input::Receive(datagram)),
                1 => run.receive(&block(answer(&request, Some(1), &datagram), u32::from(kind), kind & 8 != 0, 1)),
                2 => run.receive(&notification(&request, u16::from(kind), u32::from(kind), &datagram)),
                // The options of a response to the newest request.
                _ => {
                    let header = [0x68, 0x45, (request.header.message_id >> 8) as u8, request.header.message_id as u8];
                    run.input(Input::Receive([&header, request.get_token(), &datagram[..]].concat()));
                }
            }
            run.pass(Duration::from_secs(u64::from(kind)));
        }
    }
}

#[test]
fn the_example_of_the_documentation_is_valid() {
    wrapper_file(&examples("coap")[0]).kind().unwrap();
}
