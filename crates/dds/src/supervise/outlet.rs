//! A writer under supervision: paced, and not held up for ever by a reader that acknowledges nothing.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chappe_flow::pacer::{Choice, InFlight, Pace, Pacer};
use tokio::sync::{mpsc, watch};

use super::end::{Deadline, Told};
use super::status::{EndStatus, OutletStatus};
use super::{Shared, lock};
use crate::backend::{Participant, Payload, Topic, Writer};
use crate::{DdsError, Qos, WriteError};

/// Samples that wait to be written; reason: one round of whoever makes them.
const QUEUE: usize = 64;
/// Before a writer is made anew the other readers have so long to get what it wrote, and then as long
/// to find the new one: what is written before that a volatile reader never gets.
const SETTLE: Duration = Duration::from_millis(250);

/// What is written.
#[derive(Clone)]
pub struct OutletConfig {
    /// The topic.
    pub topic: Topic,
    /// What it offers.
    pub qos: Qos,
    /// Readers that must match before anything is written: what is written to none is acknowledged
    /// by none and counts as acknowledged.
    pub readers: usize,
    /// What becomes of a reader that acknowledges nothing.
    pub stalled: Stalled,
    /// So long nothing may be acknowledged before a reader counts as such.
    pub stalled_after: Duration,
    /// When the next sample may go.
    pub pacer: Choice,
}

/// What becomes of a reader that acknowledges nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stalled {
    /// It is waited for, until discovery says that it is gone.
    #[default]
    Wait,
    /// The others are served on: its samples are given up and the writer made anew whenever as many
    /// as it keeps are unacknowledged.
    Pass,
}

/// A sample to be written.
#[derive(Debug, Clone)]
pub struct Outgoing {
    /// The writer it is for: of another one it is dropped ([`Progress::generation`]).
    pub generation: u64,
    /// What [`Progress::acknowledged`] calls it; rising.
    pub tag: u64,
    /// The sample.
    pub payload: Payload,
}

/// How far a writer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Which writer it is, from 1: after a restart another one, and what the one before had not
    /// acknowledged must be given again. 0: there is none.
    pub generation: u64,
    /// The tag up to which samples of this writer are acknowledged, or given up.
    pub acknowledged: Option<u64>,
}

/// The supervisor has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the participant has ended")]
pub struct Ended;

/// A writer. Dropped, it ends.
#[derive(Debug)]
pub struct Outlet {
    shared: Arc<Shared>,
    end: Arc<OutletEnd>,
    queue: mpsc::Sender<Outgoing>,
    progress: watch::Receiver<Progress>,
}

/// What handle and thread share of a writer.
pub(super) struct OutletEnd {
    config: OutletConfig,
    queue: Mutex<mpsc::Receiver<Outgoing>>,
    progress: watch::Sender<Progress>,
    pub(super) told: Told<OutletStatus>,
}

/// A writer in the library.
pub(super) struct LiveOutlet {
    pub(super) end: Arc<OutletEnd>,
    writer: Box<dyn Writer>,
    pacer: Box<dyn Pacer>,
    generation: u64,
    /// Tag and bytes of what is not acknowledged.
    on_the_way: VecDeque<(u64, usize)>,
    bytes: u64,
    next: Option<Outgoing>,
    /// When something was last acknowledged, or there was nothing to be.
    moved: Instant,
    stalled: bool,
    blocked: Option<Instant>,
    /// Since when there is no room although a stalled reader is passed.
    full: Option<Instant>,
    /// Nothing is written before then.
    hold: Instant,
    /// Written in this turn.
    written: u64,
    deadline: Deadline,
}

/// What a turn of a writer says.
pub(super) enum Turn {
    /// Nothing is to be done before then, unless something comes.
    Again(Option<Instant>),
    /// A reader acknowledges nothing, since just now.
    Stalled,
    /// It is to be made anew.
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
        told: Told::new(status),
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
    /// Gives a sample to be written; waits while many wait. May be dropped, and then has not.
    ///
    /// # Errors
    /// The supervisor has ended.
    pub async fn send(&self, outgoing: Outgoing) -> Result<(), Ended> {
        self.queue.send(outgoing).await.map_err(|_| Ended)?;
        self.shared.wake();
        Ok(())
    }

    /// How far it is, and every change of that.
    #[must_use]
    pub fn progress(&self) -> watch::Receiver<Progress> {
        self.progress.clone()
    }

    /// How it is.
    #[must_use]
    pub fn status(&self) -> OutletStatus {
        self.end.told.status()
    }
}

