//! Commits step by step, on the commit thread or by a caller that drives the store itself.
//!
//! A step never waits: it writes queued drafts, or reports that the disk has no room. The thread waits
//! between steps ([`Shared::run`]), so a simulation can replace the thread.
//!
//! On a full disk, trim marks and removals are written first, using the reserve, because they free
//! space. Appends that need the disk are refused after a while, and so are later ones. Records of
//! level memory are acknowledged already: they stay in the queue, where readers find them, and more
//! are accepted. If only a large batch does not fit, it is refused at once with the drafts that
//! depend on it, and the rest is written.

use crate::commit::{Fault, Writer};
use crate::queue::{Pending, Queue};
use crate::shared::Shared;
use crate::{Error, Health};
use std::collections::{BTreeSet, VecDeque};
use std::sync::PoisonError;

/// The outcome of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Something was written or refused; there may be more to do.
    Done,
    /// Nothing waits.
    Idle,
    /// The disk is full; this many bytes are free.
    Full(u64),
}

/// The writer, and its current group.
pub(crate) struct Committer {
    pub(crate) writer: Writer,
    group: VecDeque<Pending>,
    /// Number of times the disk was found full since something was last written or refused.
    polls: u32,
    begun: bool,
}

impl Committer {
    pub(crate) fn new(writer: Writer) -> Committer {
        Committer {
            writer,
            group: VecDeque::new(),
            polls: 0,
            begun: false,
        }
    }

    /// Whether the group is written.
    pub(crate) fn is_free(&self) -> bool {
        self.group.is_empty()
    }
}

fn writer_snapshots(shared: &Shared, committer: &mut Committer) {
    let writer = &mut committer.writer;
    writer.save_snapshots(|segment| shared.reader.is_damaged(segment));
}

/// Stops the store when the commit thread panics, so that nobody waits forever.
struct StopOnPanic<'a>(&'a Shared);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let reason = "the commit thread panicked".to_owned();
            self.0.stop(&Error::Failed { reason }, VecDeque::new());
        }
    }
}

impl Shared {
    /// Runs one step. After an error the store has stopped, and all waiting drafts have failed.
    pub(crate) fn step(&self, committer: &mut Committer) -> Result<Step, Error> {
        let step = self.try_step(committer);
        step.inspect_err(|error| self.stop(error, std::mem::take(&mut committer.group)))
    }

    fn try_step(&self, committer: &mut Committer) -> Result<Step, Error> {
        if !std::mem::replace(&mut committer.begun, true) {
            // Segments that a power loss kept from being removed.
            let trimmed = self.trim(&mut committer.writer);
            trimmed.map_err(|fault| self.error_of(fault))?;
            writer_snapshots(self, committer);
        }
        if committer.group.is_empty() {
            self.take_group(&mut committer.group);
        }
        let Committer {
            writer,
            group,
            polls,
            ..
        } = committer;
        if group.is_empty() {
            return self.look_for_room(writer);
        }
        let drafts = group.iter().map(|pending| &pending.draft);
        let fault = match writer.commit(drafts, true) {
            Ok(placed) => {
                self.count(writer);
                self.acknowledge(writer, placed, group);
                let trimmed = self.trim(writer);
                writer.save_snapshots(|segment| self.reader.is_damaged(segment));
                trimmed.err()
            }
            Err(fault) => Some(fault),
        };
        match fault {
            None => {
                *polls = 0;
                Ok(Step::Done)
            }
            Some(Fault::Full(free)) => self.on_full(free, committer),
            Some(failed) => Err(self.error_of(failed)),
        }
    }

    /// Nothing waits; if the disk was full, records are accepted again as soon as there may be
    /// room.
    fn look_for_room(&self, writer: &Writer) -> Result<Step, Error> {
        if self.lock().health != Health::Full {
            return Ok(Step::Idle);
        }
        match writer.useful_room() {
            Err(Fault::Full(free)) => {
                self.on_full_disk(free);
                Ok(Step::Full(free))
            }
            Err(failed) => Err(self.error_of(failed)),
            Ok(_) => {
                self.lock().health = Health::Ok;
                Ok(Step::Idle)
            }
        }
    }

    /// Handles a group that has no room: trim marks may free some; a batch that is too large for
    /// the remaining room is skipped; after enough attempts waiting drafts are refused.
    fn on_full(&self, free: u64, committer: &mut Committer) -> Result<Step, Error> {
        let Committer {
            writer,
            group,
            polls,
            ..
        } = committer;
        let marked = self.write_marks_first(writer, group);
        if marked.map_err(|fault| self.error_of(fault))? {
            return Ok(Step::Done);
        }
        let passed = self.write_around_large(writer, group, free);
        if let Some(step) = passed.map_err(|fault| self.error_of(fault))? {
            return Ok(step);
        }
        self.on_full_disk(free);
        self.show_waiting(group);
        *polls = polls.saturating_add(1);
        if *polls > self.options.full_polls {
            *polls = 0;
            if let Err(fault @ Fault::Failed(_)) = writer.settle() {
                return Err(self.error_of(fault));
            }
            *group = self.refuse_waiting(std::mem::take(group), free);
        }
        Ok(Step::Full(free))
    }

