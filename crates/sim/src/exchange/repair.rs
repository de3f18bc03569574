//! Repair: both ends look for damage now and then, and fill in the elements that the machines
//! return.

use std::convert::Infallible;
use std::time::Duration;

use chappe_flow::{Channel, Records};
use chappe_link::{OriginCommand, SubscriberCommand};
use chappe_log::{Appended, Error, Hole, Position, Store, Stream};
use chappe_machine::Input;

use super::origin::Origin;
use super::record;
use super::subscriber::{CopyOf, Subscriber};
use super::world::{Timer, World};
use crate::judge::{At, Counts, Event};

/// Damaged elements that are being repaired.
pub(super) struct Filling {
    stream: usize,
    appended: Appended,
    elements: Vec<(At, u64)>,
}

/// The damaged numbers of a copy, and the positions that the elements may have at their origin.
fn copied_holes(stream: &Stream) -> Vec<Hole> {
    let origin_of = |number| {
        let record = match stream.read(number, 1) {
            Ok(records) => records.into_iter().next(),
            Err(_) => None,
        };
        let at = record.and_then(|record| record::split(&record.payload).map(|(at, _)| at));
        Ok::<_, Infallible>(at.map(|at| Position {
            epoch: at.epoch,
            sequence: at.number,
        }))
    };
    let Ok(holes) = stream.copied_holes(origin_of);
    holes
}

fn requested(channel: Channel, hole: &Hole) -> chappe_link::Hole {
    chappe_link::Hole {
        channel,
        epoch: hole.origin.epoch,
        from: hole.origin.sequence,
        next: hole.origin.sequence + hole.count,
    }
}

/// A store's counters of a stream.
pub(super) fn counts(store: &Store, stream: &Stream) -> Counts {
    let name = stream.name();
    let mut lost = store.lost().into_iter();
    let lost = lost.find(|lost| lost.stream == name).unwrap_or_default();
    Counts {
        first: stream.first(),
        last: stream.last(),
        missing: lost.missing,
        corrupt: lost.corrupt,
        filled: lost.filled,
    }
}

impl World {
    /// Looks for damage again after a while.
    pub(super) fn repair_later(&mut self, node: crate::network::Node) {
        let after = self.around(self.plan.repair_every);
        self.set_timer(node, after + Duration::from_secs(1), Timer::Repair, 0);
    }
}

impl Origin {
    /// Looks for damage, and requests the elements from the subscribers.
    pub(super) fn repair(&mut self, world: &mut World) {
        world.repair_later(self.node());
        self.disked.scrub(world);
        let serials: Vec<u32> = self.sessions.keys().copied().collect();
        for serial in serials {
            let Some(session) = self.sessions.get(&serial) else {
                continue;
            };
            let channels = session.channels.iter();
            let holes = channels.flat_map(|(channel, index)| {
                let stream = self.streams[*index].stream.iter();
                let holes = stream.flat_map(Stream::holes);
                holes.map(|hole| requested(*channel, &hole))
            });
            let holes: Vec<_> = holes.collect();
            if !holes.is_empty() {
                let command = OriginCommand::Repair { holes };
                self.give(world, serial, Input::Command(command));
            }
        }
    }

    /// Fills in elements that a subscriber has sent.
    pub(super) fn put_back(
        &mut self,
        world: &mut World,
        index: usize,
        first: At,
        records: &Records,
    ) {
        let it = &self.streams[index];
        let Some(stream) = &it.stream else { return };
        let batch = records.iter().map(|it| (it.time, it.payload.to_vec()));
        let position = Position {
            epoch: first.epoch,
            sequence: first.number,
        };
        // Another subscriber may have been faster.
        let filled = stream.fill(position, batch.collect::<Vec<_>>());
        let Some(appended) = queued(world, filled) else {
            return;
        };
        let elements = (first.number..)
            .zip(records.iter())
            .map(|(number, record)| {
                let content = record::content(record.payload).unwrap_or(0);
                (At { number, ..first }, content)
            });
        let elements = elements.collect();
        self.fillings.push_back(Filling {
            stream: index,
            appended,
            elements,
        });
        self.disked.commit_soon(world);
    }

