//! Requests on the way: sent, answered, refused, timed out.

use chappe_machine::Instant;

use super::{Alarm, Kad, Task, TaskId};
use crate::contact::{ADDRESS_V4_BYTES, CONTACT_BYTES_MAX};
use crate::cryptography::{Cryptography, TAG_BYTES};
use crate::message::{AROUND_BYTES, PACKET_BYTES_MAX, Reason, Verdict};
use crate::peers::{Opened, padding};
use crate::types::{Datagram, Event};
use crate::{Body, Contact, Drop, HEAD_BYTES, Key, Record};

/// Pings that are on the way to see whether somebody is there. Reason: one for each stranger at most,
/// and not more than answers are awaited for a lookup or two.
const CHECKS_MAX: usize = 16;

/// What was asked; kept so that it can be asked again with a token.
#[derive(Clone, Debug)]
pub(super) enum Question {
    Greet,
    Ping,
    Find {
        target: Key,
        count: u8,
    },
    Store {
        level: u8,
        record: Record,
    },
    Ask {
        place: Key,
        after: u128,
        digest: u64,
    },
}

impl Question {
    /// Most bytes that the answer may have.
    fn answer_bytes(&self, to: &Contact) -> usize {
        let body = match self {
            Self::Greet | Self::Ping | Self::Store { .. } => 1,
            Self::Find { count, .. } => {
                let one = match to.address.is_ipv4() {
                    true => 32 + ADDRESS_V4_BYTES,
                    false => CONTACT_BYTES_MAX,
                };
                usize::from(*count) * one
            }
            Self::Ask { .. } => PACKET_BYTES_MAX,
        };
        (AROUND_BYTES + body).min(PACKET_BYTES_MAX)
    }

    fn body(self, answer_bytes: usize, confirmed: bool) -> Body {
        let own = |body: usize| HEAD_BYTES + body + TAG_BYTES;
        let pad = |body: usize| match confirmed {
            true => 0,
            false => padding(own(body), answer_bytes),
        };
        match self {
            Self::Greet | Self::Ping => Body::Ping,
            Self::Find { target, count } => Body::Find {
                target,
                count,
                padding: pad(17),
            },
            Self::Store { level, record } => Body::Store { level, record },
            Self::Ask {
                place,
                after,
                digest,
            } => Body::Ask {
                place,
                after,
                digest,
                // A packet at most.
                bytes: answer_bytes as u16,
                padding: pad(42),
            },
        }
    }

    fn is_answered_by(&self, body: &Body) -> bool {
        matches!(
            (self, body),
            (Self::Greet, Body::Greeting)
                | (Self::Ping, Body::Pong)
                | (Self::Find { .. }, Body::Contacts(_))
                | (Self::Store { .. }, Body::Stored(_))
                | (Self::Ask { .. }, Body::Records { .. })
        )
    }
}

/// Whom the answer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// A step of a lookup, or of the walk of a gathering.
    Walk(TaskId),
    /// A member of a region was asked for others.
    Probe(TaskId),
    /// A record to be kept.
    Store(TaskId),
    /// A page of records.
    Ask(TaskId),
    /// Is somebody still there?
    Check,
    /// An entrance to the network.
    Enter,
    /// Is somebody back who was lost?
    Return,
    /// The application's ping.
    Application,
}

impl Purpose {
    pub(super) fn task(&self) -> Option<TaskId> {
        match self {
            Self::Walk(id) | Self::Probe(id) | Self::Store(id) | Self::Ask(id) => Some(*id),
            Self::Check | Self::Enter | Self::Return | Self::Application => None,
        }
    }

    /// A lost packet is sent again: there is no other node to turn to, or it costs more than waiting.
    fn is_repeated(self) -> bool {
        matches!(self, Self::Store(_) | Self::Ask(_) | Self::Application)
    }
}

#[derive(Debug)]
pub(super) struct InFlight {
    to: Contact,
    question: Question,
    pub(super) purpose: Purpose,
    at: Instant,
    /// Most bytes of the answer.
    granted: usize,
    /// It was refused once, or is sent again: not again.
    repeated: bool,
}

/// What came of a request.
#[derive(Debug)]
pub(super) enum Answer {
    Contacts(Vec<Contact>),
    Stored(Verdict),
    Records {
        held: u16,
        split: bool,
        records: Vec<Record>,
    },
    /// Refused, not understood, or not answered in time.
    Nothing,
}

impl<C: Cryptography> Kad<C> {
    /// Asks for the contacts nearest to a point. Says whether it could be asked.
    pub(super) fn find(
        &mut self,
        now: Instant,
        to: Contact,
        (target, count): (Key, u8),
        purpose: Purpose,
    ) -> bool {
        self.ask(now, to, Question::Find { target, count }, purpose) > 0
    }

