//! A node's disk and its store, through kills, power cuts, failures and restored copies.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chappe_log::{Committed, CursorOf, EpochReason, Level, Recovery, Store, Stream};

use super::Fault;
use super::rot::{Rotted, flip_other};
use super::world::{Timer, World};
use crate::SimDisk;
use crate::judge::Allows;
use crate::network::Node;

/// Bytes that are scrubbed at a time.
const SCRUB_BYTES: u64 = 256 * 1024;

/// The pause before a commit that is held back is tried again.
const HELD_PAUSE: Duration = Duration::from_millis(500);

/// The end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Death {
    Killed,
    PowerLost,
}

/// The outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The disk has no room; a later commit may find some.
    Full,
    /// The store has stopped.
    Failed,
}

pub(super) struct Disked {
    pub(super) node: Node,
    pub(super) disk: SimDisk,
    pub(super) store: Option<Store>,
    /// The losses that the next opening may find.
    pub(super) allows: Allows,
    /// The numbers of each stream that openings have reported as torn and that the judge has not
    /// received.
    pub(super) torn: BTreeMap<String, u64>,
    /// An old copy of the disk.
    pub(super) backup: Option<SimDisk>,
    /// Segments that have rotted outside their elements.
    pub(super) rotten: BTreeSet<String>,
    /// Added to the time of each commit.
    pub(super) slow: Duration,
    /// The log's queue is full: nothing is committed.
    pub(super) is_held: bool,
    /// The stream whose records fill the queue, in runs with that fault.
    filler: Option<Stream>,
    committing: bool,
    /// Reads the cursor that a record names.
    cursor_of: Option<CursorOf>,
    /// Whether its level does not survive a power loss.
    is_weak: bool,
}

impl Disked {
    pub(super) fn new(node: Node, seed: u64, weak: bool, cursor_of: Option<CursorOf>) -> Self {
        Self {
            node,
            disk: SimDisk::new(seed),
            store: None,
            allows: Allows::Nothing,
            torn: BTreeMap::new(),
            backup: None,
            rotten: BTreeSet::new(),
            slow: Duration::ZERO,
            is_held: false,
            filler: None,
            committing: false,
            cursor_of,
            is_weak: weak,
        }
    }

    /// Opens the store; `None`: not now, try again later.
    pub(super) fn open(&mut self, world: &mut World) -> Option<(Store, Recovery)> {
        self.committing = false;
        let mut options = world.plan.log.clone();
        options.cursor_of = self.cursor_of;
        let opened = Store::open(Box::new(self.disk.clone()), options, world.random.u64(..));
        match opened {
            Ok((store, recovery)) => {
                world.sometimes.torn_tail += u64::from(recovery.torn_tail.is_some());
                world.sometimes.new_epoch += recovery.new_epochs.len() as u64;
                let unsynced = recovery.corrupt.iter().filter(|range| range.unsynced);
                for (stream, first, last) in unsynced.flat_map(|range| &range.gaps) {
                    *self.torn.entry(stream.clone()).or_default() += last - first + 1;
                }
                self.store = Some(store.clone());
                if world.plan.faults.contains(&Fault::QueueFull) {
                    self.filler = store.stream("filler", Level::Process, b"").ok();
                    if self.filler.is_none() {
                        self.after_failed_open(world);
                        return None;
                    }
                }
                Some((store, recovery))
            }
            Err(_) => {
                self.after_failed_open(world);
                None
            }
        }
    }

    /// Fills the log's queue up to `room` bytes, and holds commits back.
    pub(super) fn fill_queue(&mut self, world: &mut World, room: usize) {
        let Some(filler) = &self.filler else { return };
        let mut bytes = world.plan.log.batch_bytes / 2;
        while bytes > room {
            if filler.append(vec![(0, vec![0; bytes])]).is_err() {
                bytes /= 2;
            }
        }
        self.is_held = true;
        world.sometimes.queue_filled += 1;
        self.commit_soon(world);
    }

    /// Removes the records that filled the queue.
    fn empty_filler(&mut self, world: &mut World) {
        let filler = self.filler.as_ref().filter(|it| it.last() >= it.first());
        if filler.is_some_and(|filler| filler.trim(filler.last() + 1).is_ok()) {
            self.commit_soon(world);
        }
    }

