//! A node whose streams other nodes read: it appends elements and serves them in a session for each
//! connection.

use std::collections::{BTreeMap, VecDeque};

use chappe_link::OriginCommand;
use chappe_log::{Appended, Error, Recovery, Stream, Trimmed};
use chappe_machine::Input;

use super::derived::Derived;
use super::record;
use super::repair::{Filling, counts};
use super::rot::flip_frame;
use super::serving::{Batch, Session, count};
use super::store::{Death, Disked, Outcome, copied};
use super::world::{Timer, World};
use crate::judge::{Allows, At, Event};
use crate::network::{Connection, Node};

/// The maximum of elements read at once.
pub(super) const ELEMENTS_PER_READ: u64 = 256;

/// A batch on its way to the disk.
struct Pending {
    appended: Appended,
    first: At,
    contents: Vec<u64>,
}

pub(super) struct OriginStream {
    /// Its number among all streams of the run.
    pub(super) number: usize,
    pub(super) name: String,
    pub(super) stream: Option<Stream>,
    pending: VecDeque<Pending>,
    trim: Option<Trimmed>,
    derived: Option<Derived>,
    /// The first and last number of each accepted batch: they rot together.
    pub(super) batches: Vec<(At, u64)>,
    announced: u64,
}

impl OriginStream {
    /// Reports to the judge the first number that it keeps; earlier ones count as trimmed.
    fn report_first(&self, world: &mut World) {
        if let Some(stream) = &self.stream {
            world.report(Event::Keeps {
                stream: self.number,
                first: stream.first(),
            });
        }
    }
}

/// See the [module documentation](self).
pub(super) struct Origin {
    pub(super) disked: Disked,
    pub(super) streams: Vec<OriginStream>,
    pub(super) sessions: BTreeMap<u32, Session>,
    pub(super) fillings: VecDeque<Filling>,
    pub(super) by_connection: BTreeMap<Connection, u32>,
    /// The versions of the protocol that it supports.
    pub(super) versions: (u32, u32),
    /// Whether it appends new elements.
    pub(super) produces: bool,
}

impl Origin {
    pub(super) fn new(world: &mut World, node: Node, index: usize) -> Self {
        let seed = world.random.u64(..);
        let each = world.plan.streams_each;
        let stream = |number: usize| OriginStream {
            number,
            name: stream_name(number),
            stream: None,
            pending: VecDeque::new(),
            trim: None,
            derived: None,
            batches: Vec::new(),
            announced: 0,
        };
        Self {
            disked: Disked::new(node, seed, world.plan.weak, None),
            streams: (index * each..(index + 1) * each).map(stream).collect(),
            sessions: BTreeMap::new(),
            fillings: VecDeque::new(),
            by_connection: BTreeMap::new(),
            versions: world.plan.sender.session.versions,
            produces: true,
        }
    }

    pub(super) fn node(&self) -> Node {
        self.disked.node
    }

    /// Opens the store; false: not now.
    pub(super) fn start(&mut self, world: &mut World) -> bool {
        let Some((store, recovery)) = self.disked.open(world) else {
            return false;
        };
        let level = if world.plan.weak {
            chappe_log::Level::Process
        } else {
            chappe_log::Level::Power
        };
        for it in &mut self.streams {
            match store.stream(&it.name, level, b"schema") {
                Ok(stream) => it.stream = Some(stream),
                Err(_) => {
                    self.disked.after_failed_open(world);
                    self.streams.iter_mut().for_each(|it| it.stream = None);
                    return false;
                }
            }
        }
        self.report_start(world, &recovery);
        if world.plan.derives {
            for it in &mut self.streams {
                let source = it.stream.as_ref();
                it.derived =
                    source.and_then(|source| Derived::begin(world, &store, source, it.number));
            }
        }
        for index in 0..self.streams.len() {
            self.produce_later(world, index);
        }
        world.repair_later(self.node());
        true
    }

    fn report_start(&mut self, world: &mut World, recovery: &Recovery) {
        let allows = std::mem::replace(&mut self.disked.allows, Allows::Nothing);
        world.sometimes.old_origin += u64::from(copied(recovery));
        for it in &mut self.streams {
            let Some(stream) = &it.stream else { continue };
            it.announced = stream.last();
            let (epoch, last) = (stream.epoch(), stream.last());
            world.note(self.disked.node, "began: epoch, last", [epoch, last, 0]);
            world.report(Event::Began {
                stream: it.number,
                epochs: stream.epochs(),
                last,
                allows,
            });
            it.report_first(world);
            // A level that does not survive a power loss may also lose numbers in the middle; they are
            // gaps, and the subscribers are notified.
            let gaps = if allows == Allows::Loss {
                stream.gaps()
            } else {
                Vec::new()
            };
            for number in gaps.iter().flat_map(|(first, last)| *first..=*last) {
                let at = At {
                    epoch: stream.position_of(number).epoch,
                    number,
                };
                let stream = it.number;
                world.report(Event::Damaged { stream, at });
            }
        }
    }

