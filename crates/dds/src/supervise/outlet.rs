//! A writer under supervision: paced, and not blocked forever by a reader that acknowledges nothing.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chappe_flow::pacer::{Choice, InFlight, Pace, Pacer};
use tokio::sync::{mpsc, watch};

use super::end::{Deadline, SharedStatus};
use super::status::{EndStatus, OutletStatus};
use super::{Shared, lock};
use crate::backend::{Participant, Payload, Topic, Writer};
use crate::{DdsError, Qos, WriteError};

/// Samples queued for writing; reason: one round of the producer.
const QUEUE: usize = 64;
/// Before a writer is replaced, the other readers have this long to receive its samples, and then as long to find the
/// new one: a volatile reader never gets samples written earlier.
const SETTLE: Duration = Duration::from_millis(250);

/// The configuration of a writer.
#[derive(Clone)]
pub struct OutletConfig {
    /// The topic.
    pub topic: Topic,
    /// The offered quality of service.
    pub qos: Qos,
    /// Readers that must match before anything is written: samples written without a reader count as
    /// acknowledged.
    pub readers: usize,
    /// The treatment of a reader that acknowledges nothing.
    pub stalled: Stalled,
    /// Time without an acknowledgement after which a reader counts as stalled.
    pub stalled_after: Duration,
    /// The pacer of its samples.
    pub pacer: Choice,
}

/// The treatment of a reader that acknowledges nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stalled {
    /// Wait for it, until discovery reports that it has left.
    #[default]
    Wait,
    /// Continue with the others: whenever the window is full its samples are given up and the writer is
    /// replaced.
    Pass,
}

/// A sample to be written.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// The writer it is meant for; another one drops it ([`Progress::generation`]).
    pub generation: u64,
    /// Its tag in [`Progress::acknowledged`]; increasing.
    pub tag: u64,
    /// The sample.
    pub payload: Payload,
}

/// The progress of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// The number of the writer, from 1. After a restart it is another one, and samples that the previous one had
    /// not acknowledged must be sent again. 0: there is none.
    pub generation: u64,
    /// The tag up to which samples of this writer are acknowledged or given up.
    pub acknowledged: Option<u64>,
}

/// The supervisor has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the participant has ended")]
pub struct Ended;

/// A writer, which ends when it is dropped.
#[derive(Debug)]
pub struct Outlet {
    shared: Arc<Shared>,
    end: Arc<OutletEnd>,
    queue: mpsc::Sender<Outgoing>,
    progress: watch::Receiver<Progress>,
}

/// The part of a writer shared by handle and thread.
pub(super) struct OutletEnd {
    config: OutletConfig,
    queue: Mutex<mpsc::Receiver<Outgoing>>,
    progress: watch::Sender<Progress>,
    pub(super) shared_status: SharedStatus<OutletStatus>,
}

/// A writer in the library.
pub(super) struct LiveOutlet {
    pub(super) end: Arc<OutletEnd>,
    writer: Box<dyn Writer>,
    pacer: Box<dyn Pacer>,
    generation: u64,
    /// Tags and sizes of unacknowledged samples.
    on_the_way: VecDeque<(u64, usize)>,
    bytes: u64,
    next: Option<Outgoing>,
    /// The time when a sample was last acknowledged, or none was pending.
    moved: Instant,
    stalled: bool,
    blocked: Option<Instant>,
    /// Since when there is no room although a stalled reader is skipped.
    full: Option<Instant>,
    /// The earliest time of the next write.
    hold: Instant,
    /// The samples written in this turn.
    written: u64,
    deadline: Deadline,
}

/// The result of a writer's turn.
pub(super) enum Turn {
    /// The next turn is due then, unless an event comes earlier.
    Again(Option<Instant>),
    /// A reader has become stalled.
    Stalled,
    /// The writer has to be replaced.
    Renew,
}

pub(super) fn outlet(shared: &Arc<Shared>, config: OutletConfig) -> (Outlet, Arc<OutletEnd>) {
    let (sender, queue) = mpsc::channel(QUEUE);
    let (progress, watched) = watch::channel(Progress::default());
    let status = OutletStatus {
        end: EndStatus::of(&config.topic, &config.qos, config.qos.window()),
        ..OutletStatus::default()
    };
    let end = Arc::new(OutletEnd {
        config,
        queue: Mutex::new(queue),
        progress,
        shared_status: SharedStatus::new(status),
    });
    let outlet = Outlet {
        shared: shared.clone(),
        end: end.clone(),
        queue: sender,
        progress: watched,
    };
    (outlet, end)
}

impl Outlet {
    /// Sends a sample to be written; waits while the queue is full. If it is cancelled, nothing is sent.
    ///
    /// # Errors
    /// The supervisor has ended.
    pub async fn send(&self, outgoing: Outgoing) -> Result<(), Ended> {
        self.queue.send(outgoing).await.map_err(|_| Ended)?;
        self.shared.wake();
        Ok(())
    }

