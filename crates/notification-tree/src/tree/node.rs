//! One node as its parts see it: its identity, its topics, its deadlines and its outputs.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;

use chappe_machine::{Instant, Output};

use super::alarms::{Alarms, JobId};
use super::topics::Topics;
use crate::config::Config;
use crate::coverage::Piece;
use crate::guard::Guard;
use crate::interface::{Counters, TreeEvent};
use crate::membership::Contact;
use crate::message::{Body, Message, SOURCE, Transmit};

/// State shared by the parts of a [`Tree`](super::Tree). Each part borrows it for the time of a call.
#[derive(Debug)]
pub(super) struct Node<G> {
    pub(super) config: Arc<Config>,
    pub(super) contact: Contact,
    pub(super) guard: G,
    pub(super) random: fastrand::Rng,
    /// The time of the last input.
    pub(super) now: Instant,
    pub(super) topics: Topics,
    pub(super) alarms: Alarms,
    pub(super) outputs: VecDeque<Output<Transmit, TreeEvent>>,
    pub(super) counters: Counters,
}

impl<G: Guard> Node<G> {
    pub(super) fn new(config: Arc<Config>, contact: Contact, guard: G, seed: u64) -> Self {
        Self {
            config,
            contact,
            guard,
            random: fastrand::Rng::with_seed(seed),
            now: Instant::ZERO,
            topics: Topics::default(),
            alarms: Alarms::default(),
            outputs: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    pub(super) fn emit(&mut self, event: TreeEvent) {
        self.outputs.push_back(Output::Event(event));
    }

    /// Sends a message to a member of an event's version.
    pub(super) fn transmit(&mut self, id: JobId, to: u32, body: Body) {
        let Some(record) = self.topics.record(id) else {
            return;
        };
        let topic = &self.topics[id.topic as usize];
        let from = match topic.publisher {
            Some(_) => SOURCE,
            None => record.number.unwrap_or(SOURCE - 1),
        };
        let contact = match to {
            SOURCE => Some(topic.source),
            _ => record
                .membership
                .as_ref()
                .and_then(|it| it.sink(to).copied()),
        };
        if let Some(contact) = contact {
            self.transmit_to(contact, to, Message { from, body });
        }
    }

    pub(super) fn transmit_to(&mut self, contact: Contact, to: u32, message: Message) {
        self.outputs.push_back(Output::Transmit(Transmit {
            address: contact.address,
            key: contact.key,
            to,
            message,
        }));
    }

    /// This node's own receipt of an event.
    pub(super) fn own_piece(&mut self, id: JobId) -> Option<Piece> {
        let source = self.topics[id.topic as usize].source.key;
        let record = self.topics.record(id)?;
        let (number, event) = (record.number?, record.event.id());
        Some(Piece {
            first: number,
            end: number + 1,
            failed: Vec::new(),
            receipts: self.guard.receipt(&source, event, number)?,
        })
    }
}
