//! What is answered, where and when.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use chappe_machine::{Input, Instant, Invariant, Machine, Output, TokenBucket, TokenRate};

use super::PORT;
use super::message::{MessageError, PTR, Query, read_query};
use super::records::{Form, Record, Service, answer, asked};

/// Announcements at the start, and the time between them (RFC 6762, section 8.3).
const ANNOUNCEMENTS: u32 = 2;
const ANNOUNCEMENT_PAUSE: Duration = Duration::from_secs(1);
/// Nothing is multicast twice within this time (section 6).
const MULTICAST_PAUSE: Duration = Duration::from_secs(1);
/// An answer that others may have, too, waits for so many milliseconds, so that answers do not collide (section 6).
const DELAY_MS: std::ops::Range<u64> = 20..120;
/// So long after a multicast an answer may be unicast: a quarter of the shortest time to live (section 5.4).
const FRESH: Duration = Duration::from_secs(30);
/// Answers in unicast; reason: the source of a query may be forged, and its owner would get the answers.
const UNICAST: TokenRate = TokenRate {
    per_s: 10,
    burst: 20,
};

/// An interface in one family of addresses.
pub(super) type Place = (u32, bool);

/// A datagram to the group.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Who sent it.
    pub from: SocketAddr,
    /// The index of the interface at which it was received.
    pub interface: u32,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// A datagram to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// The index of the interface.
    pub interface: u32,
    /// Whether it goes over IPv6.
    pub is_v6: bool,
    /// To one address; `None`: to the group.
    pub to: Option<SocketAddr>,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// A command for the responder.
#[derive(Debug, Clone)]
pub enum ResponderCommand {
    /// At these interfaces the host has these addresses, at which the service listens. It is announced where that is new.
    Addresses(Vec<(u32, Vec<IpAddr>)>),
    /// Everything is taken back.
    Shutdown,
}

/// What strangers did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResponderEvent {
    /// A message that cannot be read.
    Refused {
        /// Who sent it.
        from: SocketAddr,
        /// What is wrong.
        error: MessageError,
    },
}

/// An interface in one family.
struct At {
    addresses: Vec<IpAddr>,
    records: Vec<Record>,
    announcements: u32,
    announce_at: Instant,
    multicast_at: Option<Instant>,
    /// When to answer, and with which records.
    due: Option<(Instant, BTreeSet<usize>)>,
}

/// Answers questions about one service.
pub struct Responder {
    service: Service,
    places: BTreeMap<Place, At>,
    random: u64,
    unicast: TokenBucket,
    outputs: VecDeque<Output<Reply, ResponderEvent>>,
}

impl Responder {
    /// A responder without interfaces. `seed` is random.
    #[must_use]
    pub fn new(service: Service, seed: u64) -> Self {
        Self {
            service,
            places: BTreeMap::new(),
            random: seed,
            unicast: TokenBucket::full(Instant::ZERO, UNICAST),
            outputs: VecDeque::new(),
        }
    }

    fn addresses(&mut self, now: Instant, all: &[(u32, Vec<IpAddr>)]) {
        let mut places = BTreeMap::new();
        for (interface, addresses) in all {
            for is_v6 in [false, true] {
                // Each family has a group of its own, and answers there name all addresses.
                if !addresses.iter().any(|address| address.is_ipv6() == is_v6) {
                    continue;
                }
                let place = (*interface, is_v6);
                let known = self.places.remove(&place);
                let known = known.filter(|known| known.addresses == *addresses);
                let new = || At {
                    records: self.service.records(addresses),
                    addresses: addresses.clone(),
                    announcements: ANNOUNCEMENTS,
                    announce_at: now,
                    multicast_at: None,
                    due: None,
                };
                places.insert(place, known.unwrap_or_else(new));
            }
        }
        self.places = places;
    }

    fn shutdown(&mut self) {
        for ((interface, is_v6), at) in std::mem::take(&mut self.places) {
            let all: Vec<usize> = (0..at.records.len()).collect();
            self.outputs.push_back(Output::Transmit(Reply {
                interface,
                is_v6,
                to: None,
                bytes: answer(&at.records, &all, None, Form::Goodbye),
            }));
        }
    }

    fn receive(&mut self, now: Instant, received: &Asked) {
        let from = received.from;
        let query = match read_query(&received.bytes) {
            Ok(query) => query,
            // Those of others to others.
            Err(MessageError::NoQuery) => return,
            Err(error) => {
                let event = ResponderEvent::Refused { from, error };
                return self.outputs.push_back(Output::Event(event));
            }
        };
        let place = (received.interface, from.is_ipv6());
        let Some(at) = self.places.get(&place) else {
            return;
        };
        let wanted = asked(&at.records, &query);
        if wanted.is_empty() {
            return;
        }
        if from.port() != PORT {
            return self.unicast(now, place, &wanted, &query, from, Form::Legacy(query.id));
        }
        let is_fresh = at.multicast_at.is_some_and(|last| now < last + FRESH);
        let mut ours = query.questions.iter();
        let ours = ours.all(|one| {
            one.may_be_unicast || !at.records.iter().any(|record| record.name == one.name)
        });
        if ours && is_fresh {
            return self.unicast(now, place, &wanted, &query, from, Form::Usual);
        }
        let is_shared = wanted.iter().any(|index| at.records[*index].record == PTR);
        let delay = if is_shared {
            self.delay()
        } else {
            Duration::ZERO
        };
        if let Some(at) = self.places.get_mut(&place) {
            let earliest = at.multicast_at.map(|last| last + MULTICAST_PAUSE);
            let when = earliest.unwrap_or(now).max(now + delay);
            let (_, records) = at.due.get_or_insert_with(|| (when, BTreeSet::new()));
            records.extend(wanted);
        }
        self.send(now);
    }

