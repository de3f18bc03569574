//! Recognizes elements that a client sends again.
//!
//! A client names its producer and numbers the producer's elements. The log's record of an element
//! carries both, so what was stored and how far the producer came are one append, and after a restart
//! the log says how far each producer came. Requests of one producer take turns, each until all its
//! elements are acknowledged or refused: when a turn begins, nothing of the producer is on its way.
//!
//! The producers of a stream are those of its newest elements ([`WINDOW`]) when it is first written in
//! this run, and those that wrote since, at most [`PRODUCERS_MAX`].

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chappe_stream::{Epoch, StoreError, StreamLog};
use tokio::sync::{OnceCell, OwnedMutexGuard};

use crate::catalogue::Entry;

/// The source of streams that clients write.
pub(crate) const SOURCE: &str = "urn:chappe:clients";
/// Newest elements of a stream that are searched for its producers; reason: reading them takes about a
/// tenth of a second, once for each stream and run.
pub(crate) const WINDOW: u64 = 100_000;
/// Producers that are remembered for each stream; reason: about 2 MB, and a client that uses a new
/// producer for each request repeats a request soon.
const PRODUCERS_MAX: usize = 16_384;

/// The number of a producer's newest element, 0 when there is none; `None` when only the log knows.
type Last = Option<u64>;

/// The producers of all streams that are written.
#[derive(Default)]
pub(crate) struct Producers {
    /// By name and epoch: a stream that was removed and defined again is another one.
    streams: Mutex<HashMap<String, (u64, Arc<OfStream>)>>,
}

#[derive(Default)]
struct OfStream {
    known: OnceCell<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    producers: HashMap<Epoch, Arc<tokio::sync::Mutex<Last>>>,
    /// The oldest first.
    order: VecDeque<Epoch>,
}

/// The turn of a producer. Dropping it without [`Turn::finish`] leaves it to the log how far the
/// producer came.
pub(crate) struct Turn {
    guard: OwnedMutexGuard<Last>,
    producer: Epoch,
    last: u64,
}

impl Turn {
    /// The producer as records name it.
    pub(crate) fn producer(&self) -> Epoch {
        self.producer
    }

    /// The number of its newest stored element.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Ends the turn after every element up to `last` is acknowledged.
    pub(crate) fn finish(mut self, last: u64) {
        *self.guard = Some(last.max(self.last));
    }
}

impl Producers {
    /// Waits for the turn of a producer, which a client names `name`.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(crate) async fn turn(&self, entry: &Entry, name: &str) -> Result<Turn, StoreError> {
        let producer = epoch_of(name);
        let stream = self.stream(entry);
        let log = &entry.log;
        let known = stream.known.get_or_try_init(|| Known::read(log)).await?;
        let producer_last = lock(known).of(producer);
        let mut guard = producer_last.lock_owned().await;
        // Unknown until the turn ends.
        let last = match guard.take() {
            Some(last) => last,
            None => newest(log).await?.get(&producer).copied().unwrap_or(0),
        };
        Ok(Turn {
            guard,
            producer,
            last,
        })
    }

    fn stream(&self, entry: &Entry) -> Arc<OfStream> {
        let epoch = entry.log.log().epoch();
        let mut streams = lock(&self.streams);
        let (known_epoch, stream) = streams
            .entry(entry.name.clone())
            .or_insert_with(|| (epoch, Arc::default()));
        if *known_epoch != epoch {
            (*known_epoch, *stream) = (epoch, Arc::default());
        }
        stream.clone()
    }

    /// Forgets a stream that was removed.
    pub(crate) fn forget(&self, stream: &str) {
        lock(&self.streams).remove(stream);
    }
}

impl Known {
    async fn read(log: &StreamLog) -> Result<Mutex<Self>, StoreError> {
        let mut known = Self::default();
        for (producer, last) in newest(log).await? {
            let last = Arc::new(tokio::sync::Mutex::new(Some(last)));
            known.insert(producer, last);
        }
        Ok(Mutex::new(known))
    }

    fn of(&mut self, producer: Epoch) -> Arc<tokio::sync::Mutex<Last>> {
        if let Some(last) = self.producers.get(&producer) {
            return last.clone();
        }
        let last = Arc::new(tokio::sync::Mutex::new(Some(0)));
        self.insert(producer, last.clone());
        last
    }

    fn insert(&mut self, producer: Epoch, last: Arc<tokio::sync::Mutex<Last>>) {
        // A producer whose turn it is stays, or its next request would not wait for this one.
        let most = self.order.len();
        for _ in 0..most {
            if self.producers.len() < PRODUCERS_MAX {
                break;
            }
            let Some(oldest) = self.order.pop_front() else {
                break;
            };
            match self.producers.get(&oldest) {
                Some(last) if Arc::strong_count(last) > 1 => self.order.push_back(oldest),
                _ => drop(self.producers.remove(&oldest)),
            }
        }
        self.producers.insert(producer, last);
        self.order.push_back(producer);
    }
}

/// How far each producer came, by the log.
async fn newest(log: &StreamLog) -> Result<std::collections::BTreeMap<Epoch, u64>, StoreError> {
    let log = log.clone();
    let work = tokio::task::spawn_blocking(move || log.newest_origins(WINDOW));
    work.await
        .unwrap_or(Err(StoreError::Log(chappe_log::Error::Closed)))
}

/// The number of a producer in records: the first bytes of the SHA-256 of its name.
fn epoch_of(name: &str) -> Epoch {
    let hash = chappe_identity::name_hash(name);
    Epoch(u64::from_be_bytes(hash))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
