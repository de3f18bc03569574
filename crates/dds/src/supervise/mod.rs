//! A participant that survives failures of its library.
//!
//! The library runs in its own threads, and so does the code that calls it: no failure blocks or ends the users of
//! topics. A panic, an error or a stall is counted; then participant, writers and readers are replaced. The owner of
//! written and unacknowledged samples writes them again ([`Progress::generation`]).
//!
//! About once a second a sample passes through the library from a writer to a reader of the same participant, on a
//! topic of the participant's own (`chappe/alive/…`), and the participant checks that the library's threads return from
//! their operations, which shows that it works.
//!
//! A thread that never returns from the library cannot be ended: it is abandoned. After [`ABANDONED_MAX`] of them the
//! participant is not replaced again.

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

use crate::backend::ParticipantConfig;
use crate::{DdsError, Mismatch};

pub use inlet::{Inlet, InletConfig};
pub use outlet::{Ended, Outgoing, Outlet, OutletConfig, Progress, Stalled};
pub use status::{EndStatus, InletStatus, OutletStatus, State, SupervisorStatus};

use inlet::InletEnd;
use outlet::OutletEnd;

/// Abandoned threads after which the participant is not replaced again; reason: each keeps its stack, sockets and
/// samples.
pub const ABANDONED_MAX: u64 = 8;
/// The largest number of writers and readers; reason: each is a topic announced to all peers.
pub const ENDS_MAX: usize = 1_024;
/// The pause before the first restart; it doubles with each further one within a minute.
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// The longest pause between restarts.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// The interval of checks for the thread that calls the library.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The configuration of a supervised participant.
#[derive(Clone)]
pub struct SupervisorConfig {
    /// Its domain and interfaces.
    pub participant: ParticipantConfig,
    /// Time for which the library may be stuck before the participant is replaced.
    pub stall_after: Duration,
    /// Receives notices for the operator. Called in the library's thread, so it must not block.
    pub notice: Arc<dyn Fn(Notice) + Send + Sync>,
}

impl fmt::Debug for SupervisorConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisorConfig")
            .field("participant", &self.participant)
            .field("stall_after", &self.stall_after)
            .finish_non_exhaustive()
    }
}

impl Default for SupervisorConfig {
    /// Loopback, domain 0, ten seconds, notices are ignored.
    fn default() -> Self {
        Self {
            participant: ParticipantConfig::default(),
            stall_after: Duration::from_secs(10),
            notice: Arc::new(|_| {}),
        }
    }
}

/// A notice for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A remote end has the topic and is incompatible.
    Mismatch {
        /// The topic.
        topic: String,
        /// In what.
        mismatch: Mismatch,
    },
    /// The participant is restarted.
    Restarted {
        /// The reason.
        why: String,
    },
    /// The participant is not restarted again.
    GivenUp {
        /// The reason.
        why: String,
    },
    /// There are too many remote writers and readers, and one is ignored.
    EndDropped {
        /// Its topic.
        topic: String,
        /// Which one, and the limit.
        detail: String,
    },
    /// A remote reader acknowledges nothing.
    ReaderStalled {
        /// The topic.
        topic: String,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mismatch { topic, mismatch } => write!(f, "topic {topic}: {mismatch}"),
            Self::Restarted { why } => write!(f, "the participant is restarted: {why}"),
            Self::GivenUp { why } => write!(f, "the participant is not restarted again: {why}"),
            Self::EndDropped { topic, detail } => write!(f, "topic {topic}: {detail}"),
            Self::ReaderStalled { topic } => {
                write!(f, "topic {topic}: a reader acknowledges nothing")
            }
        }
    }
}

/// A participant that is restarted when its library fails. It ends when it is dropped.
#[derive(Debug)]
pub struct Supervisor {
    shared: Arc<Shared>,
}

