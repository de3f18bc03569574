//! Whether a sink is where it says: a question to its address, which only the holder of its key answers.
//!
//! A source asks before it lists a sink, so that nobody can have events sent to a stranger. Question
//! and answer are of the same 48 bytes, the hop tag included; a question is asked [`ATTEMPTS`] times at most, and
//! the number in it cannot be guessed by who does not receive it.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use chappe_machine::Output;

use crate::error::Error;
use crate::guard::Guard;
use crate::interface::Happened;
use crate::membership::Contact;
use crate::message::{Body, Message, Proof, SOURCE, Transmit};
use crate::state::{Alarm, JobId};
use crate::tree::Tree;

/// Addresses that are asked at the same time.
///
/// Reason: all sinks of a large source may come at once; 1,024 questions are 49 kB.
const OPEN_MAX: usize = 1_024;
/// Questions to one address.
const ATTEMPTS: u8 = 6;
/// How long the first answer is waited for; twice as long each time: 3.15 s in all.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// The questions that wait for an answer.
#[derive(Debug, Default)]
pub(crate) struct Proofs {
    open: BTreeMap<u64, Open>,
    next: u64,
}

#[derive(Debug)]
struct Open {
    topic: u64,
    contact: Contact,
    number: u128,
    attempts: u8,
}

impl Proofs {
    pub(crate) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// What holds of them at any time.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.open.len() {
            0..=OPEN_MAX => Ok(()),
            many => Err(format!("{many} addresses are asked")),
        }
    }

    fn by_number(&self, number: u128) -> Option<(u64, &Open)> {
        let mut open = self.open.iter();
        let (serial, found) = open.find(|(_, one)| one.number == number)?;
        Some((*serial, found))
    }

    /// Whose answer this would be.
    pub(crate) fn key_of(&self, number: u128) -> Option<[u8; 32]> {
        self.by_number(number).map(|(_, open)| open.contact.key)
    }
}

impl<G: Guard> Tree<G> {
    /// Asks `contact`, which wants to be a sink of `topic`, whether it is there.
    pub(crate) fn prove(&mut self, topic: u64, contact: Contact) -> Result<(), Error> {
        let source = self.topic_index(topic).map(|at| &self.topics[at]);
        if source.is_none_or(|it| it.own.is_none()) {
            return Err(Error::Topic { topic });
        }
        if self.proofs.open.len() >= OPEN_MAX {
            return Err(Error::Full {
                what: "address to be asked",
                most: OPEN_MAX,
            });
        }
        let serial = self.proofs.next;
        self.proofs.next += 1;
        let number = self.unguessable(serial);
        let open = Open {
            topic,
            contact,
            number,
            attempts: 0,
        };
        self.proofs.open.insert(serial, open);
        self.ask(serial);
        Ok(())
    }

    /// A number that only who has this node's key can foretell.
    fn unguessable(&mut self, serial: u64) -> u128 {
        let chance = self.random.u128(..);
        if !self.guard.authenticates() {
            return chance;
        }
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&serial.to_be_bytes());
        bytes[8..].copy_from_slice(&chance.to_be_bytes());
        // What a key agrees on with itself nobody else knows.
        let own = self.contact.key;
        self.guard.hop_tag(&own, &bytes).unwrap_or(chance)
    }

    /// Asks once more, or gives up.
    pub(crate) fn ask(&mut self, serial: u64) {
        let now = self.now();
        let Some(open) = self.proofs.open.get_mut(&serial) else {
            return;
        };
        if open.attempts >= ATTEMPTS {
            return self.proof_ended(serial, false);
        }
        let wait = FIRST_WAIT * (1 << open.attempts);
        open.attempts += 1;
        let proof = Proof {
            topic: open.topic,
            number: open.number,
            answer: false,
        };
        let (address, key) = (open.contact.address, open.contact.key);
        let message = Message {
            from: SOURCE,
            body: Body::Proof(proof),
        };
        self.out.push_back(Output::Transmit(Transmit {
            address,
            key,
            to: SOURCE - 1,
            message,
        }));
        let id = JobId {
            topic: u32::MAX,
            serial,
            job: 0,
        };
        self.set_timer(now + wait, id, Alarm::Proof);
    }

    fn proof_ended(&mut self, serial: u64, there: bool) {
        if let Some(open) = self.proofs.open.remove(&serial) {
            let (topic, contact) = (open.topic, open.contact);
            self.out.push_back(Output::Event(Happened::Proven {
                topic,
                contact,
                there,
            }));
        }
    }

    /// A question is given back to the source that asked, at the address where it is known; an answer
    /// ends its question. [`Tree::open`] has checked who sent it.
    pub(crate) fn on_proof(&mut self, at: usize, proof: Proof) {
        let topic = &self.topics[at];
        match (topic.own, proof.answer) {
            (None, false) => {
                let source = topic.source;
                let answer = Proof {
                    answer: true,
                    ..proof
                };
                self.out.push_back(Output::Transmit(Transmit {
                    address: source.address,
                    key: source.key,
                    to: SOURCE,
                    message: Message {
                        from: SOURCE - 1,
                        body: Body::Proof(answer),
                    },
                }));
            }
            (Some(_), true) => match self.proofs.by_number(proof.number) {
                Some((serial, _)) => self.proof_ended(serial, true),
                None => self.counters.unasked += 1,
            },
            _ => self.counters.unasked += 1,
        }
    }
}