    /// Faults that made an opening fail are over, except a full disk.
    pub(super) fn after_failed_open(&mut self, world: &mut World) {
        self.filler = None;
        if let Some(store) = self.store.take() {
            store.abandon();
        }
        self.disk = if self.disk.is_off() {
            world.sometimes.torn += 1;
            if self.is_weak {
                self.allows = Allows::Loss;
            }
            self.disk.crash(world.random.u64(..))
        } else {
            self.disk.kill()
        };
    }

    /// Schedules a commit.
    pub(super) fn commit_soon(&mut self, world: &mut World) {
        if !self.committing {
            self.committing = true;
            let (low, high) = world.plan.disk;
            let after = world.between(low, high) + self.slow;
            world.set_timer(self.node, after, Timer::Commit, 0);
        }
    }

    pub(super) fn commit(&mut self, world: &mut World) -> Outcome {
        self.committing = false;
        let Some(store) = &self.store else {
            return Outcome::Failed;
        };
        if self.is_held {
            self.committing = true;
            world.set_timer(self.node, HELD_PAUSE, Timer::Commit, 0);
            return Outcome::Full;
        }
        match store.commit() {
            Ok(Committed::Nothing) => Outcome::Done,
            Ok(Committed::Group) => {
                self.empty_filler(world);
                Outcome::Done
            }
            Ok(Committed::Full { .. }) => {
                world.sometimes.disk_full += 1;
                self.committing = true;
                world.set_timer(self.node, Duration::from_secs(1), Timer::Commit, 0);
                Outcome::Full
            }
            Err(_) => Outcome::Failed,
        }
    }

    /// The process ends; the cause decides what the disk keeps.
    pub(super) fn die(&mut self, world: &mut World, death: Death) {
        let torn = self.disk.is_off();
        self.disk = match death {
            Death::Killed if !torn => self.disk.kill(),
            _ => self.disk.crash(world.random.u64(..)),
        };
        world.sometimes.torn += u64::from(torn);
        if self.is_weak && (torn || death == Death::PowerLost) {
            self.allows = Allows::Loss;
        }
        if let Some(store) = self.store.take() {
            store.abandon();
        }
        self.filler = None;
        self.is_held = false;
        self.committing = false;
        match death {
            Death::Killed => {
                world.sometimes.killed += 1;
                world.network.kill(self.node);
            }
            Death::PowerLost => {
                world.sometimes.power_lost += 1;
                world.network.power_off(self.node);
            }
        }
    }

    /// Scrubs a part of the disk; returns whether records are rewritten from memory.
    pub(super) fn scrub(&mut self, world: &mut World) -> bool {
        let scrubbed = self.store.as_ref().map(|store| store.scrub(SCRUB_BYTES));
        // A disk that cannot be read now is scrubbed the next time.
        let Some(Ok(scrubbed)) = scrubbed else {
            return false;
        };
        if !scrubbed.corrupt.is_empty() {
            let numbers = [scrubbed.corrupt.len() as u64, scrubbed.from_memory, 0];
            world.note(self.node, "scrubbed: found, from memory", numbers);
        }
        world.sometimes.from_memory += scrubbed.from_memory;
        if scrubbed.from_memory > 0 {
            self.commit_soon(world);
        }
        scrubbed.from_memory > 0
    }

    /// Whether nothing is on its way to the disk.
    pub(super) fn settled(&self) -> bool {
        !self.committing
    }

    /// Flips a bit that no element depends on.
    pub(super) fn rot_other(&mut self, world: &mut World) {
        match flip_other(&self.disk, &mut self.rotten, &mut world.random) {
            Some(Rotted::Mark) => world.sometimes.rotted_marks += 1,
            Some(Rotted::Index) => world.sometimes.rotted_index += 1,
            None => return,
        }
        world.note(self.node, "rot: marks or index", [0; 3]);
    }

    /// Replaces the disk by the old copy.
    pub(super) fn restore(&mut self) -> bool {
        let Some(backup) = self.backup.take() else {
            return false;
        };
        self.disk = backup.copied();
        self.disk.set_capacity(u64::MAX);
        self.allows = Allows::Loss;
        true
    }
}

/// Whether the log has noticed that its files are a copy.
pub(super) fn copied(recovery: &Recovery) -> bool {
    let is_copied = |epoch: &chappe_log::NewEpoch| epoch.reason == EpochReason::Copied;
    recovery.copied && recovery.new_epochs.iter().any(is_copied)
}
