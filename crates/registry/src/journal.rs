//! The journal seam: an ordered, durable sequence of records behind a trait.
//!
//! Positions count from 1 and never repeat. [`Journal::append_if`] succeeds only for a writer that
//! has seen all previous records, so several nodes can share one journal. A snapshot is a run of
//! ordinary records; the journal only remembers where the newest complete one starts.
//!
//! A journal that is shared over a network ([`Journal::is_shared`]) knows only when a transaction ends
//! whether another node was first. Then the receipt is refused with [`JournalError::Moved`], with all that were
//! in flight after it: they were planned on changes that do not exist. [`Journal::conflicts`] counts
//! these refusals, and an append that names an older count is refused, whatever position it names. Its
//! reads may wait.
//!
//! [`MemoryJournal`] is for tests and for a registry that may lose its contents;
//! [`crate::LogJournal`] is durable.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// An error of a journal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another writer appended first; read up to `last` and try again.
    #[error("another writer has appended to the journal, up to position {last}")]
    Moved {
        /// The position of the last record.
        last: u64,
    },
    /// A shared journal cannot be reached. Nothing was written; a later attempt may succeed.
    #[error("the store of the registry cannot be reached: {0}")]
    Away(String),
    /// Records that a snapshot replaces were removed before they were read; read from the snapshot. All of
    /// it can be followed.
    #[error("records from position {from} on are removed; the snapshot starts at {snapshot}")]
    Trimmed {
        /// The position asked for.
        from: u64,
        /// Where the newest snapshot starts.
        snapshot: u64,
    },
    /// The journal is full; nothing was written, and a later attempt may succeed.
    #[error("the journal is full: {0}")]
    Full(String),
    /// The journal failed and refuses records until it is reopened.
    #[error("the journal failed: {0}")]
    Failed(String),
    /// A newer program wrote a record.
    #[error(
        "cannot read record {position} of the journal: {what} has format version {found}, this program reads up to {known} \
         (hint: use the program that wrote it, or a newer one)"
    )]
    NewerFormat {
        /// The position.
        position: u64,
        /// The part of it.
        what: String,
        /// Its version.
        found: u32,
        /// The newest version that is understood.
        known: u32,
    },
    /// A record cannot be decoded.
    #[error("cannot read record {position} of the journal: {reason}")]
    Unreadable {
        /// The position.
        position: u64,
        /// The reason.
        reason: String,
    },
}

/// Resolves when the appended records have reached the journal's durability.
pub struct Receipt(Pin<Box<dyn Future<Output = Result<(), JournalError>> + Send>>);

impl Receipt {
    /// A receipt that resolves with `future`.
    pub fn new(future: impl Future<Output = Result<(), JournalError>> + Send + 'static) -> Self {
        Self(Box::pin(future))
    }

    /// Blocks the calling thread until the records are durable.
    ///
    /// # Errors
    /// The journal's error.
    pub fn wait(self) -> Result<(), JournalError> {
        block_on(self)
    }
}

impl Future for Receipt {
    type Output = Result<(), JournalError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl std::fmt::Debug for Receipt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receipt")
    }
}

/// The end of a journal, as a writer knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The last position: of the records, or of the writer's appends in flight.
    pub last: u64,
    /// [`Journal::conflicts`] when the writer had read all records.
    pub conflicts: u64,
}

/// A record with the time at which it was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// Nanoseconds since 1970, if the journal stamps its records.
    pub time_ns: Option<i64>,
    /// The record.
    pub record: Vec<u8>,
}