/// State shared by the threads.
#[derive(Debug)]
struct Shared {
    config: SupervisorConfig,
    origin: Instant,
    ends: Mutex<Ends>,
    run: Mutex<Run>,
    /// Notified when the run changes.
    changed: Condvar,
    /// The time when the thread that calls the library last finished a round, in milliseconds since
    /// the origin.
    beat: AtomicU64,
    counters: Mutex<status::Counters>,
}

/// The requested writers and readers.
#[derive(Debug, Default)]
struct Ends {
    outlets: Vec<Arc<OutletEnd>>,
    inlets: Vec<Arc<InletEnd>>,
}

/// The thread that calls the library.
#[derive(Debug, Default)]
struct Run {
    /// Increases when a thread is abandoned: a thread with an older number ends when it returns.
    generation: u64,
    ended: bool,
    waker: Option<Waker>,
}

impl Supervisor {
    /// Starts the participant; [`Supervisor::status`] shows whether that succeeds.
    ///
    /// # Errors
    /// The configuration is invalid, or this program was built without the library.
    pub fn start(config: SupervisorConfig) -> Result<Self, DdsError> {
        config.participant.check()?;
        if cfg!(not(cyclone)) {
            return Err(DdsError::Missing);
        }
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
            .map_err(thread_error)?;
        Ok(Self { shared })
    }

    /// Adds a writer, which ends when the handle is dropped.
    ///
    /// # Errors
    /// It is invalid, or there are too many.
    pub fn writer(&self, config: OutletConfig) -> Result<Outlet, DdsError> {
        end::check(&config.topic, &config.qos)?;
        let (outlet, end) = outlet::outlet(&self.shared, config);
        let mut ends = lock(&self.shared.ends);
        ends.check_room()?;
        ends.outlets.push(end);
        drop(ends);
        self.shared.wake();
        Ok(outlet)
    }

    /// Adds a reader, which ends when the handle is dropped.
    ///
    /// # Errors
    /// It is invalid, or there are too many.
    pub fn reader(&self, config: InletConfig) -> Result<Inlet, DdsError> {
        config.topic.check_for_reader()?;
        config.qos.check()?;
        let (inlet, end) = inlet::inlet(&self.shared, config);
        let mut ends = lock(&self.shared.ends);
        ends.check_room()?;
        ends.inlets.push(end);
        drop(ends);
        self.shared.wake();
        Ok(inlet)
    }

    /// Its status.
    #[must_use]
    pub fn status(&self) -> SupervisorStatus {
        let ends = lock(&self.shared.ends);
        let outlets = ends
            .outlets
            .iter()
            .map(|end| end.shared_status.status())
            .collect();
        let inlets = ends
            .inlets
            .iter()
            .map(|end| end.shared_status.status())
            .collect();
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
    fn check_room(&self) -> Result<(), DdsError> {
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
        self.note_round();
        let shared = self.clone();
        let drive = move || driver::drive(&shared, generation);
        let spawned = std::thread::Builder::new()
            .name("chappe-dds".into())
            .spawn(drive);
        spawned.map(drop).map_err(thread_error)
    }

    /// Checks periodically that this thread works, until the end.
    fn watch(self: &Arc<Self>) {
        let mut run = lock(&self.run);
        while !run.ended {
            let waited = self.changed.wait_timeout(run, CHECK_INTERVAL);
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
            let why = format!("it did not return for {} s", silent.as_secs());
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

    /// Records that the thread that calls the library has finished a round.
    fn note_round(&self) {
        let now = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.beat.store(now, Ordering::Relaxed);
    }

    /// Whether a thread of that generation should continue.
    fn should_continue(&self, generation: u64) -> bool {
        let run = lock(&self.run);
        !run.ended && run.generation == generation
    }

    /// Removes an end.
    fn remove_end(&self, from: impl FnOnce(&mut Ends)) {
        from(&mut lock(&self.ends));
        self.wake();
    }

    /// Wakes the thread that calls the library.
    fn wake(&self) {
        let waker = lock(&self.run).waker.clone();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

fn thread_error(error: std::io::Error) -> DdsError {
    DdsError::Library {
        doing: "starting a thread",
        why: error.to_string(),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
