//! The thread that calls the library: one round after the other over all writers and readers.

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

/// The longest wait of a round; reason: it says at least so often that the thread lives.
const ROUND_MAX: Duration = Duration::from_millis(250);
/// A wait that took so much longer than it was to says that this program stood still; reason: more than
/// a busy machine does, and a false alarm costs a reader.
const STOOD_STILL: Duration = Duration::from_millis(500);
/// A participant that ran for so long was not broken from the beginning.
const PROVEN: Duration = Duration::from_secs(60);

/// A participant with all that was made by it.
struct Live {
    // Writers and readers are let go before the participant.
    outlets: Vec<LiveOutlet>,
    inlets: Vec<LiveInlet>,
    alive: Option<Alive>,
    participant: Box<dyn Participant>,
}

/// Why a participant was let go.
enum Failure {
    Dds(DdsError),
    Stalled,
}

/// Takes part, anew after each failure, until the end.
pub(super) fn drive(shared: &Arc<Shared>, generation: u64) {
    let mut pause = PAUSE_MIN;
    while shared.goes_on(generation) {
        let begun = Instant::now();
        let mut live = None;
        let Err(failure) = take_part(shared, generation, &mut live) else {
            // In order: told to end.
            return drop(live);
        };
        if !shared.goes_on(generation) {
            return let_go(live);
        }
        shared.failed(&failure);
        let_go(live);
        if begun.elapsed() > PROVEN {
            pause = PAUSE_MIN;
        }
        shared.rest(generation, pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

impl Shared {
    fn failed(&self, failure: &Failure) {
        let mut counters = lock(&self.counters);
        let why = match failure {
            Failure::Dds(error) => error.to_string(),
            Failure::Stalled => "a sample does not come through it".to_owned(),
        };
        counters.failed(&why, false);
        match failure {
            Failure::Dds(error) => {
                counters.panics += u64::from(matches!(error, DdsError::Panic { .. }));
                counters.hinted(error.hint());
            }
            Failure::Stalled => counters.stalls += 1,
        }
        drop(counters);
        (self.config.notice)(Notice::Restarted { why });
    }

    /// Waits before the next try, alive all the while.
    fn rest(&self, generation: u64, pause: Duration) {
        let until = Instant::now() + pause;
        let mut run = lock(&self.run);
        while run.generation == generation && !run.ended {
            self.beat();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(run, left.min(ROUND_MAX));
            run = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
        }
    }
}

/// Takes part until told to end.
fn take_part(
    shared: &Arc<Shared>,
    generation: u64,
    live: &mut Option<Live>,
) -> Result<(), Failure> {
    let mut participant = open(shared.config.backend, &shared.config.participant)?;
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
    while shared.goes_on(generation) {
        shared.beat();
        live.meet(shared)?;
        let until = live.round(shared)?;
        let begun = Instant::now();
        let wait = until.saturating_duration_since(begun).min(ROUND_MAX);
        live.participant.wait(wait)?;
        if begun.elapsed() > wait + STOOD_STILL
            && let Some(alive) = &mut live.alive
        {
            alive.stood_still(&mut *live.participant, Instant::now())?;
        }
        while let Some(event) = live.participant.event() {
            live.told(shared, &event);
        }
    }
    Ok(())
}

impl Live {
    /// Makes the ends that are to be, and lets those go that are not.
    fn meet(&mut self, shared: &Shared) -> Result<(), DdsError> {
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

    /// Turns each end once; says when to come again.
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

    fn told(&mut self, shared: &Shared, event: &Event) {
        match event {
            Event::PeerFound { .. } => lock(&shared.counters).peers += 1,
            Event::PeerLost { .. } => {
                let mut counters = lock(&shared.counters);
                counters.peers = counters.peers.saturating_sub(1);
            }
            Event::QosMismatch(mismatch) => {
                let Some(topic) = self.mismatch(mismatch.here, mismatch) else {
                    return;
                };
                let mismatch = (**mismatch).clone();
                (shared.config.notice)(Notice::Mismatch { topic, mismatch });
            }
            Event::Matched { .. } | Event::Unmatched { .. } => {}
        }
    }

    /// Counts a mismatch; answers the topic.
    fn mismatch(&self, here: Guid, mismatch: &crate::QosMismatch) -> Option<String> {
        if let Some(outlet) = self.outlets.iter().find(|live| live.guid() == here) {
            outlet.end.told.mismatch(mismatch);
            return Some(outlet.end.topic().to_owned());
        }
        let inlet = self.inlets.iter().find(|live| live.guid() == here)?;
        inlet.end.told.mismatch(mismatch);
        Some(inlet.end.topic().to_owned())
    }
}

impl From<DdsError> for Failure {
    fn from(error: DdsError) -> Self {
        Self::Dds(error)
    }
}

/// Lets a broken participant go in a thread of its own: it may wait for ever for threads of the
/// library, and may panic.
fn let_go(live: Option<Live>) {
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
        tracing::warn!(%error, "a broken participant is let go without order");
    }
}