    /// The progress, with change notifications.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// Its status.
    #[must_use]
    pub fn status(&self) -> OutletStatus {
        self.end.shared_status.status()
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        let ends = |ends: &mut super::Ends| ends.outlets.retain(|end| !Arc::ptr_eq(end, &self.end));
        self.shared.remove_end(ends);
    }
}

impl OutletEnd {
    pub(super) fn topic(&self) -> &str {
        &self.config.topic.name
    }
}

impl LiveOutlet {
    pub(super) fn new(
        participant: &mut dyn Participant,
        end: Arc<OutletEnd>,
    ) -> Result<Self, DdsError> {
        let writer = participant.writer(&end.config.topic, &end.config.qos.clone().batched())?;
        let mut generation = 0;
        end.progress.send_modify(|progress| {
            generation = progress.generation + 1;
            *progress = Progress {
                generation,
                acknowledged: None,
            };
        });
        let pacer = end.config.pacer.build();
        let now = Instant::now();
        Ok(Self {
            deadline: Deadline::new(&end.config.qos, now),
            written: 0,
            end,
            writer,
            pacer,
            generation,
            on_the_way: VecDeque::new(),
            bytes: 0,
            next: None,
            moved: now,
            stalled: false,
            blocked: None,
            full: None,
            hold: now,
        })
    }

    pub(super) fn guid(&self) -> crate::Guid {
        self.writer.guid()
    }

    /// Replaces the writer and gives up unacknowledged samples. This starts a new generation, so that their owner
    /// can send them again.
    ///
    /// # Errors
    /// The library failed.
    pub(super) fn renew(&mut self, participant: &mut dyn Participant) -> Result<(), DdsError> {
        let qos = self.end.config.qos.clone().batched();
        self.writer = participant.writer(&self.end.config.topic, &qos)?;
        let given_up = self.on_the_way.len() as u64;
        let newest = self.on_the_way.back().map(|(tag, _)| *tag);
        // Counted before it is published, so that its observers find it in the status.
        self.end.shared_status.change(|status| {
            status.given_up += given_up;
            status.renewed += 1;
        });
        self.generation += 1;
        let generation = self.generation;
        self.end.progress.send_modify(|progress| {
            progress.generation = generation;
            progress.acknowledged = newest.or(progress.acknowledged);
        });
        self.next = None;
        self.full = None;
        self.on_the_way.clear();
        self.bytes = 0;
        self.moved = Instant::now();
        self.hold = self.moved + SETTLE;
        Ok(())
    }

    /// A reader left with samples that it had not acknowledged, and too few are left: they are written again when there are
    /// enough. Starts a new generation for their owner.
    fn give_back(&mut self, now: Instant) {
        let given_up = self.on_the_way.len() as u64;
        let of_status = |status: &mut OutletStatus| status.given_up += given_up;
        self.end.shared_status.change(of_status);
        self.generation += 1;
        let generation = self.generation;
        let of_progress = |progress: &mut Progress| progress.generation = generation;
        self.end.progress.send_modify(of_progress);
        self.next = None;
        self.full = None;
        self.stalled = false;
        self.on_the_way.clear();
        self.bytes = 0;
        self.moved = now;
    }