/// An ordered, durable sequence of records with one agreed order of writers.
pub trait Journal: Send + Sync + 'static {
    /// Position of the last acknowledged record; 0 if there is none.
    fn last(&self) -> u64;

    /// Appends `records` directly after `expected_last`.
    ///
    /// Several appends may be in flight: then `expected_last` is the last position assigned, not
    /// the last acknowledged.
    ///
    /// # Errors
    /// [`JournalError::Moved`] if the last position differs; then nothing was written.
    fn append_if(&self, expected_last: u64, records: Vec<Vec<u8>>)
    -> Result<Receipt, JournalError>;

    /// Acknowledged records from position `from`, at most `max`; empty at the end.
    ///
    /// # Errors
    /// Reading failed.
    fn follow(&self, from: u64, max: usize) -> Result<Vec<(u64, Vec<u8>)>, JournalError>;

    /// The acknowledged record at `position`, if there is one.
    ///
    /// # Errors
    /// Reading failed, also because a snapshot has replaced the record.
    fn stamped(&self, position: u64) -> Result<Option<Stamped>, JournalError> {
        let mut records = self.follow(position, 1)?.into_iter();
        let found = records.find(|(at, _)| *at == position);
        Ok(found.map(|(_, record)| Stamped {
            time_ns: None,
            record,
        }))
    }

    /// The position where reading starts: the newest snapshot, or the first record.
    fn snapshot(&self) -> u64;

    /// Records that a complete, acknowledged snapshot starts at `position`; earlier records may be
    /// removed.
    ///
    /// # Errors
    /// Storing the position failed.
    fn set_snapshot(&self, position: u64) -> Result<(), JournalError>;

    /// Whether this registry is its only writer. Then every append with a position up to [`Journal::last`] is
    /// acknowledged, even if its receipt has not been polled.
    fn has_one_writer(&self) -> bool {
        false
    }

    /// Whether other nodes write to it over a network, so that a receipt can report a conflict.
    fn is_shared(&self) -> bool {
        false
    }

    /// How often all appends in flight were refused. It changes together with what can be followed.
    fn conflicts(&self) -> u64 {
        0
    }

    /// Like [`Journal::append_if`], but refused too if appends in flight were refused since.
    ///
    /// # Errors
    /// As [`Journal::append_if`]; [`JournalError::Away`].
    fn append_after(&self, tail: Tail, records: Vec<Vec<u8>>) -> Result<Receipt, JournalError> {
        self.append_if(tail.last, records)
    }

    /// Has `arrived` called, on a thread that may block, whenever other writers may have appended, until it returns
    /// false.
    fn watch(&self, arrived: Box<dyn Fn() -> bool + Send>) {
        drop(arrived);
    }

    /// Whether this writer may write a snapshot now; of a shared journal one writer may.
    ///
    /// # Errors
    /// [`JournalError::Away`].
    fn begin_snapshot(&self) -> Result<bool, JournalError> {
        Ok(true)
    }

    /// The snapshot is written, or given up.
    fn end_snapshot(&self) {}
}

/// A journal in memory. Clones share the records, so a registry can be reopened on it.
#[derive(Clone, Debug, Default)]
pub struct MemoryJournal {
    shared: Arc<Mutex<Records>>,
}

#[derive(Debug, Default)]
struct Records {
    /// Position before the first record kept.
    before: u64,
    records: Vec<Vec<u8>>,
    snapshot: u64,
    fails: Option<JournalError>,
}

impl MemoryJournal {
    /// An empty journal.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes every later append fail with `error`, or succeed again with `None`.
    pub fn fail(&self, error: Option<JournalError>) {
        self.lock().fails = error;
    }

    /// Number of records kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lock().records.len()
    }

    /// Whether no record is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Records> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Journal for MemoryJournal {
    fn last(&self) -> u64 {
        let inner = self.lock();
        inner.before + inner.records.len() as u64
    }

    fn append_if(
        &self,
        expected_last: u64,
        records: Vec<Vec<u8>>,
    ) -> Result<Receipt, JournalError> {
        let mut inner = self.lock();
        let last = inner.before + inner.records.len() as u64;
        if last != expected_last {
            return Err(JournalError::Moved { last });
        }
        if let Some(error) = inner.fails.clone() {
            return Ok(Receipt::new(std::future::ready(Err(error))));
        }
        inner.records.extend(records);
        Ok(Receipt::new(std::future::ready(Ok(()))))
    }

    fn follow(&self, from: u64, max: usize) -> Result<Vec<(u64, Vec<u8>)>, JournalError> {
        let inner = self.lock();
        let first = from.max(inner.before + 1);
        let skip = usize::try_from(first - inner.before - 1).unwrap_or(usize::MAX);
        let records = inner.records.iter().skip(skip).take(max);
        Ok((first..).zip(records.cloned()).collect())
    }

    fn snapshot(&self) -> u64 {
        let inner = self.lock();
        inner.snapshot.max(inner.before + 1)
    }

    fn set_snapshot(&self, position: u64) -> Result<(), JournalError> {
        let mut inner = self.lock();
        let forget = position.saturating_sub(inner.before + 1);
        let forget = usize::try_from(forget)
            .unwrap_or(usize::MAX)
            .min(inner.records.len());
        inner.records.drain(..forget);
        inner.before += forget as u64;
        inner.snapshot = position;
        Ok(())
    }
}

/// Drives a future on the calling thread, which sleeps between polls.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
