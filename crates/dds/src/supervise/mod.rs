//! A participant that outlives its library.
//!
//! The library runs in threads of its own, and the one that calls it here is a thread of its own,
//! too: nothing of it blocks or ends who uses topics. A panic, an error or a stall is counted, what
//! there was is let go, and participant, writers and readers are made anew; what was written and not
//! acknowledged is written again by who wrote it ([`Progress::generation`]).
//!
//! That the library lives is seen by a sample that goes through it from a writer to a reader of the
//! same participant, about once a second, on a topic of the participant's own (`chappe/alive/…`).
//!
//! A thread that never comes back from the library cannot be ended: it is left behind. After
//! [`ABANDONED_MAX`] of them nothing is made anew.

mod alive;
mod driver;
mod end;
mod inlet;
mod outlet;
mod status;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::backend::{Backend, ParticipantConfig};
use crate::{DdsError, QosMismatch};

pub use inlet::{Inlet, InletConfig};
pub use outlet::{Ended, Outgoing, Outlet, OutletConfig, Progress, Stalled};
pub use status::{EndStatus, InletStatus, OutletStatus, State, SupervisorStatus};

use inlet::InletEnd;
use outlet::OutletEnd;

/// Threads that never came back from the library, above which nothing is made anew; reason: each
/// keeps its stack, sockets and samples.
pub const ABANDONED_MAX: u64 = 8;
/// Most writers and readers; reason: each is a topic that all peers hear of.
pub const ENDS_MAX: usize = 1_024;
/// The pause before the first restart; it doubles with each that follows within a minute.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// The longest pause between restarts.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How often is looked whether the thread that calls the library lives.
const LOOK: Duration = Duration::from_millis(250);

/// What a supervised participant is and how patient one is with it.
#[derive(Clone)]
pub struct SupervisorConfig {
    /// The library.
    pub backend: Backend,
    /// Where it takes part.
    pub participant: ParticipantConfig,
    /// So long nothing may move in the library that should, before it is made anew.
    pub stall_after: Duration,
    /// Is told what an operator should know. Called in the library's thread: it must not block.
    pub notice: Arc<dyn Fn(Notice) + Send + Sync>,
}

impl fmt::Debug for SupervisorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisorConfig")
            .field("backend", &self.backend)
            .field("participant", &self.participant)
            .field("stall_after", &self.stall_after)
            .finish_non_exhaustive()
    }
}

impl Default for SupervisorConfig {
    /// Loopback, domain 0, ten seconds, nobody is told.
    fn default() -> Self {
        Self {
            backend: Backend::default(),
            participant: ParticipantConfig::default(),
            stall_after: Duration::from_secs(10),
            notice: Arc::new(|_| {}),
        }
    }
}

/// What an operator should know.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// An end elsewhere has the topic and does not fit.
    Mismatch {
        /// The topic.
        topic: String,
        /// Both sides' values.
        mismatch: QosMismatch,
    },
    /// The participant is made anew.
    Restarted {
        /// Why.
        why: String,
    },
    /// Nothing is made anew any more.
    GivenUp {
        /// Why.
        why: String,
    },
    /// A reader elsewhere acknowledges nothing.
    ReaderStalled {
        /// The topic.
        topic: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch { topic, mismatch } => write!(f, "topic {topic}: {mismatch}"),
            Self::Restarted { why } => write!(f, "the participant is made anew: {why}"),
            Self::GivenUp { why } => write!(f, "the participant is given up: {why}"),
            Self::ReaderStalled { topic } => {
                write!(f, "topic {topic}: a reader acknowledges nothing")
            }
        }
    }
}

/// A participant that is made anew when its library fails. Dropped, it ends.
#[derive(Debug)]
pub struct Supervisor {
    shared: Arc<Shared>,
}

/// What the threads share.
#[derive(Debug)]
struct Shared {
    config: SupervisorConfig,
    origin: Instant,
    ends: Mutex<Ends>,
    run: Mutex<Run>,
    /// Rings when the run changes.
    changed: Condvar,
    /// Milliseconds since the origin at which the thread that calls the library last came round.
    beat: AtomicU64,
    counters: Mutex<status::Counters>,
}

/// The ends that are to be.
#[derive(Debug, Default)]
struct Ends {
    outlets: Vec<Arc<OutletEnd>>,
    inlets: Vec<Arc<InletEnd>>,
}

/// Which thread calls the library.
#[derive(Debug, Default)]
struct Run {
    /// Rises when a thread is left behind: one of an older number ends when it comes back.
    generation: u64,
    ended: bool,
    waker: Option<Waker>,
}

