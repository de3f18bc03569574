//! Outstanding requests: sent, answered, refused, timed out, repeated once.
//!
//! [`Requests`] owns the exchange of single packets: peers with their secrets and rate limits, round
//! trips and time-outs. It returns datagrams to send and the [`Outcome`] of each request, and knows
//! nothing of lookups or of the table.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use chappe_identity::PublicKey;
use chappe_machine::{Instant, Timers};

use super::question::{Answer, Purpose, Question};
use super::round_trip::RoundTrip;
use crate::cryptography::Cryptography;
use crate::message::{AROUND_BYTES, Reason};
use crate::peers::{Opened, Peers};
use crate::record::Notary;
use crate::types::{Counters, Datagram};
use crate::{Body, Config, Contact, Drop, Key, Reach};

/// Checks in flight of whether a contact still answers. Reason: each sender without a token causes one
/// at most, and the node awaits no more answers than for a lookup or two.
const CHECKS_MAX: usize = 16;

/// The place of the node asked, and the number of the request.
type RequestKey = (Key, u64);

/// A request whose answer is awaited.
#[derive(Debug)]
struct InFlight {
    to: Contact,
    question: Question,
    purpose: Purpose,
    sent_at: Instant,
    /// Maximum length of the answer in bytes.
    granted: usize,
    /// Set on the second attempt; there is no third.
    is_repeat: bool,
}

/// A request that was sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) datagram: Datagram,
    /// Maximum length of the answer in bytes.
    pub(super) granted: usize,
}

/// The end of one attempt of a request.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) purpose: Purpose,
    /// The contact that was asked.
    pub(super) to: Contact,
    /// Its place.
    pub(super) place: Key,
    /// The contact that answered, or the one asked if none did.
    pub(super) from: Contact,
    /// Bytes that the answer was allowed.
    pub(super) granted: usize,
    /// Bytes that arrived.
    pub(super) arrived: usize,
    /// The contact has proven its key and address, and belongs in routing tables.
    pub(super) is_node: bool,
    pub(super) result: Attempt,
}

/// The result of one attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    Ended(Answer),
    Repeated(Sent),
}

/// The meaning of a datagram.
#[derive(Debug)]
pub(super) enum Incoming {
    /// A request of another node.
    Request(Contact, Opened),
    /// A request has ended or was repeated.
    Outcome(Outcome),
    /// A node answered after the time-out.
    Late(Contact),
    /// Nothing to do; the reason was counted.
    Dropped,
}

/// The outstanding requests of a node, and its peers.
#[derive(Debug)]
pub(super) struct Requests<C> {
    peers: Peers<C>,
    peers_max: usize,
    reach: Reach,
    round_trip: RoundTrip,
    in_flight: BTreeMap<RequestKey, InFlight>,
    timers: Timers<RequestKey>,
    counters: Counters,
}

impl<C: Cryptography> Requests<C> {
    pub(super) fn new(cryptography: C, config: &Config, now: Instant) -> Self {
        Self {
            peers: Peers::new(cryptography, config.clone(), now),
            peers_max: config.peers_max,
            reach: config.reach.clone(),
            round_trip: RoundTrip::new(config.timeout),
            in_flight: BTreeMap::new(),
            timers: Timers::default(),
            counters: Counters::default(),
        }
    }

    pub(super) fn cryptography(&self) -> &C {
        self.peers.cryptography()
    }

    /// The place of this node.
    pub(super) fn place(&self) -> Key {
        self.peers.place()
    }

    pub(super) fn place_of(&self, contact: &Contact) -> Key {
        self.peers.cryptography().place(&contact.public)
    }

    /// Whether the configuration lets this node send to an address that others named.
    pub(super) fn may_send_to(&self, address: SocketAddr) -> bool {
        self.reach.allows(address)
    }

    pub(super) fn is_member(&self, now: Instant, public: &PublicKey) -> bool {
        self.peers.is_member(now, public)
    }

    pub(super) fn set_time_of_day(&mut self, now: Instant, unix_s: u64) {
        self.peers.set_time_of_day(now, unix_s);
    }