    pub(super) fn ping(&mut self, now: Instant, to: Contact, purpose: Purpose) -> bool {
        self.ask(now, to, Question::Ping, purpose) > 0
    }

    /// Pings somebody of whom the table wants to know, within limits.
    pub(super) fn check_whether_there(&mut self, now: Instant, to: Contact) {
        let place = self.place_of(&to);
        let checks = self
            .in_flight
            .iter()
            .filter(|(_, it)| it.purpose == Purpose::Check);
        let asked = |((of, _), _): ((Key, u64), &InFlight)| of == place;
        let (mut count, mut already) = (0, false);
        for (key, it) in checks {
            count += 1;
            already |= asked((*key, it));
        }
        if count < CHECKS_MAX && !already {
            self.ping(now, to, Purpose::Check);
        }
    }

    /// Asks a node. Gives the most bytes that the answer may have, 0 when it cannot be asked.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        to: Contact,
        question: Question,
        purpose: Purpose,
    ) -> usize {
        self.ask_again(now, to, question, purpose, false)
    }

    fn ask_again(
        &mut self,
        now: Instant,
        to: Contact,
        question: Question,
        purpose: Purpose,
        repeated: bool,
    ) -> usize {
        let place = self.place_of(&to);
        if place == self.place() || !self.config.reach.allows(to.address) {
            return 0;
        }
        let granted = question.answer_bytes(&to);
        let confirmed = self.peers.has_token(now, &to.public);
        let body = question.clone().body(granted, confirmed);
        let Some((number, bytes)) = self.peers.seal(now, &to.public, body, repeated) else {
            return 0;
        };
        self.expect(
            now,
            (place, number),
            InFlight {
                to,
                question,
                purpose,
                at: now,
                granted,
                repeated,
            },
        );
        self.transmit(&to, bytes);
        granted
    }

    fn expect(&mut self, now: Instant, key: (Key, u64), in_flight: InFlight) {
        self.counters.requests += 1;
        self.in_flight.insert(key, in_flight);
        let timeout = self.round_trip.timeout();
        self.timers.set(Alarm::Request(key.0, key.1), now + timeout);
    }

    /// Asks an address for its key.
    pub(super) fn greet(&mut self, now: Instant, address: std::net::SocketAddr) {
        if !self.config.reach.allows(address) {
            return;
        }
        let (number, bytes) = self.peers.greet();
        // The key is not known; the own one stands for it.
        let to = Contact {
            public: self.peers.public(),
            address,
        };
        let granted = AROUND_BYTES;
        self.expect(
            now,
            (self.place(), number),
            InFlight {
                to,
                question: Question::Greet,
                purpose: Purpose::Enter,
                at: now,
                granted,
                repeated: false,
            },
        );
        self.transmit(&to, bytes);
    }

    // -- what arrives --

    pub(super) fn receive(&mut self, now: Instant, datagram: &Datagram) {
        self.counters.received_bytes += datagram.bytes.len() as u64;
        let Ok(opened) = self.peers.open(now, datagram.address, &datagram.bytes) else {
            return;
        };
        let from = Contact {
            public: opened.packet.sender,
            address: datagram.address,
        };
        if opened.packet.body.is_response() {
            self.answered(now, from, opened);
        } else {
            self.serve(now, from, opened);
        }
    }

    fn answered(&mut self, now: Instant, from: Contact, opened: Opened) {
        let number = opened.packet.number;
        let (of_peer, of_greet) = ((self.place_of(&from), number), (self.place(), number));
        let key = match opened.packet.body {
            Body::Greeting => of_greet,
            // By one who hears members alone.
            Body::Refused(_) if !self.in_flight.contains_key(&of_peer) => of_greet,
            _ => of_peer,
        };
        let expected = |it: &InFlight| it.to.address == from.address;
        if !self.in_flight.get(&key).is_some_and(expected) {
            match self.round_trip.came_late(now, key, from.address) {
                true if !opened.packet.client => self.observe(now, &from),
                true => {}
                false => self.peers.drop_packet(Drop::Unasked),
            }
            return;
        }
        let Some(mut in_flight) = self.in_flight.remove(&key) else {
            return;
        };
        self.timers.cancel(&Alarm::Request(key.0, key.1));
        self.counters.answered += 1;
        // Of one that was sent again it is known which was answered: each has its own number.
        self.round_trip.measured(now - in_flight.at);
        let bytes = opened.bytes;
        if bytes > in_flight.granted {
            self.counters.overlong += 1;
            self.came_of(now, &in_flight, from, Answer::Nothing, bytes);
            return;
        }
        if let Body::Refused(reason) = opened.packet.body {
            // The second time the own certificate was shown, if there is one.
            let uncertified = reason == Reason::Certificate && in_flight.repeated;
            self.counters.uncertified += u64::from(uncertified);
            let again = !in_flight.repeated && reason != Reason::Busy;
            let asked = again && {
                self.settle(in_flight.purpose, in_flight.granted, bytes);
                let question = in_flight.question.clone();
                let granted = self.ask_again(now, from, question, in_flight.purpose, true);
                self.count_granted(in_flight.purpose, granted);
                granted > 0
            };
            if again && !asked {
                // It is settled already.
                in_flight.granted = 0;
            }
            if !asked {
                self.came_of(now, &in_flight, from, Answer::Nothing, bytes);
            }
            return;
        }
        if !opened.packet.client {
            self.observe(now, &from);
        }
        let fits = in_flight.question.is_answered_by(&opened.packet.body);
        let answer = match opened.packet.body {
            Body::Contacts(contacts) if fits => Answer::Contacts(contacts),
            Body::Stored(verdict) if fits => Answer::Stored(verdict),
            Body::Records {
                held,
                split,
                records,
            } if fits => Answer::Records {
                held,
                split,
                records,
            },
            Body::Pong | Body::Greeting if fits => Answer::Contacts(Vec::new()),
            _ => Answer::Nothing,
        };
        self.came_of(now, &in_flight, from, answer, bytes);
    }

    pub(super) fn timed_out(&mut self, now: Instant, key: (Key, u64)) {
        let Some(mut in_flight) = self.in_flight.remove(&key) else {
            return;
        };
        self.counters.timeouts += 1;
        self.round_trip
            .timed_out(key, in_flight.to.address, in_flight.at);
        if !matches!(in_flight.question, Question::Greet)
            && let Some(gone) = self.table.failed(key.0)
        {
            self.lose(now, gone);
        }
        if in_flight.purpose.is_repeated() && !in_flight.repeated {
            self.settle(in_flight.purpose, in_flight.granted, 0);
            in_flight.granted = 0;
            let question = in_flight.question.clone();
            let granted = self.ask_again(now, in_flight.to, question, in_flight.purpose, true);
            if granted > 0 {
                self.count_granted(in_flight.purpose, granted);
                return;
            }
        }
        self.came_of(now, &in_flight, in_flight.to, Answer::Nothing, 0);
    }

    /// Hands an answer to whom it is for.
    fn came_of(
        &mut self,
        now: Instant,
        in_flight: &InFlight,
        from: Contact,
        answer: Answer,
        bytes: usize,
    ) {
        self.settle(in_flight.purpose, in_flight.granted, bytes);
        let place = self.place_of(&in_flight.to);
        match in_flight.purpose {
            // Who is there is in the table, or not, by now.
            Purpose::Check | Purpose::Return => {}
            Purpose::Enter => {
                let by = (!matches!(answer, Answer::Nothing)).then_some(from);
                self.entered(now, by);
            }
            Purpose::Application => {
                let there = !matches!(answer, Answer::Nothing);
                let contact = in_flight.to;
                self.say(Event::Pinged { contact, there });
            }
            purpose => {
                let Some(id) = purpose.task() else { return };
                let contacts = match &answer {
                    Answer::Contacts(contacts) => Some(self.placed(contacts)),
                    _ => None,
                };
                let Some(task) = self.tasks.get_mut(&id) else {
                    return;
                };
                self.awake.push_back(id);
                match task {
                    Task::Lookup(lookup) => match contacts {
                        Some(contacts) => lookup.walk.answered(place, &contacts),
                        None => lookup.walk.failed(place),
                    },
                    Task::Publishing(publishing) => {
                        publishing.came(purpose, place, contacts, &answer);
                    }
                    Task::Searching(searching) => match purpose {
                        Purpose::Ask(_) => self.records_came(now, id, answer),
                        _ => searching.came(purpose, place, contacts),
                    },
                }
            }
        }
    }

    /// The contacts of an answer that may be asked, with their places.
    fn placed(&self, contacts: &[Contact]) -> Vec<(Key, Contact)> {
        let own = self.place();
        contacts
            .iter()
            .filter(|contact| self.config.reach.allows(contact.address))
            .map(|contact| (self.place_of(contact), *contact))
            .filter(|(place, _)| *place != own)
            .collect()
    }

    /// What a search granted has come, or has not in time.
    fn settle(&mut self, purpose: Purpose, granted: usize, arrived: usize) {
        let task = purpose.task().and_then(|id| self.tasks.get_mut(&id));
        if let Some(Task::Searching(searching)) = task {
            searching.settles(granted, arrived);
        }
    }

    fn count_granted(&mut self, purpose: Purpose, bytes: usize) {
        let task = purpose.task().and_then(|id| self.tasks.get_mut(&id));
        if let Some(Task::Searching(searching)) = task {
            searching.grants(bytes);
        }
    }
}
