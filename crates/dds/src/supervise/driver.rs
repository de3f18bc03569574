//! The thread that calls the library, in rounds over all writers and readers.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::alive::{self, Alive};
use super::inlet::LiveInlet;
use super::outlet::{LiveOutlet, Turn};
use super::status::State;
use super::{Notice, PAUSE_MAX, PAUSE_MIN, Shared, lock};
use crate::DdsError;
use crate::backend::{Event, Guid, Participant};
use crate::open;

/// The longest wait of a round; reason: the heartbeat of the thread is at least this frequent.
const ROUND_MAX: Duration = Duration::from_millis(250);
/// A participant that ran for this long was not defective from the start.
const STABLE_AFTER: Duration = Duration::from_secs(60);

/// A participant with its writers and readers.
struct Live {
    // Writers and readers are dropped before the participant.
    outlets: Vec<LiveOutlet>,
    inlets: Vec<LiveInlet>,
    alive: Option<Alive>,
    participant: Box<dyn Participant>,
}

/// The reason why a participant ended.
enum Failure {
    Dds(DdsError),
    Stalled,
}

/// Runs participants, a new one after each failure, until the end.
pub(super) fn drive(shared: &Arc<Shared>, generation: u64) {
    let mut pause = PAUSE_MIN;
    while shared.should_continue(generation) {
        let begun = Instant::now();
        let mut live = None;
        let run = AssertUnwindSafe(|| take_part(shared, generation, &mut live));
        let Err(failure) = catch_unwind(run).unwrap_or_else(|panic| Err(panicked(&*panic))) else {
            // Ended as requested.
            return drop(live);
        };
        if !shared.should_continue(generation) {
            return drop_in_background(live);
        }
        shared.failed(&failure);
        drop_in_background(live);
        if begun.elapsed() > STABLE_AFTER {
            pause = PAUSE_MIN;
        }
        shared.pause(generation, pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

impl Shared {
    fn failed(&self, failure: &Failure) {
        let mut counters = lock(&self.counters);
        let why = match failure {
            Failure::Dds(error) => error.to_string(),
            Failure::Stalled => "a sample did not pass through it".to_owned(),
        };
        counters.failed(&why, false);
        match failure {
            Failure::Dds(error) => {
                counters.panics += u64::from(matches!(error, DdsError::Panic { .. }));
                counters.set_hint(error.hint());
            }
            Failure::Stalled => counters.stalls += 1,
        }
        drop(counters);
        (self.config.notice)(Notice::Restarted { why });
    }

    /// Waits before the next attempt, with heartbeats.
    fn pause(&self, generation: u64, pause: Duration) {
        let until = Instant::now() + pause;
        let mut run = lock(&self.run);
        while run.generation == generation && !run.ended {
            self.note_round();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(run, left.min(ROUND_MAX));
            run = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}

/// Runs a participant until it is stopped.
fn take_part(
    shared: &Arc<Shared>,
    generation: u64,
    live: &mut Option<Live>,
) -> Result<(), Failure> {
    let mut participant = open(&shared.config.participant)?;
    {
        let mut run = lock(&shared.run);
        if run.generation != generation || run.ended {
            return Ok(());
        }
        run.waker = Some(participant.waker());
        let mut counters = lock(&shared.counters);
        counters.state = State::Running;
        counters.guid = Some(participant.guid().to_string());
    }
    let alive = Alive::new(&mut *participant);
    let live = live.insert(Live {
        outlets: Vec::new(),
        inlets: Vec::new(),
        alive: None,
        participant,
    });
    live.alive = Some(alive?);
    while shared.should_continue(generation) {
        shared.note_round();
        live.update_ends(shared)?;
        let until = live.round(shared)?;
        let wait = until
            .saturating_duration_since(Instant::now())
            .min(ROUND_MAX);
        live.participant.wait(wait)?;
        while let Some(event) = live.participant.event() {
            live.on_event(shared, &event);
        }
    }
    Ok(())
}

impl Live {
    /// Creates new ends, and drops those that are no longer needed.
    fn update_ends(&mut self, shared: &Shared) -> Result<(), DdsError> {
        let ends = lock(&shared.ends);
        let (outlets, inlets) = (ends.outlets.clone(), ends.inlets.clone());
        drop(ends);
        self.outlets
            .retain(|live| outlets.iter().any(|end| Arc::ptr_eq(end, &live.end)));
        self.inlets
            .retain(|live| inlets.iter().any(|end| Arc::ptr_eq(end, &live.end)));
        for end in outlets {
            if !self.outlets.iter().any(|live| Arc::ptr_eq(&end, &live.end)) {
                let outlet = LiveOutlet::new(&mut *self.participant, end)?;
                self.outlets.push(outlet);
            }
        }
        for end in inlets {
            if !self.inlets.iter().any(|live| Arc::ptr_eq(&end, &live.end)) {
                let inlet = LiveInlet::new(&mut *self.participant, end)?;
                self.inlets.push(inlet);
            }
        }
        Ok(())
    }

    /// Runs each end once. Returns when to call it again.
    fn round(&mut self, shared: &Shared) -> Result<Instant, Failure> {
        let now = Instant::now();
        let nanos = now.saturating_duration_since(shared.origin).as_nanos();
        let clock = chappe_machine::Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let mut until = now + ROUND_MAX;
        for inlet in &mut self.inlets {
            until = until.min(inlet.turn(now)?.unwrap_or(until));
        }
        for outlet in &mut self.outlets {
            match outlet.turn(now, clock)? {
                Turn::Again(at) => until = until.min(at.unwrap_or(until)),
                Turn::Stalled => {
                    let topic = outlet.end.topic().to_owned();
                    (shared.config.notice)(Notice::ReaderStalled { topic });
                    until = now;
                }
                Turn::Renew => {
                    outlet.renew(&mut *self.participant)?;
                    until = now;
                }
            }
        }
        if let Some(alive) = &mut self.alive {
            match alive.turn(now, shared.config.stall_after)? {
                alive::Turn::Again(at) => until = until.min(at),
                alive::Turn::Stalled => return Err(Failure::Stalled),
            }
        }
        Ok(until)
    }

    fn on_event(&mut self, shared: &Shared, event: &Event) {
        match event {
            Event::PeerFound { .. } => lock(&shared.counters).peers += 1,
            Event::PeerLost { .. } => {
                let mut counters = lock(&shared.counters);
                counters.peers = counters.peers.saturating_sub(1);
            }
            Event::Mismatch(mismatch) => {
                let Some(topic) = self.mismatch(mismatch.here, mismatch) else {
                    return;
                };
                let mismatch = (**mismatch).clone();
                (shared.config.notice)(Notice::Mismatch { topic, mismatch });
            }
            Event::Warnings { count, newest } => {
                let mut counters = lock(&shared.counters);
                counters.warnings += count;
                counters.newest_warnings.clone_from(newest);
            }
            Event::EndDropped { topic, detail } => {
                let (topic, detail) = (topic.clone(), detail.clone());
                (shared.config.notice)(Notice::EndDropped { topic, detail });
            }
            Event::Matched { .. } | Event::Unmatched { .. } => {}
        }
    }

    /// Counts a mismatch. Returns the topic.
    fn mismatch(&self, here: Guid, mismatch: &crate::Mismatch) -> Option<String> {
        if let Some(outlet) = self.outlets.iter().find(|live| live.guid() == here) {
            outlet.end.shared_status.mismatch(mismatch);
            return Some(outlet.end.topic().to_owned());
        }
        let inlet = self.inlets.iter().find(|live| live.guid() == here)?;
        inlet.end.shared_status.mismatch(mismatch);
        Some(inlet.end.topic().to_owned())
    }
}

/// The text of a panic in this thread.
fn panicked(panic: &dyn Any) -> Failure {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let why = text.unwrap_or("unknown").to_owned();
    Failure::Dds(DdsError::Panic { why })
}

impl From<DdsError> for Failure {
    fn from(error: DdsError) -> Self {
        Self::Dds(error)
    }
}

/// Drops a broken participant in a separate thread: that may block forever on threads of the library, and may
/// panic.
fn drop_in_background(live: Option<Live>) {
    let Some(live) = live else { return };
    let drop_each = move || {
        fn quietly<T>(value: T) {
            let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
        }
        live.outlets.into_iter().for_each(quietly);
        live.inlets.into_iter().for_each(quietly);
        quietly(live.alive);
        quietly(live.participant);
    };
    let spawned = std::thread::Builder::new()
        .name("chappe-dds end".into())
        .spawn(drop_each);
    if let Err(error) = spawned {
        tracing::warn!(%error, "a broken participant is leaked");
    }
}