    /// The process ends.
    pub(super) fn die(&mut self, world: &mut World, death: Death) {
        for (_, session) in std::mem::take(&mut self.sessions) {
            count(world, session.line.machine.sender());
        }
        self.by_connection.clear();
        self.fillings.clear();
        for it in &mut self.streams {
            it.pending.clear();
            it.trim = None;
            it.derived = None;
            it.stream = None;
        }
        self.disked.die(world, death);
    }

    // -- elements --

    fn produce_later(&self, world: &mut World, index: usize) {
        let after = world.around(world.plan.every);
        world.set_timer(self.node(), after, Timer::Produce, index as u32);
    }

    pub(super) fn produce(&mut self, world: &mut World, index: u32) {
        let index = index as usize;
        if !self.produces {
            return;
        }
        self.produce_later(world, index);
        let burst = world.random.f64() < world.plan.burst;
        let mut count = if burst {
            world.random.u64(1..=world.plan.burst_elements)
        } else {
            1
        };
        while count > 0 {
            let batch = world.random.u64(1..=world.plan.batch).min(count);
            count -= batch;
            if !self.append(world, index, batch) {
                return;
            }
        }
    }

    /// Appends one element to each stream; the run ends when it has arrived.
    pub(super) fn produce_last(&mut self, world: &mut World) {
        for index in 0..self.streams.len() {
            self.append(world, index, 1);
        }
    }

    /// Appends some elements to each stream, one after the other.
    pub(super) fn burst(&mut self, world: &mut World, count: usize) {
        for index in 0..self.streams.len() * count {
            self.append(world, index % self.streams.len(), 1);
        }
    }

    fn append(&mut self, world: &mut World, index: usize, count: u64) -> bool {
        let time = world.network.wall_clock_ns(self.node());
        let size = world.plan.payload_bytes;
        let it = &mut self.streams[index];
        let Some(stream) = &it.stream else {
            return false;
        };
        let contents: Vec<u64> = (0..count).map(|_| world.content()).collect();
        let payloads = contents.iter().map(|content| {
            let bytes = 16 + (*content as usize * 7) % size.max(1);
            (time, record::payload(*content, bytes))
        });
        // A full queue refuses the batch.
        let appended = match stream.append(payloads.collect::<Vec<_>>()) {
            Ok(appended) => appended,
            Err(error) => {
                let is_full = matches!(error, Error::QueueFull { .. });
                world.sometimes.not_accepted += u64::from(is_full);
                return false;
            }
        };
        let first = At {
            epoch: appended.first.epoch,
            number: appended.first.sequence,
        };
        for (number, content) in (first.number..).zip(&contents) {
            world.report(Event::Offered {
                stream: it.number,
                at: At { number, ..first },
                content: *content,
            });
        }
        it.pending.push_back(Pending {
            appended,
            first,
            contents,
        });
        self.disked.commit_soon(world);
        true
    }

    /// Trims each stream to the number of elements that the plan keeps.
    fn trim(&mut self, world: &mut World) {
        let Some(keep) = world.plan.keep else { return };
        for it in &mut self.streams {
            let Some(stream) = &it.stream else { continue };
            let before = (stream.last() + 1).saturating_sub(keep);
            // A tenth at a time.
            if before <= stream.first() + keep / 10 || it.trim.is_some() {
                continue;
            }
            if let Ok(trimmed) = stream.trim(before) {
                world.report(Event::Trimmed {
                    stream: it.number,
                    before,
                });
                it.trim = Some(trimmed);
                self.disked.commit_soon(world);
            }
        }
    }

    pub(super) fn commit(&mut self, world: &mut World) -> Outcome {
        let derived = self.streams.iter_mut().filter_map(|it| it.derived.as_mut());
        derived.for_each(Derived::derive);
        let outcome = self.disked.commit(world);
        for it in &mut self.streams {
            if it
                .trim
                .as_ref()
                .is_some_and(|trim| trim.try_result().is_some())
            {
                it.trim = None;
                it.report_first(world);
            }
            while let Some(result) = it.pending.front().and_then(|it| it.appended.try_result()) {
                let Some(pending) = it.pending.pop_front() else {
                    break;
                };
                if result.is_err() {
                    world.sometimes.refused_full += 1;
                    continue;
                }
                let last = pending.first.number + pending.contents.len() as u64 - 1;
                it.batches.push((pending.first, last));
                for number in pending.first.number..=last {
                    world.report(Event::Accepted {
                        stream: it.number,
                        at: At {
                            number,
                            ..pending.first
                        },
                    });
                }
            }
        }
        if outcome != Outcome::Failed {
            self.filled(world);
            self.announce(world);
            self.trim(world);
        }
        outcome
    }