    /// Processes acknowledgements and writes due samples.
    ///
    /// # Errors
    /// The library failed.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        clock: chappe_machine::Instant,
    ) -> Result<Turn, DdsError> {
        self.read_acknowledgements(now, clock);
        let newly = self.detect_stall(now);
        let again = match self.stalled && self.end.config.stalled == Stalled::Pass {
            _ if now < self.hold => Turn::Again(Some(self.hold)),
            true => self.write_past_stalled(now, clock)?,
            false => self.write(now, clock)?,
        };
        self.writer.flush()?;
        self.publish_status(now);
        Ok(match again {
            _ if newly => Turn::Stalled,
            // A missed deadline also changes the status.
            Turn::Again(at) => Turn::Again(at.into_iter().chain(self.deadline.next()).min()),
            again => again,
        })
    }

    fn read_acknowledgements(&mut self, now: Instant, clock: chappe_machine::Instant) {
        let (mut bytes, mut count, mut delay) = (0, 0_u64, None);
        self.writer.acknowledged(&mut |one| {
            bytes += one.bytes as u64;
            count += 1;
            delay = Some(one.delay);
        });
        let retransmitted = self.writer.retransmitted_bytes();
        if retransmitted > 0 {
            self.pacer.sent_again(clock, retransmitted);
        }
        if count == 0 {
            return;
        }
        if self.writer.matched() < self.end.config.readers {
            return self.give_back(now);
        }
        self.moved = now;
        self.stalled = false;
        self.full = None;
        self.bytes = self.bytes.saturating_sub(bytes);
        let done = usize::try_from(count).unwrap_or(usize::MAX);
        let done = done.min(self.on_the_way.len());
        self.end
            .shared_status
            .change(|status| status.acknowledged += count);
        if let Some((tag, _)) = self.on_the_way.drain(..done).next_back() {
            let set_acknowledged = |progress: &mut Progress| progress.acknowledged = Some(tag);
            self.end.progress.send_modify(set_acknowledged);
        }
        let in_flight = self.in_flight();
        self.pacer
            .acknowledged(clock, bytes, count, delay, in_flight);
    }

    /// Whether a reader has just become stalled.
    fn detect_stall(&mut self, now: Instant) -> bool {
        if self.on_the_way.is_empty() {
            self.moved = now;
        }
        let silent = now.saturating_duration_since(self.moved);
        if self.stalled || silent < self.end.config.stalled_after {
            return false;
        }
        self.stalled = true;
        self.end.shared_status.change(|status| status.stalls += 1);
        true
    }

    /// Writes the samples that the pacer allows.
    fn write(&mut self, now: Instant, clock: chappe_machine::Instant) -> Result<Turn, DdsError> {
        let stall =
            (!self.on_the_way.is_empty()).then(|| self.moved + self.end.config.stalled_after);
        while self.has_next() {
            if self.writer.matched() < self.end.config.readers {
                return Ok(Turn::Again(stall));
            }
            match self.pacer.next(clock, self.in_flight()) {
                Pace::Now => {}
                Pace::At(at) => {
                    let wait = at.saturating_since(clock);
                    return Ok(Turn::Again(Some(now + wait)));
                }
                Pace::AfterAcknowledgement => {
                    self.blocked.get_or_insert(now);
                    return Ok(Turn::Again(stall));
                }
            }
            if !self.write_next(clock)? {
                self.blocked.get_or_insert(now);
                return Ok(Turn::Again(stall));
            }
        }
        Ok(Turn::Again(stall))
    }

    /// Writes although a reader is stalled.
    fn write_past_stalled(
        &mut self,
        now: Instant,
        clock: chappe_machine::Instant,
    ) -> Result<Turn, DdsError> {
        while self.full.is_none() && self.has_next() {
            if !self.write_next(clock)? {
                self.full = Some(now);
            }
        }
        let settled_at = self.full.map(|since| since + SETTLE);
        let silent =
            (!self.on_the_way.is_empty()).then(|| self.moved + self.end.config.stalled_after);
        // Either may come first: no room, or no sample.
        let renew = settled_at.into_iter().chain(silent).min();
        Ok(match renew {
            Some(at) if now >= at => Turn::Renew,
            at => Turn::Again(at),
        })
    }

    /// Whether there is a sample to write.
    fn has_next(&mut self) -> bool {
        while self.next.is_none() {
            match lock(&self.end.queue).try_recv() {
                Ok(next) if next.generation == self.generation => self.next = Some(next),
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Writes that sample. Returns whether there was room.
    fn write_next(&mut self, clock: chappe_machine::Instant) -> Result<bool, DdsError> {
        let Some(next) = &self.next else {
            return Ok(true);
        };
        match self.writer.write(&next.payload) {
            Ok(_) => {
                let bytes = next.payload.bytes.len();
                self.on_the_way.push_back((next.tag, bytes));
                self.bytes += bytes as u64;
                self.pacer.sent(clock, bytes as u64, 1);
                self.next = None;
                self.written += 1;
                if self.end.config.qos.reliability == crate::Reliability::BestEffort {
                    self.acknowledge_written();
                }
                Ok(true)
            }
            Err(WriteError::Full(_)) => Ok(false),
            Err(WriteError::Dds(error)) => Err(error),
            // The producer checks the size; otherwise the sample would block the queue forever.
            Err(error @ WriteError::TooLarge { .. }) => {
                tracing::warn!(topic = self.end.topic(), %error, "a sample is not written");
                self.next = None;
                Ok(true)
            }
        }
    }

    /// Best effort: a written sample counts as acknowledged.
    fn acknowledge_written(&mut self) {
        if let Some((tag, bytes)) = self.on_the_way.pop_back() {
            self.bytes -= bytes as u64;
            let set_acknowledged = |progress: &mut Progress| progress.acknowledged = Some(tag);
            self.end.progress.send_modify(set_acknowledged);
        }
    }

    fn in_flight(&self) -> InFlight {
        InFlight {
            bytes: self.bytes,
            elements: self.on_the_way.len() as u64,
            ..InFlight::default()
        }
    }

    /// Publishes the status.
    fn publish_status(&mut self, now: Instant) {
        let matched = self.writer.matched();
        let written = std::mem::take(&mut self.written);
        let missed = self.deadline.count_missed(now, written, matched);
        let blocked = self.blocked.take().map_or(Duration::ZERO, |since| {
            // The measurement continues from here until a sample is written.
            self.blocked = self.next.is_some().then_some(now);
            now.saturating_duration_since(since)
        });
        self.end.shared_status.change(|status| {
            status.end.matched = matched as u64;
            status.end.deadlines_missed += missed;
            status.sent += written;
            status.unacknowledged = self.on_the_way.len() as u64;
            status.stalled = self.stalled;
            status.pacer = Some(self.pacer.status());
            status.blocked_s += blocked.as_secs_f64();
        });
    }
}

impl fmt::Debug for OutletConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutletConfig")
            .field("topic", &self.topic)
            .field("qos", &self.qos)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for OutletEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutletEnd")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}