impl Supervisor {
    /// Begins to take part; whether that works, [`Supervisor::status`] says.
    ///
    /// # Errors
    /// A configuration that cannot be one.
    pub fn start(config: SupervisorConfig) -> Result<Self, DdsError> {
        config.participant.check()?;
        let shared = Arc::new(Shared {
            config,
            origin: Instant::now(),
            ends: Mutex::default(),
            run: Mutex::default(),
            changed: Condvar::new(),
            beat: AtomicU64::new(0),
            counters: Mutex::default(),
        });
        shared.spawn(0)?;
        let watched = shared.clone();
        let watch = move || watched.watch();
        std::thread::Builder::new()
            .name("chappe-dds watch".into())
            .spawn(watch)
            .map_err(no_thread)?;
        Ok(Self { shared })
    }

    /// Adds a writer; it ends when the handle is dropped.
    ///
    /// # Errors
    /// What is wrong with it, or there are too many.
    pub fn writer(&self, config: OutletConfig) -> Result<Outlet, DdsError> {
        end::check(&config.topic, &config.qos)?;
        let (outlet, end) = outlet::outlet(&self.shared, config);
        let mut ends = lock(&self.shared.ends);
        ends.room()?;
        ends.outlets.push(end);
        drop(ends);
        self.shared.wake();
        Ok(outlet)
    }

    /// Adds a reader; it ends when the handle is dropped.
    ///
    /// # Errors
    /// What is wrong with it, or there are too many.
    pub fn reader(&self, config: InletConfig) -> Result<Inlet, DdsError> {
        end::check(&config.topic, &config.qos)?;
        let (inlet, end) = inlet::inlet(&self.shared, config);
        let mut ends = lock(&self.shared.ends);
        ends.room()?;
        ends.inlets.push(end);
        drop(ends);
        self.shared.wake();
        Ok(inlet)
    }

    /// How it is.
    #[must_use]
    pub fn status(&self) -> SupervisorStatus {
        let ends = lock(&self.shared.ends);
        let outlets = ends.outlets.iter().map(|end| end.told.status()).collect();
        let inlets = ends.inlets.iter().map(|end| end.told.status()).collect();
        drop(ends);
        lock(&self.shared.counters).status(&self.shared.config, outlets, inlets)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        lock(&self.shared.run).ended = true;
        self.shared.changed.notify_all();
        self.shared.wake();
    }
}

impl Ends {
    fn room(&self) -> Result<(), DdsError> {
        match self.outlets.len() + self.inlets.len() {
            ENDS_MAX.. => Err(DdsError::Qos {
                key: "topics",
                why: format!("there are {ENDS_MAX} already"),
            }),
            _ => Ok(()),
        }
    }
}

impl Shared {
    /// Starts the thread that calls the library.
    fn spawn(self: &Arc<Self>, generation: u64) -> Result<(), DdsError> {
        self.beat();
        let shared = self.clone();
        let drive = move || driver::drive(&shared, generation);
        let spawned = std::thread::Builder::new()
            .name("chappe-dds".into())
            .spawn(drive);
        spawned.map(drop).map_err(no_thread)
    }

    /// Looks whether that thread lives, until the end.
    fn watch(self: &Arc<Self>) {
        let mut run = lock(&self.run);
        while !run.ended {
            let waited = self.changed.wait_timeout(run, LOOK);
            run = waited.unwrap_or_else(PoisonError::into_inner).0;
            let beat = Duration::from_millis(self.beat.load(Ordering::Relaxed));
            let silent = self.origin.elapsed().saturating_sub(beat);
            if run.ended || silent < self.config.stall_after {
                continue;
            }
            run.generation += 1;
            run.waker = None;
            let generation = run.generation;
            drop(run);
            let why = format!("it did not come back for {} s", silent.as_secs());
            let mut counters = lock(&self.counters);
            counters.stalls += 1;
            counters.abandoned += 1;
            let given_up = counters.abandoned > ABANDONED_MAX;
            counters.failed(&why, given_up);
            drop(counters);
            if given_up || self.spawn(generation).is_err() {
                return (self.config.notice)(Notice::GivenUp { why });
            }
            (self.config.notice)(Notice::Restarted { why });
            run = lock(&self.run);
        }
    }

    /// The thread that calls the library came round.
    fn beat(&self) {
        let now = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.beat.store(now, Ordering::Relaxed);
    }

    /// Whether a thread of that generation is to go on.
    fn goes_on(&self, generation: u64) -> bool {
        let run = lock(&self.run);
        !run.ended && run.generation == generation
    }

    /// An end is no longer wanted.
    fn forget(&self, from: impl FnOnce(&mut Ends)) {
        from(&mut lock(&self.ends));
        self.wake();
    }

    /// Ends the waiting of the thread that calls the library.
    fn wake(&self) {
        let waker = lock(&self.run).waker.clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn no_thread(error: std::io::Error) -> DdsError {
    DdsError::Library {
        doing: "starting a thread",
        why: error.to_string(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