impl Drop for Outlet {
    fn drop(&mut self) {
        let ends = |ends: &mut super::Ends| ends.outlets.retain(|end| !Arc::ptr_eq(end, &self.end));
        self.shared.forget(ends);
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
        let writer = participant.writer(&end.config.topic, &end.config.qos)?;
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

    /// Another writer in its place; what is not acknowledged is given up. A new generation begins
    /// with that: who wants it written again can do so.
    ///
    /// # Errors
    /// What the library says.
    pub(super) fn renew(&mut self, participant: &mut dyn Participant) -> Result<(), DdsError> {
        self.writer = participant.writer(&self.end.config.topic, &self.end.config.qos)?;
        let given_up = self.on_the_way.len() as u64;
        let newest = self.on_the_way.back().map(|(tag, _)| *tag);
        // Counted before it is told: who hears of it finds it in the status.
        self.end.told.change(|status| {
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

    /// Reads acknowledgements and writes what may go.
    ///
    /// # Errors
    /// What the library says.
    pub(super) fn turn(
        &mut self,
        now: Instant,
        clock: chappe_machine::Instant,
    ) -> Result<Turn, DdsError> {
        self.settle(now, clock);
        let newly = self.look(now);
        let again = match self.stalled && self.end.config.stalled == Stalled::Pass {
            _ if now < self.hold => Turn::Again(Some(self.hold)),
            true => self.pass(now, clock)?,
            false => self.write(now, clock)?,
        };
        self.tell(now);
        Ok(match again {
            _ if newly => Turn::Stalled,
            // Also when a deadline passes there is something to tell.
            Turn::Again(at) => Turn::Again(at.into_iter().chain(self.deadline.next()).min()),
            again => again,
        })
    }

    fn settle(&mut self, now: Instant, clock: chappe_machine::Instant) {
        let (mut bytes, mut count, mut delay) = (0, 0_u64, None);
        self.writer.acknowledged(&mut |one| {
            bytes += one.bytes as u64;
            count += 1;
            delay = Some(one.delay);
        });
        if count == 0 {
            return;
        }
        self.moved = now;
        self.stalled = false;
        self.full = None;
        self.bytes = self.bytes.saturating_sub(bytes);
        let done = usize::try_from(count).unwrap_or(usize::MAX);
        let done = done.min(self.on_the_way.len());
        self.end.told.change(|status| status.acknowledged += count);
        if let Some((tag, _)) = self.on_the_way.drain(..done).next_back() {
            let told = |progress: &mut Progress| progress.acknowledged = Some(tag);
            self.end.progress.send_modify(told);
        }
        let in_flight = self.in_flight();
        self.pacer
            .acknowledged(clock, bytes, count, delay, in_flight);
    }

    /// Whether a reader acknowledges nothing, since just now.
    fn look(&mut self, now: Instant) -> bool {
        if self.on_the_way.is_empty() {
            self.moved = now;
        }
        let silent = now.saturating_duration_since(self.moved);
        if self.stalled || silent < self.end.config.stalled_after {
            return false;
        }
        self.stalled = true;
        self.end.told.change(|status| status.stalls += 1);
        true
    }

    /// Writes what the pacer lets go.
    fn write(&mut self, now: Instant, clock: chappe_machine::Instant) -> Result<Turn, DdsError> {
        let stall =
            (!self.on_the_way.is_empty()).then(|| self.moved + self.end.config.stalled_after);
        while self.fill() {
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
            if !self.put(clock)? {
                self.blocked.get_or_insert(now);
                return Ok(Turn::Again(stall));
            }
        }
        Ok(Turn::Again(stall))
    }

    /// Writes on although a reader acknowledges nothing.
    fn pass(&mut self, now: Instant, clock: chappe_machine::Instant) -> Result<Turn, DdsError> {
        while self.full.is_none() && self.fill() {
            if !self.put(clock)? {
                self.full = Some(now);
            }
        }
        let settled = self.full.map(|since| since + SETTLE);
        let silent =
            (!self.on_the_way.is_empty()).then(|| self.moved + self.end.config.stalled_after);
        // Either may be the first: no room, or nothing more to write.
        let renew = settled.into_iter().chain(silent).min();
        Ok(match renew {
            Some(at) if now >= at => Turn::Renew,
            at => Turn::Again(at),
        })
    }

    /// Whether there is a sample to be written.
    fn fill(&mut self) -> bool {
        while self.next.is_none() {
            match lock(&self.end.queue).try_recv() {
                Ok(next) if next.generation == self.generation => self.next = Some(next),
                Ok(_) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Writes that sample; says whether there was room.
    fn put(&mut self, clock: chappe_machine::Instant) -> Result<bool, DdsError> {
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
                    self.written_unreliably();
                }
                Ok(true)
            }
            Err(WriteError::Full(_)) => Ok(false),
            Err(WriteError::Dds(error)) => Err(error),
            // Whoever gave it looked at its size; were it not so, it would stay here for ever.
            Err(error @ WriteError::TooLarge { .. }) => {
                tracing::warn!(topic = self.end.topic(), %error, "not written");
                self.next = None;
                Ok(true)
            }
        }
    }

    /// Best effort: written is as far as is known.
    fn written_unreliably(&mut self) {
        if let Some((tag, bytes)) = self.on_the_way.pop_back() {
            self.bytes -= bytes as u64;
            let told = |progress: &mut Progress| progress.acknowledged = Some(tag);
            self.end.progress.send_modify(told);
        }
    }

    fn in_flight(&self) -> InFlight {
        InFlight {
            bytes: self.bytes,
            elements: self.on_the_way.len() as u64,
            ..InFlight::default()
        }
    }

    /// Says how it is.
    fn tell(&mut self, now: Instant) {
        let matched = self.writer.matched();
        let written = std::mem::take(&mut self.written);
        let missed = self.deadline.look(now, written, matched);
        let blocked = self.blocked.take().map_or(Duration::ZERO, |since| {
            // It goes on from here until a sample goes.
            self.blocked = self.next.is_some().then_some(now);
            now.saturating_duration_since(since)
        });
        self.end.told.change(|status| {
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