    fn unicast(
        &mut self,
        now: Instant,
        (interface, is_v6): Place,
        wanted: &[usize],
        query: &Query,
        to: SocketAddr,
        form: Form,
    ) {
        let Some(at) = self.places.get(&(interface, is_v6)) else {
            return;
        };
        if self.unicast.take(now, 1, UNICAST).is_ok() {
            self.outputs.push_back(Output::Transmit(Reply {
                interface,
                is_v6,
                to: Some(to),
                bytes: answer(&at.records, wanted, Some(query), form),
            }));
        }
    }

    /// A step of a linear congruential generator (Knuth's MMIX); nothing depends on its secrecy.
    fn delay(&mut self) -> Duration {
        let next = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = next.wrapping_add(1_442_695_040_888_963_407);
        let choices = DELAY_MS.end - DELAY_MS.start;
        Duration::from_millis(DELAY_MS.start + (self.random >> 33) % choices)
    }

    /// Multicasts what is due.
    fn send(&mut self, now: Instant) {
        for ((interface, is_v6), at) in &mut self.places {
            let mut wanted = BTreeSet::new();
            if at.announcements > 0 && at.announce_at <= now {
                at.announcements -= 1;
                at.announce_at = now + ANNOUNCEMENT_PAUSE;
                wanted.extend(0..at.records.len());
            }
            if let Some((_, records)) = at.due.take_if(|(when, _)| *when <= now) {
                wanted.extend(records);
            }
            if wanted.is_empty() {
                continue;
            }
            at.multicast_at = Some(now);
            let wanted: Vec<usize> = wanted.into_iter().collect();
            self.outputs.push_back(Output::Transmit(Reply {
                interface: *interface,
                is_v6: *is_v6,
                to: None,
                bytes: answer(&at.records, &wanted, None, Form::Usual),
            }));
        }
    }
}

impl Machine for Responder {
    type Receive = Asked;
    type Command = ResponderCommand;
    type Transmit = Reply;
    type Event = ResponderEvent;

    fn handle_input(&mut self, now: Instant, input: Input<Asked, ResponderCommand>) {
        match input {
            Input::Receive(received) => self.receive(now, &received),
            Input::Command(ResponderCommand::Addresses(all)) => self.addresses(now, &all),
            Input::Command(ResponderCommand::Shutdown) => self.shutdown(),
            Input::Timeout => {}
        }
        self.send(now);
    }

    fn poll_output(&mut self) -> Option<Output<Reply, ResponderEvent>> {
        self.outputs.pop_front()
    }

    fn deadline(&self) -> Option<Instant> {
        let of = |at: &At| {
            let announcement = (at.announcements > 0).then_some(at.announce_at);
            let due = at.due.as_ref().map(|(when, _)| *when);
            [announcement, due].into_iter().flatten().min()
        };
        self.places.values().filter_map(of).min()
    }
}