    /// Reports new elements to the sessions.
    fn announce(&mut self, world: &mut World) {
        let mut news = Vec::new();
        for (index, it) in self.streams.iter_mut().enumerate() {
            let Some(stream) = &it.stream else { continue };
            let last = stream.last();
            if last > it.announced {
                news.push((index, it.announced + 1, last));
                it.announced = last;
            }
        }
        for (index, from, last) in news {
            let live = world.plan.live.then(|| self.elements(index, from, last));
            for (serial, channel) in self.readers(index) {
                let command = match live.iter().flatten().next() {
                    Some(live) => OriginCommand::Live {
                        channel,
                        first: live.first,
                        schema_version: live.schema_version,
                        records: live.records.clone(),
                    },
                    None => OriginCommand::Appended { channel, last },
                };
                self.give(world, serial, Input::Command(command));
            }
        }
    }

    /// The elements from `from` to `last`, if they are of one epoch and one schema.
    fn elements(&self, index: usize, from: u64, last: u64) -> Option<Batch> {
        let stream = self.streams[index].stream.as_ref()?;
        let batch = Batch::read(stream, from, ELEMENTS_PER_READ).ok()?;
        (batch.records.len() as u64 == last - from + 1).then_some(batch)
    }

    // -- faults and state --

    /// Flips a bit somewhere.
    pub(super) fn rot(&mut self, world: &mut World) {
        if world.random.f64() < 0.7 {
            let rotted = self.rot_batch(world);
            world.sometimes.rotted += u64::from(rotted);
        } else {
            self.disked.rot_other(world);
        }
    }

    /// Flips a bit of the frame of accepted elements, which damages the whole batch.
    fn rot_batch(&mut self, world: &mut World) -> bool {
        let index = world.random.usize(..self.streams.len());
        let it = &self.streams[index];
        let Some(stream) = &it.stream else {
            return false;
        };
        // The log may report the newest batches as torn, not rotten.
        let Some(choice) = it.batches.len().checked_sub(4).filter(|count| *count > 0) else {
            return false;
        };
        // Half of the time among the newest, which some subscribers lack.
        let oldest = if world.random.bool() {
            choice.saturating_sub(20)
        } else {
            0
        };
        let chosen = world.random.usize(oldest..choice);
        let (first, last) = it.batches[chosen];
        let Ok(records) = stream.read(first.number, 1) else {
            return false;
        };
        let Some(one) = records
            .first()
            .filter(|it| it.position.epoch == first.epoch)
        else {
            return false;
        };
        if !flip_frame(&self.disked.disk, &one.payload, &mut world.random) {
            return false;
        }
        let it = &mut self.streams[index];
        it.batches.remove(chosen);
        world.note(
            self.disked.node,
            "rot: stream, from, to",
            [it.number as u64, first.number, last],
        );
        for number in first.number..=last {
            world.report(Event::Damaged {
                stream: it.number,
                at: At { number, ..first },
            });
        }
        true
    }

    /// The newest position of each stream, with the stream's number.
    pub(super) fn newest(&self) -> Vec<(usize, At)> {
        let newest = |it: &OriginStream| {
            let stream = it.stream.as_ref()?;
            let number = stream.last();
            let epoch = stream.position_of(number).epoch;
            Some((it.number, At { epoch, number }))
        };
        self.streams.iter().filter_map(newest).collect()
    }

    /// Whether everything offered was accepted or refused.
    pub(super) fn settled(&self) -> bool {
        let settled = |it: &OriginStream| it.pending.is_empty() && it.stream.is_some();
        self.disked.settled() && self.streams.iter().all(settled)
    }

    /// Reports its elements to the judge.
    pub(super) fn testify(&self, world: &mut World) {
        let Some(store) = &self.disked.store else {
            return;
        };
        for it in &self.streams {
            let Some(stream) = &it.stream else { continue };
            let mut elements = Vec::new();
            let read = record::each(stream, |record| {
                let at = At {
                    epoch: record.position.epoch,
                    number: record.position.sequence,
                };
                elements.push((at, record::content(&record.payload).unwrap_or(0)));
            });
            if let Err(error) = read {
                let what = format!("stream {} cannot be read: {error}", it.number);
                world.violations.push(crate::judge::Violation(what));
            }
            it.report_first(world);
            let counts = counts(store, stream);
            let stream = it.number;
            world.report(Event::Counted { stream, counts });
            world.report(Event::OriginHolds { stream, elements });
        }
    }

    pub(super) fn count_sessions(&self, world: &mut World) {
        for session in self.sessions.values() {
            count(world, session.line.machine.sender());
        }
    }
}

/// The global name of a stream.
pub(super) fn stream_name(number: usize) -> String {
    format!("plant/{number}")
}