    /// Reports the elements that are safe again.
    pub(super) fn filled(&mut self, world: &mut World) {
        while let Some(filling) = done(&mut self.fillings) {
            let Ok(filling) = filling else { continue };
            let it = &mut self.streams[filling.stream];
            let (Some((first, _)), Some((last, _))) =
                (filling.elements.first(), filling.elements.last())
            else {
                continue;
            };
            world.sometimes.put_back += filling.elements.len() as u64;
            let (first, last) = (*first, last.number);
            it.batches.retain(|(begin, end)| {
                begin.epoch != first.epoch || *end < first.number || begin.number > last
            });
            it.batches.insert(0, (first, last));
            world.note(
                self.disked.node,
                "put back: stream, from, to",
                [it.number as u64, first.number, last],
            );
            let stream = it.number;
            for (at, content) in filling.elements {
                world.report(Event::PutBack {
                    stream,
                    at,
                    content,
                });
            }
        }
    }
}

impl Subscriber {
    /// Looks for damage, and requests the elements from the origins.
    pub(super) fn repair(&mut self, world: &mut World) {
        world.repair_later(self.node());
        self.disked.scrub(world);
        let each = world.plan.streams_each;
        for link in 0..self.links.len() {
            let holes = (link * each..(link + 1) * each).flat_map(|number| {
                let stream = self.copies[number].stream.as_ref();
                let holes = stream.map(copied_holes).unwrap_or_default();
                let channel = Channel(number as u32);
                holes.into_iter().map(move |hole| requested(channel, &hole))
            });
            let holes = holes.collect();
            self.pump(
                world,
                link,
                Input::Command(SubscriberCommand::Repair { holes }),
            );
        }
    }

    /// Fills in elements that an origin has sent.
    pub(super) fn put_back(
        &mut self,
        world: &mut World,
        number: usize,
        first: At,
        records: &Records,
    ) {
        let Some(stream) = &self.copies[number].stream else {
            return;
        };
        let holes = copied_holes(stream);
        let has_first = |hole: &&Hole| {
            let end = hole.origin.sequence + hole.count;
            hole.origin.epoch == first.epoch && (hole.origin.sequence..end).contains(&first.number)
        };
        let Some(hole) = holes.iter().find(has_first) else {
            return;
        };
        let passed = first.number - hole.origin.sequence;
        let fits = (hole.count - passed).min(records.len() as u64);
        let here = Position {
            sequence: hole.here.sequence + passed,
            ..hole.here
        };
        let (mut batch, mut elements) = (Vec::new(), Vec::new());
        for (number, record) in (first.number..first.number + fits).zip(records) {
            let at = At { number, ..first };
            batch.push((record.time, record::with_origin(at, record.payload)));
            elements.push((at, record::content(record.payload).unwrap_or(0)));
        }
        if let Some(appended) = queued(world, stream.fill(here, batch)) {
            self.fillings.push_back(Filling {
                stream: number,
                appended,
                elements,
            });
            self.disked.commit_soon(world);
        }
    }

    /// Reports the elements that are safe again.
    pub(super) fn filled(&mut self, world: &mut World) {
        while let Some(filling) = done(&mut self.fillings) {
            let Ok(filling) = filling else { continue };
            let CopyOf { batches, .. } = &mut self.copies[filling.stream];
            if let (Some((first, _)), Some((last, _))) =
                (filling.elements.first(), filling.elements.last())
            {
                world.sometimes.put_back_there += filling.elements.len() as u64;
                let overlaps = |(from, to): &(At, At)| {
                    from.epoch == first.epoch && to >= first && from <= last
                };
                batches.retain(|batch| !overlaps(batch));
                batches.insert(0, (*first, *last));
            }
            for (at, content) in filling.elements {
                world.report(Event::PutBackThere {
                    subscriber: self.index,
                    stream: filling.stream,
                    at,
                    content,
                });
            }
        }
    }
}

/// The queued elements; refused ones are requested again by the next look.
fn queued(world: &mut World, filled: Result<Appended, Error>) -> Option<Appended> {
    let is_full = matches!(filled, Err(Error::QueueFull { .. }));
    world.sometimes.repair_refused += u64::from(is_full);
    filled.ok()
}

/// The next filling that has succeeded or failed.
fn done(fillings: &mut std::collections::VecDeque<Filling>) -> Option<Result<Filling, Error>> {
    let result = fillings.front()?.appended.try_result()?;
    let filling = fillings.pop_front()?;
    Some(result.map(|()| filling))
}