impl Invariant for Responder {
    fn check(&self) -> Result<(), String> {
        for (place, at) in &self.places {
            let due = at.due.iter().flat_map(|(_, records)| records);
            if due.max().is_some_and(|last| *last >= at.records.len()) {
                return Err(format!(
                    "{place:?} is to answer with a record that it does not have"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use chappe_machine::Harness;

    use super::super::message::{ANY, CLASS_IN, Name, SRV};
    use super::*;

    const HERE: &str = "10.0.0.9";

    fn responder() -> Harness<Responder> {
        let service = Service {
            instance: "ward 3".into(),
            kind: "_wot".into(),
            subtype: Some("_directory".into()),
            host: "chappe-1".into(),
            port: 8470,
            texts: vec!["td=/x".into()],
        };
        let mut harness = Harness::new(Responder::new(service, 1), 1);
        let addresses = vec![(2, vec![HERE.parse().unwrap()])];
        let command = Input::Command(ResponderCommand::Addresses(addresses));
        assert_eq!(sent(harness.input(command).unwrap()).len(), 1);
        assert_eq!(
            sent(harness.advance(Duration::from_secs(5)).unwrap()).len(),
            1
        );
        assert_eq!(harness.deadline(), None);
        harness
    }

    fn sent(outputs: Vec<Output<Reply, ResponderEvent>>) -> Vec<Reply> {
        let replies = outputs.into_iter().map(|output| match output {
            Output::Transmit(reply) => reply,
            Output::Event(event) => panic!("{event:?}"),
        });
        replies.collect()
    }

    fn question(labels: &[&str], record: u16, class: u16) -> Vec<u8> {
        let mut message = vec![0, 5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        message.extend_from_slice(Name::of(labels).bytes());
        message.extend_from_slice(&record.to_be_bytes());
        message.extend_from_slice(&class.to_be_bytes());
        message
    }

    fn ask(harness: &mut Harness<Responder>, port: u16, bytes: Vec<u8>) -> Vec<Reply> {
        let from = ([10, 0, 0, 7], port).into();
        let interface = 2;
        let asked = Asked {
            from,
            interface,
            bytes,
        };
        sent(harness.input(Input::Receive(asked)).unwrap())
    }

    const DIRECTORIES: [&str; 5] = ["_directory", "_sub", "_wot", "_tcp", "local"];

    #[test]
    fn what_is_asked_is_answered_and_nothing_else() {
        let mut harness = responder();
        for labels in [&["_http", "_tcp", "local"][..], &["chappe-2", "local"]] {
            assert_eq!(ask(&mut harness, PORT, question(labels, ANY, CLASS_IN)), []);
        }
        assert_eq!(harness.deadline(), None);
        assert_eq!(
            ask(&mut harness, PORT, question(&DIRECTORIES, PTR, CLASS_IN)),
            []
        );
        let replies = sent(harness.advance(Duration::from_millis(120)).unwrap());
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0].to, None);
        // One answer, and four more that are about it: the target, the texts and the address.
        assert_eq!(
            replies[0].bytes[..12],
            [0, 0, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 3]
        );
        // Not again within a second.
        let instance = ["ward 3", "_wot", "_tcp", "local"];
        assert_eq!(
            ask(&mut harness, PORT, question(&instance, SRV, CLASS_IN)),
            []
        );
        assert_eq!(
            sent(harness.advance(Duration::from_millis(900)).unwrap()),
            []
        );
        assert_eq!(
            sent(harness.advance(Duration::from_millis(100)).unwrap()).len(),
            1
        );
    }

    #[test]
    fn unicast_goes_to_who_asks_for_it_within_a_limit() {
        let mut harness = responder();
        let unicast = CLASS_IN | 0x8000;
        let replies = ask(&mut harness, PORT, question(&DIRECTORIES, PTR, unicast));
        assert_eq!(replies[0].to, Some(([10, 0, 0, 7], PORT).into()));
        // A resolver that knows only unicast gets its question and its number.
        let replies = ask(&mut harness, 40_000, question(&DIRECTORIES, PTR, CLASS_IN));
        assert_eq!(replies[0].bytes[..8], [0, 5, 0x84, 0, 0, 1, 0, 1]);
        let mut count = 0;
        for _ in 0..100 {
            count += ask(&mut harness, 40_000, question(&DIRECTORIES, PTR, CLASS_IN)).len();
        }
        assert_eq!(count, 18);
        // After a while all hear it again.
        harness.advance(FRESH).unwrap();
        assert_eq!(
            ask(&mut harness, PORT, question(&DIRECTORIES, PTR, unicast)),
            []
        );
        assert_eq!(
            sent(harness.advance(Duration::from_secs(1)).unwrap())[0].to,
            None
        );
    }

    #[test]
    fn an_asker_that_knows_the_answer_gets_none() {
        let mut harness = responder();
        let mut known = question(&DIRECTORIES, PTR, CLASS_IN);
        known[7] = 1;
        let target = Name::of(&["ward 3", "_wot", "_tcp", "local"]);
        known.extend_from_slice(b"\xc0\x0c\x00\x0c\x00\x01\x00\x00\x10\x00");
        known.extend_from_slice(&u16::try_from(target.bytes().len()).unwrap().to_be_bytes());
        known.extend_from_slice(target.bytes());
        assert_eq!(ask(&mut harness, PORT, known.clone()), []);
        assert_eq!(harness.deadline(), None);
        // It is about to forget it.
        let ttl = known.len() - target.bytes().len() - 4;
        known[ttl] = 1;
        assert_eq!(ask(&mut harness, PORT, known), []);
        assert!(harness.deadline().is_some());
    }

    #[test]
    fn a_service_that_ends_is_taken_back() {
        let mut harness = responder();
        let replies = sent(
            harness
                .input(Input::Command(ResponderCommand::Shutdown))
                .unwrap(),
        );
        assert_eq!(replies.len(), 1);
        assert_eq!(
            replies[0].bytes[7], 6,
            "each record, without a time to live"
        );
        assert_eq!(
            ask(&mut harness, PORT, question(&DIRECTORIES, PTR, CLASS_IN)),
            []
        );
        assert_eq!(harness.deadline(), None);
    }

    #[test]
    fn what_cannot_be_read_is_told() {
        let mut harness = responder();
        let asked = Asked {
            from: ([10, 0, 0, 7], PORT).into(),
            interface: 2,
            bytes: vec![0; 5],
        };
        let outputs = harness.input(Input::Receive(asked)).unwrap();
        assert!(matches!(
            outputs[..],
            [Output::Event(ResponderEvent::Refused { .. })]
        ));
    }
}
