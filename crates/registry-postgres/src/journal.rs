//! The journal, as the registry sees it.

use std::sync::mpsc;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use chappe_registry::{Journal, JournalError, Receipt, Stamped, Tail};
use tokio::sync::oneshot;

use chappe_postgres::Options;

use crate::error::OpenError;
use crate::link::Link;
use crate::shared::{Append, Command, Shared};

/// Time that a reader waits for records.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes that wait to be appended.
const QUEUE_BYTES: usize = 64 << 20;

/// A journal in PostgreSQL, shared with other nodes.
pub struct PostgresJournal {
    shared: Arc<Shared>,
}

/// The state of the connection, for health checks.
#[derive(Clone)]
pub struct Status(Arc<Shared>);

impl Status {
    /// The reason why changes fail now; `None` when they do not.
    #[must_use]
    pub fn outage(&self) -> Option<String> {
        self.0.lock().outage.clone()
    }
}

impl PostgresJournal {
    /// Connects, and makes the tables if there are none. Blocks the calling thread. Later the connection is
    /// made again whenever it is lost.
    ///
    /// # Errors
    /// PostgreSQL cannot be reached, refuses the node, or has tables of another version.
    pub fn open(options: &Options) -> Result<Self, OpenError> {
        let target = options.target()?;
        let shared = Arc::<Shared>::default();
        let (opened, result) = mpsc::channel();
        let of_thread = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("registry-postgres".to_owned())
            .spawn(move || Link::run(of_thread, target, &opened))
            .map_err(OpenError::Thread)?;
        let ended = || OpenError::Statement("the thread ended".to_owned());
        result.recv().map_err(|_| ended())??;
        Ok(Self { shared })
    }

    /// The state of the connection.
    #[must_use]
    pub fn status(&self) -> Status {
        Status(Arc::clone(&self.shared))
    }

    fn command(
        &self,
        command: impl FnOnce(mpsc::Sender<Result<bool, JournalError>>) -> Command,
    ) -> Result<bool, JournalError> {
        let (done, result) = mpsc::channel();
        {
            let mut state = self.shared.lock();
            if let Some(reason) = &state.outage {
                return Err(JournalError::Away(reason.clone()));
            }
            state.commands.push_back(command(done));
        }
        self.shared.wake.notify_one();
        let late = || JournalError::Away("PostgreSQL does not answer".to_owned());
        result.recv_timeout(READ_TIMEOUT).map_err(|_| late())?
    }
}

impl Drop for PostgresJournal {
    fn drop(&mut self) {
        self.shared.update(|state| state.is_closed = true);
        self.shared.wake.notify_one();
    }
}

impl Journal for PostgresJournal {
    fn last(&self) -> u64 {
        self.shared.lock().known
    }

    fn append_if(
        &self,
        expected_last: u64,
        records: Vec<Vec<u8>>,
    ) -> Result<Receipt, JournalError> {
        let conflicts = self.conflicts();
        let last = expected_last;
        self.append_after(Tail { last, conflicts }, records)
    }

    fn append_after(&self, tail: Tail, records: Vec<Vec<u8>>) -> Result<Receipt, JournalError> {
        let (done, result) = oneshot::channel();
        {
            let mut state = self.shared.lock();
            if let Some(reason) = &state.outage {
                return Err(JournalError::Away(reason.clone()));
            }
            if tail.conflicts != state.conflicts || tail.last != state.assigned {
                return Err(JournalError::Moved { last: state.known });
            }
            let queued: usize = state.queue.iter().map(Append::bytes).sum();
            if queued > QUEUE_BYTES {
                return Err(JournalError::Full(
                    "too much waits for PostgreSQL".to_owned(),
                ));
            }
            state.assigned += records.len() as u64;
            state.queue.push_back(Append {
                expected: tail.last,
                records,
                done,
            });
        }
        self.shared.wake.notify_one();
        Ok(Receipt::new(async move {
            let closed = || {
                let reason = "the journal was closed before PostgreSQL answered";
                Err(JournalError::Away(reason.to_owned()))
            };
            result.await.unwrap_or_else(|_| closed())
        }))
    }

    fn follow(&self, from: u64, max: usize) -> Result<Vec<(u64, Vec<u8>)>, JournalError> {
        let end = Instant::now() + READ_TIMEOUT;
        let mut state = self.shared.lock();
        loop {
            if from > state.known {
                return Ok(Vec::new());
            }
            if let Some(records) = state.in_memory(from, max) {
                return Ok(records);
            }
            if from < state.first {
                let snapshot = state.snapshot;
                return Err(JournalError::Trimmed { from, snapshot });
            }
            if let Some(reason) = &state.outage {
                return Err(JournalError::Away(reason.clone()));
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(JournalError::Away("PostgreSQL does not answer".to_owned()));
            }
            state.wanted = Some(from);
            self.shared.wake.notify_one();
            let waited = self.shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The record, if it is in memory: reading an older one would take the place of those that the node follows.
    fn stamped(&self, position: u64) -> Result<Option<Stamped>, JournalError> {
        let records = self.shared.lock().in_memory(position, 1);
        let mut records = records.unwrap_or_default().into_iter();
        let found = records.find(|(at, _)| *at == position);
        Ok(found.map(|(_, record)| Stamped {
            time_ns: None,
            record,
        }))
    }

    fn snapshot(&self) -> u64 {
        self.shared.lock().snapshot
    }

    fn set_snapshot(&self, position: u64) -> Result<(), JournalError> {
        self.command(|done| Command::Snapshot(position, done))
            .map(|_| ())
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn conflicts(&self) -> u64 {
        self.shared.lock().conflicts
    }

    fn begin_snapshot(&self) -> Result<bool, JournalError> {
        self.command(Command::Lock)
    }

    fn end_snapshot(&self) {
        self.shared.lock().commands.push_back(Command::Unlock);
        self.shared.wake.notify_one();
    }

    fn watch(&self, arrived: Box<dyn Fn() -> bool + Send>) {
        let shared = Arc::clone(&self.shared);
        let follow = move || {
            let mut seen = 0;
            loop {
                let state = shared.lock();
                let waited = shared
                    .changed
                    .wait_while(state, |state| state.arrivals == seen && !state.is_closed);
                let state = waited.unwrap_or_else(PoisonError::into_inner);
                if state.is_closed {
                    return;
                }
                seen = state.arrivals;
                drop(state);
                if !arrived() {
                    return;
                }
            }
        };
        // Without this thread the registry hears of others when it changes something itself.
        let _ = std::thread::Builder::new()
            .name("registry-follow".to_owned())
            .spawn(follow);
    }
}
