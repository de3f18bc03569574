//! Proofs of address: a question to a sink's address, which only the holder of its key can answer.
//!
//! A source asks before it lists a sink, so that events cannot be directed to a stranger. Question and answer
//! both have 48 bytes, hop tag included. A question is asked at most [`ATTEMPTS`] times, and its number cannot be
//! guessed by a node that does not receive it.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use super::alarms::{Alarm, JobId};
use super::node::Node;
use crate::error::Error;
use crate::guard::Guard;
use crate::interface::TreeEvent;
use crate::membership::Contact;
use crate::message::{Body, Message, Proof, SOURCE};

/// Addresses that are asked at the same time.
///
/// Reason: all sinks of a large source may subscribe at the same time; 1,024 questions are 49 kB.
const OPEN_MAX: usize = 1_024;
/// Questions to one address.
const ATTEMPTS: u8 = 6;
/// The wait for the first answer; it doubles with each question: 3.15 s in all.
const FIRST_WAIT: Duration = Duration::from_millis(50);

/// The open questions of a source, by serial number.
#[derive(Debug, Default)]
pub(super) struct Proofs {
    open: BTreeMap<u64, Question>,
    next_serial: u64,
}

#[derive(Debug)]
struct Question {
    topic: u64,
    contact: Contact,
    number: u128,
    attempts: u8,
}

impl Proofs {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn check(&self) -> Result<(), String> {
        match self.open.len() {
            0..=OPEN_MAX => Ok(()),
            many => Err(format!("{many} questions are open")),
        }
    }

    fn find(&self, number: u128) -> Option<(u64, &Question)> {
        let mut open = self.open.iter();
        let (serial, question) = open.find(|(_, it)| it.number == number)?;
        Some((*serial, question))
    }

    /// The key of the node that was asked with this number.
    pub(super) fn key_of(&self, number: u128) -> Option<[u8; 32]> {
        self.find(number).map(|(_, question)| question.contact.key)
    }

    /// Asks `contact`, which wants to be a sink of `topic`.
    ///
    /// # Errors
    /// This node is not the source of the topic, or too many addresses are asked.
    pub(super) fn start<G: Guard>(
        &mut self,
        node: &mut Node<G>,
        topic: u64,
        contact: Contact,
    ) -> Result<(), Error> {
        let known = node.topics.find(topic).map(|at| &node.topics[at]);
        if known.is_none_or(|known| known.publisher.is_none()) {
            return Err(Error::Topic { topic });
        }
        if self.open.len() >= OPEN_MAX {
            return Err(Error::Full {
                what: "proof of address",
                most: OPEN_MAX,
            });
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        let question = Question {
            topic,
            contact,
            number: unguessable(node, serial),
            attempts: 0,
        };
        self.open.insert(serial, question);
        self.ask(node, serial);
        Ok(())
    }

    /// Asks once more, or gives up.
    pub(super) fn ask<G: Guard>(&mut self, node: &mut Node<G>, serial: u64) {
        let Some(question) = self.open.get_mut(&serial) else {
            return;
        };
        if question.attempts >= ATTEMPTS {
            self.end(node, serial, false);
            return;
        }
        let wait = FIRST_WAIT * (1 << question.attempts);
        question.attempts += 1;
        let proof = Proof {
            topic: question.topic,
            number: question.number,
            answer: false,
        };
        let message = Message {
            from: SOURCE,
            body: Body::Proof(proof),
        };
        node.transmit_to(question.contact, SOURCE - 1, message);
        let id = JobId {
            topic: u32::MAX,
            serial,
            job: 0,
        };
        node.alarms.set(node.now + wait, id, Alarm::Proof);
    }

    fn end<G: Guard>(&mut self, node: &mut Node<G>, serial: u64, is_reachable: bool) {
        if let Some(question) = self.open.remove(&serial) {
            node.emit(TreeEvent::Proven {
                topic: question.topic,
                contact: question.contact,
                is_reachable,
            });
        }
    }

    /// A sink answers the question of its source, at the address where it knows the source; a source ends the
    /// question. [`Tree::open`](super::Tree::open) has checked the sender.
    pub(super) fn on_proof<G: Guard>(&mut self, node: &mut Node<G>, at: usize, proof: Proof) {
        let topic = &node.topics[at];
        match (topic.publisher, proof.answer) {
            (None, false) => {
                let answer = Proof {
                    answer: true,
                    ..proof
                };
                let message = Message {
                    from: SOURCE - 1,
                    body: Body::Proof(answer),
                };
                node.transmit_to(topic.source, SOURCE, message);
            }
            (Some(_), true) => match self.find(proof.number) {
                Some((serial, _)) => self.end(node, serial, true),
                None => node.counters.unasked += 1,
            },
            _ => node.counters.unasked += 1,
        }
    }
}

/// A random number that only a holder of this node's key can predict.
fn unguessable<G: Guard>(node: &mut Node<G>, serial: u64) -> u128 {
    let random = node.random.u128(..);
    if !node.guard.authenticates() {
        return random;
    }
    let mut bytes = [0; 24];
    bytes[..8].copy_from_slice(&serial.to_be_bytes());
    bytes[8..].copy_from_slice(&random.to_be_bytes());
    // The secret that a key shares with itself is known to its holder alone.
    let own = node.contact.key;
    node.guard.hop_tag(&own, &bytes).unwrap_or(random)
}
