//! A plain lookup: the nodes nearest to a target.

use super::context::{CLOSEST, Context};
use crate::node::question::{Answer, Purpose, Question, TaskId};
use crate::walk::Walk;
use crate::{Contact, Key, LookupId};
use crate::{config::FIND_CONTACTS, size::Size, types::Event};

/// Number of nearest nodes for the size estimate: so near that none is missed.
const SIZE_ESTIMATE_SAMPLES: usize = 8;

/// The purpose of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node) enum LookupPurpose {
    Application(LookupId),
    /// Looks up this node's own place, to find the neighbours.
    Join,
    /// Looks up a place in a bucket, to fill it.
    Refresh,
    /// Looks up a random place, to estimate the size of the network.
    Size,
}

/// A lookup under way.
#[derive(Debug)]
pub(super) struct Lookup {
    target: Key,
    purpose: LookupPurpose,
    walk: Walk,
}

impl Lookup {
    /// Starts at the nearest contacts of the table, and at `seeds`.
    pub(super) fn new(
        target: Key,
        purpose: LookupPurpose,
        seeds: &[(Key, Contact)],
        context: &Context<'_>,
    ) -> Self {
        let paths = context.config.paths;
        // A lookup that only fills a bucket needs neither all paths nor all of the nearest nodes.
        let (paths, finish) = match purpose {
            LookupPurpose::Refresh => (paths.min(2), None),
            LookupPurpose::Size => (paths, Some((target, SIZE_ESTIMATE_SAMPLES))),
            LookupPurpose::Application(_) | LookupPurpose::Join => (paths, Some((target, CLOSEST))),
        };
        let mut config = context.walk_config();
        config.finish = finish;
        let mut walk = context.walk(&vec![target; paths], config);
        for (at, (place, contact)) in seeds.iter().enumerate() {
            walk.add_start(at % paths, *place, *contact);
        }
        Self {
            target,
            purpose,
            walk,
        }
    }

    pub(super) fn purpose(&self) -> LookupPurpose {
        self.purpose
    }

    /// The next contact to ask.
    pub(super) fn next(&mut self, id: TaskId) -> Option<(Contact, Question, Purpose)> {
        let (contact, target) = self.walk.next()?;
        let count = FIND_CONTACTS;
        let question = Question::Find { target, count };
        Some((contact, question, Purpose::Walk(id)))
    }

    pub(super) fn is_done(&self) -> bool {
        self.walk.is_done()
    }

    pub(super) fn on_answer(&mut self, place: Key, answer: &Answer) {
        match answer {
            Answer::Contacts(contacts) => self.walk.on_answer(place, contacts),
            _ => self.walk.on_failure(place),
        }
    }

    /// Adds the result to the estimate of the network's size, if the target is independent of this
    /// node's own place.
    pub(super) fn add_to_estimate(&self, size: &mut Size) {
        if self.purpose == LookupPurpose::Size
            || matches!(self.purpose, LookupPurpose::Application(_))
        {
            let nearest = self.walk.closest(self.target, SIZE_ESTIMATE_SAMPLES);
            let places: Vec<_> = nearest.iter().map(|it| it.place).collect();
            size.on_lookup_ended(self.target, &places, SIZE_ESTIMATE_SAMPLES);
        }
    }

    /// The application's event when the lookup ends.
    pub(super) fn ended(&self, lookup: LookupId) -> Event {
        let closest = self.walk.closest(self.target, CLOSEST);
        Event::LookupEnded {
            lookup,
            hops: self.walk.hops(self.target, 1),
            asked: self.walk.asked(),
            closest: closest.iter().map(|it| it.contact).collect(),
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        self.walk.check()
    }
}