    /// Writes the drafts that do not depend on batches too large for the remaining room. None if
    /// such batches are not the reason.
    fn write_around_large(
        &self,
        writer: &mut Writer,
        group: &mut VecDeque<Pending>,
        free: u64,
    ) -> Result<Option<Step>, Fault> {
        let Ok(room) = writer.useful_room() else {
            return Ok(None);
        };
        if !group.iter().any(|it| it.draft.written_bytes() > room) {
            return Ok(None);
        }
        // Bytes that were truncated before must not reappear once their batch is refused.
        writer.settle()?;
        let mut others = self.refuse_large(group, room, free);
        self.show_waiting(group);
        let written = !others.is_empty();
        while !others.is_empty() {
            match writer.commit(others.iter().map(|pending| &pending.draft), true) {
                Ok(placed) => self.acknowledge(writer, placed, &mut others),
                Err(fault) => {
                    group.append(&mut others);
                    return match fault {
                        Fault::Full(_) => Ok(None),
                        failed => Err(failed),
                    };
                }
            }
        }
        self.trim(writer)?;
        let held = !written && !group.is_empty();
        Ok(Some(if held { Step::Full(free) } else { Step::Done }))
    }

    /// Writes the trim marks and removals of a group and of the queue, using the reserve, because
    /// they free space; false if there are none.
    fn write_marks_first(
        &self,
        writer: &mut Writer,
        group: &mut VecDeque<Pending>,
    ) -> Result<bool, Fault> {
        let split = |all: VecDeque<Pending>| -> (VecDeque<Pending>, VecDeque<Pending>) {
            all.into_iter().partition(|it| it.draft.makes_room())
        };
        let (mut marks, rest) = split(std::mem::take(group));
        *group = rest;
        {
            let mut queue = self.lock();
            let (more, rest) = split(std::mem::take(&mut queue.pending));
            queue.pending = rest;
            marks.extend(more);
        }
        let any = !marks.is_empty();
        while !marks.is_empty() {
            match writer.commit(marks.iter().map(|pending| &pending.draft), false) {
                Ok(placed) => {
                    let written = marks.iter().take(placed.len());
                    let removals = written.filter(|pending| pending.draft.is_removal());
                    let removed: BTreeSet<u32> = removals.map(|it| it.draft.stream).collect();
                    self.acknowledge(writer, placed, &mut marks);
                    self.refuse_overtaken(&removed, group);
                }
                Err(fault) => {
                    marks.extend(group.drain(..));
                    *group = marks;
                    return match fault {
                        Fault::Full(_) => Ok(false),
                        failed => Err(failed),
                    };
                }
            }
        }
        self.trim(writer)?;
        Ok(any)
    }

    /// Writes the rest, marks the clean end, and resolves all waiting drafts.
    pub(crate) fn end(&self, committer: &mut Committer) -> Result<(), Error> {
        let closed = committer.writer.close();
        let reason = closed.clone().err().unwrap_or(Error::Closed);
        self.stop(&reason, std::mem::take(&mut committer.group));
        closed
    }

    /// The commit thread.
    pub(crate) fn run(&self, mut committer: Committer) {
        let _guard = StopOnPanic(self);
        let ended = self.commit_all(&mut committer);
        let ended = ended.and_then(|abandoned| match abandoned {
            true => Ok(()),
            false => self.end(&mut committer),
        });
        self.lock().ended = Some(ended);
    }

    /// Steps and waits until the store is closing (false) or abandoned (true).
    fn commit_all(&self, committer: &mut Committer) -> Result<bool, Error> {
        loop {
            if self.lock().abandoned {
                return Ok(true);
            }
            match self.step(committer)? {
                Step::Done => self.pause(committer),
                Step::Idle => {
                    let mut queue = self.lock();
                    while queue.pending.is_empty() && !queue.closing {
                        queue.asleep = true;
                        let woken = self.work.wait(queue);
                        queue = woken.unwrap_or_else(PoisonError::into_inner);
                    }
                    if queue.pending.is_empty() {
                        return Ok(queue.abandoned);
                    }
                }
                Step::Full(free) => {
                    let mut queue = self.lock();
                    if !queue.closing {
                        queue.asleep = true;
                        let woken = self.work.wait_timeout(queue, self.options.full_poll);
                        queue = woken.unwrap_or_else(PoisonError::into_inner).0;
                    }
                    if queue.closing && !queue.abandoned {
                        if committer.is_free() && queue.pending.is_empty() {
                            return Ok(false);
                        }
                        drop(queue);
                        return Err(self.give_up(committer, free));
                    }
                }
            }
        }
    }

    /// Lets more gather after a group, if the options say so.
    fn pause(&self, committer: &Committer) {
        let pause = self.options.commit_pause;
        if !pause.is_zero() && committer.is_free() {
            let goes_on = |queue: &mut Queue| !queue.closing && !queue.urgent;
            let waited = self.pause.wait_timeout_while(self.lock(), pause, goes_on);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Handles a close while the disk is full: waiting drafts fail with that error.
    pub(crate) fn give_up(&self, committer: &mut Committer, free: u64) -> Error {
        let error = self.error_of(Fault::Full(free));
        self.stop(&error, std::mem::take(&mut committer.group));
        error
    }
}