    /// Signs own records and checks those of others.
    pub(super) fn notary(&self, now: Instant) -> Notary<'_, C> {
        Notary {
            cryptography: self.peers.cryptography(),
            unix_s: self.peers.unix_s(now),
        }
    }

    /// The counters of packets and requests.
    pub(super) fn counters(&self) -> Counters {
        self.counters
    }

    pub(super) fn dropped(&self, reason: Drop) -> u64 {
        self.peers.dropped(reason)
    }

    pub(super) fn state_bytes(&self) -> usize {
        self.peers.state_bytes()
    }

    /// The earliest time-out.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    // -- sending --

    /// Sends a question. `None`: this contact cannot be asked.
    pub(super) fn send(
        &mut self,
        now: Instant,
        to: Contact,
        question: Question,
        purpose: Purpose,
    ) -> Option<Sent> {
        self.attempt(now, to, question, purpose, false)
    }

    fn attempt(
        &mut self,
        now: Instant,
        to: Contact,
        question: Question,
        purpose: Purpose,
        is_repeat: bool,
    ) -> Option<Sent> {
        let place = self.place_of(&to);
        if place == self.place() || !self.may_send_to(to.address) {
            return None;
        }
        let granted = question.answer_bytes(&to);
        let is_confirmed = self.peers.has_token(now, &to.public);
        let body = question.clone().body(granted, is_confirmed);
        let (number, bytes) = self.peers.seal(now, &to.public, body, is_repeat)?;
        let in_flight = InFlight {
            to,
            question,
            purpose,
            sent_at: now,
            granted,
            is_repeat,
        };
        self.expect(now, (place, number), in_flight);
        let datagram = self.datagram(&to, bytes);
        Some(Sent { datagram, granted })
    }

    fn expect(&mut self, now: Instant, key: RequestKey, in_flight: InFlight) {
        self.counters.requests += 1;
        self.in_flight.insert(key, in_flight);
        self.timers.set(key, now + self.round_trip.timeout());
    }

    fn datagram(&mut self, to: &Contact, bytes: Vec<u8>) -> Datagram {
        self.counters.sent_bytes += bytes.len() as u64;
        let address = to.address;
        Datagram { address, bytes }
    }

    /// Asks an address for its key. `None`: sending there is not allowed.
    pub(super) fn greet(&mut self, now: Instant, address: SocketAddr) -> Option<Datagram> {
        if !self.may_send_to(address) {
            return None;
        }
        let (number, bytes) = self.peers.greet();
        // The other node's key is unknown, so this node's own key takes its place.
        let to = Contact {
            public: self.peers.public(),
            address,
        };
        let in_flight = InFlight {
            to,
            question: Question::Greet,
            purpose: Purpose::Enter,
            sent_at: now,
            granted: AROUND_BYTES,
            is_repeat: false,
        };
        self.expect(now, (self.place(), number), in_flight);
        Some(self.datagram(&to, bytes))
    }

    /// Seals the answer to another node's request.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        to: Contact,
        request: (u64, bool),
        body: Body,
    ) -> Option<Datagram> {
        match body {
            Body::Refused(_) => self.counters.refused += 1,
            _ => self.counters.served += 1,
        }
        let bytes = self.peers.answer(now, to, request, body)?;
        Some(self.datagram(&to, bytes))
    }

    /// Whether the node at this place may be checked now: no check of it is in flight, and the limit is
    /// not reached.
    pub(super) fn may_check(&self, place: Key) -> bool {
        let is_check = |it: &InFlight| it.purpose == Purpose::Check;
        let checks = self.in_flight.iter().filter(|(_, it)| is_check(it));
        let (mut count, mut is_under_way) = (0, false);
        for ((of, _), _) in checks {
            count += 1;
            is_under_way |= *of == place;
        }
        count < CHECKS_MAX && !is_under_way
    }

    /// Whether an entrance has yet to answer.
    pub(super) fn awaits_entrance(&self) -> bool {
        let is_entrance = |it: &InFlight| it.purpose == Purpose::Enter;
        self.in_flight.values().any(is_entrance)
    }

    // -- receiving --

    /// Opens a datagram and matches it with the outstanding requests.
    pub(super) fn receive(&mut self, now: Instant, datagram: &Datagram) -> Incoming {
        self.counters.received_bytes += datagram.bytes.len() as u64;
        let Ok(opened) = self.peers.open(now, datagram.address, &datagram.bytes) else {
            return Incoming::Dropped;
        };
        let from = Contact {
            public: opened.packet.sender,
            address: datagram.address,
        };
        match opened.packet.body.is_response() {
            true => self.receive_answer(now, from, opened),
            false => Incoming::Request(from, opened),
        }
    }

    fn receive_answer(&mut self, now: Instant, from: Contact, opened: Opened) -> Incoming {
        let number = opened.packet.number;
        let (of_peer, of_greet) = ((self.place_of(&from), number), (self.place(), number));
        let key = match opened.packet.body {
            Body::Greeting => of_greet,
            // The answer comes from a node that admits members only.
            Body::Refused(_) if !self.in_flight.contains_key(&of_peer) => of_greet,
            _ => of_peer,
        };
        let is_expected = |it: &InFlight| it.to.address == from.address;
        if !self.in_flight.get(&key).is_some_and(is_expected) {
            let is_late = self.round_trip.is_late_answer(now, key, from.address);
            if is_late && !opened.packet.client {
                return Incoming::Late(from);
            }
            if !is_late {
                self.peers.drop_packet(Drop::Unasked);
            }
            return Incoming::Dropped;
        }
        let Some(in_flight) = self.in_flight.remove(&key) else {
            return Incoming::Dropped;
        };
        self.timers.cancel(&key);
        self.counters.answered += 1;
        // Each attempt has its own number, so a repeated request gives no ambiguous sample.
        self.round_trip.on_answer(now - in_flight.sent_at);
        Incoming::Outcome(self.judge(now, (key.0, in_flight), from, opened))
    }

    /// The outcome of a request that was answered in time.
    fn judge(
        &mut self,
        now: Instant,
        (place, in_flight): (Key, InFlight),
        from: Contact,
        opened: Opened,
    ) -> Outcome {
        let mut outcome = Outcome {
            purpose: in_flight.purpose,
            to: in_flight.to,
            place,
            from,
            granted: in_flight.granted,
            arrived: opened.bytes,
            is_node: false,
            result: Attempt::Ended(Answer::Nothing),
        };
        if opened.bytes > in_flight.granted {
            self.counters.overlong += 1;
            return outcome;
        }
        if let Body::Refused(reason) = opened.packet.body {
            // The second attempt carries this node's certificate, if it has one.
            let uncertified = reason == Reason::Certificate && in_flight.is_repeat;
            self.counters.uncertified += u64::from(uncertified);
            if !in_flight.is_repeat
                && reason != Reason::Busy
                && let Some(sent) =
                    self.attempt(now, from, in_flight.question, in_flight.purpose, true)
            {
                outcome.result = Attempt::Repeated(sent);
            }
            return outcome;
        }
        outcome.is_node = !opened.packet.client;
        let body = opened.packet.body;
        if in_flight.question.is_answered_by(&body) {
            outcome.result = Attempt::Ended(self.answer_of(body));
        }
        outcome
    }

    fn answer_of(&self, body: Body) -> Answer {
        match body {
            Body::Contacts(contacts) => Answer::Contacts(self.with_places(&contacts)),
            Body::Stored(verdict) => Answer::Stored(verdict),
            Body::Records {
                held,
                split,
                records,
            } => Answer::Records {
                held,
                is_split: split,
                records,
            },
            Body::Pong | Body::Greeting => Answer::Contacts(Vec::new()),
            _ => Answer::Nothing,
        }
    }

    /// The contacts of an answer that may be asked, with their places.
    fn with_places(&self, contacts: &[Contact]) -> Vec<(Key, Contact)> {
        let own = self.place();
        contacts
            .iter()
            .filter(|contact| self.may_send_to(contact.address))
            .map(|contact| (self.place_of(contact), *contact))
            .filter(|(place, _)| *place != own)
            .collect()
    }

    /// The outcome of the next request that has timed out.
    pub(super) fn time_out(&mut self, now: Instant) -> Option<Outcome> {
        let key = self.timers.pop(now)?;
        let in_flight = self.in_flight.remove(&key)?;
        let InFlight {
            to,
            purpose,
            granted,
            ..
        } = in_flight;
        self.counters.timeouts += 1;
        self.round_trip
            .timed_out(key, to.address, in_flight.sent_at);
        let repeat = match purpose.is_repeated() && !in_flight.is_repeat {
            true => self.attempt(now, to, in_flight.question, purpose, true),
            false => None,
        };
        Some(Outcome {
            purpose,
            to,
            place: key.0,
            from: to,
            granted,
            arrived: 0,
            is_node: false,
            result: repeat.map_or(Attempt::Ended(Answer::Nothing), Attempt::Repeated),
        })
    }

    pub(super) fn check(&self) -> Result<(), String> {
        if self.peers.len() > self.peers_max {
            return Err(format!(
                "{} peers are stored, more than the limit",
                self.peers.len()
            ));
        }
        if self.timers.len() != self.in_flight.len() {
            return Err(format!(
                "{} time-outs for {} requests",
                self.timers.len(),
                self.in_flight.len()
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use chappe_identity::Key as IdentityKey;

    use super::*;
    use crate::NodeKey;

    fn requests() -> Requests<NodeKey> {
        let key = NodeKey::new(IdentityKey::from_seed([1; 32]));
        Requests::new(key, &Config::new(1, [0; 32]), Instant::ZERO)
    }

    fn contact() -> Contact {
        Contact {
            public: IdentityKey::from_seed([2; 32]).public(),
            address: ([10, 0, 0, 2], 4_000).into(),
        }
    }

    /// The next time-out, at its deadline.
    fn time_out(requests: &mut Requests<NodeKey>) -> Outcome {
        let at = requests.deadline().unwrap();
        requests.time_out(at).unwrap()
    }

    #[test]
    fn a_lost_store_request_is_repeated_once() {
        let mut requests = requests();
        let question = Question::Ping;
        let sent = requests.send(Instant::ZERO, contact(), question, Purpose::Store(0));
        assert!(sent.is_some());
        let first = time_out(&mut requests).result;
        assert!(matches!(first, Attempt::Repeated(_)), "{first:?}");
        let second = time_out(&mut requests).result;
        assert_eq!(second, Attempt::Ended(Answer::Nothing));
        assert_eq!(requests.deadline(), None);
        requests.check().unwrap();
    }

    #[test]
    fn one_contact_is_checked_once_at_a_time() {
        let mut requests = requests();
        let place = requests.place_of(&contact());
        assert!(requests.may_check(place));
        let now = Instant::ZERO + Duration::from_secs(1);
        let sent = requests.send(now, contact(), Question::Ping, Purpose::Check);
        assert!(sent.is_some() && !requests.may_check(place));
        time_out(&mut requests);
        assert!(requests.may_check(place));
    }
}
