//! Feeds: one follower for each stream that other nodes read, however many read it.
//!
//! What is new is read and packed once, and handed to the mailbox of each session that reads the
//! stream. A session that is behind loses nothing by a full mailbox: it keeps the number of the
//! newest element and reads from the log later.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use chappe_flow::{Channel, Records, RecordsBuilder};
use chappe_stream::{Position, RawFollower, RawRecords, StoreError, StreamLog};
use tokio::sync::Notify;

/// Bytes of new elements that a mailbox holds; reason: what a session does not take within some
/// milliseconds it reads from the log, at the cost of a read.
const MAILBOX_BYTES_MAX: usize = 512 << 10;
/// So long a commit is waited for; reason: far beyond what a sync takes, so what is longer is a disk
/// that is full or ill, and what is committed is not to wait for that.
const COMMIT_WAIT: Duration = Duration::from_millis(20);
/// A stopped log is looked at again after this; reason: an operator opens it again.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// The feeds of a node.
#[derive(Default)]
pub(crate) struct Feeds {
    feeds: Mutex<BTreeMap<String, Weak<Feed>>>,
}

/// The feed of one stream; it ends with its last reader.
pub(crate) struct Feed {
    readers: Mutex<Vec<Reader>>,
    task: Mutex<Option<tokio::task::AbortHandle>>,
}

struct Reader {
    mailbox: Weak<Mailbox>,
    channel: Channel,
}

/// What one channel of a session reads; ends when dropped.
pub(crate) struct Reading {
    feed: Arc<Feed>,
    mailbox: Weak<Mailbox>,
    channel: Channel,
}

/// What waits for a session.
#[derive(Default)]
pub(crate) struct Mailbox {
    state: Mutex<Waiting>,
    news: Notify,
}

#[derive(Default)]
struct Waiting {
    batches: Vec<(Channel, Batch)>,
    bytes: usize,
    newest: BTreeMap<Channel, u64>,
}

/// New elements, packed; clones share them.
#[derive(Clone)]
pub(crate) struct Batch {
    pub(crate) first: Position,
    pub(crate) schema_version: u32,
    pub(crate) records: Records,
}

/// News for a session.
pub(crate) enum News {
    /// These are new.
    Live(Channel, Batch),
    /// There are new ones up to this number, to be read from the log.
    Appended(Channel, u64),
}

impl Batch {
    /// Packs records.
    pub(crate) fn of(raw: &RawRecords) -> Self {
        let bytes = raw
            .records
            .iter()
            .map(|(_, record)| record.len() + 12)
            .sum();
        let mut builder = RecordsBuilder::with_capacity(bytes);
        for (time, record) in &raw.records {
            builder.push(time.0, record);
        }
        Self {
            first: raw.first,
            schema_version: raw.schema_version,
            records: builder.finish(),
        }
    }

    fn last(&self) -> u64 {
        self.first.sequence + self.records.len() as u64 - 1
    }
}

impl Feeds {
    /// Lets a channel read what is new in `log` from now on: it gets everything appended after
    /// this returns, so a newest number that is asked for later leaves nothing untold between. `linger`:
    /// elements wait so long for others.
    pub(crate) fn read(
        &self,
        log: &StreamLog,
        linger: Duration,
        mailbox: &Arc<Mailbox>,
        channel: Channel,
    ) -> Reading {
        let mut feeds = lock(&self.feeds);
        feeds.retain(|_, feed| feed.strong_count() > 0);
        let feed = match feeds.get(log.name()).and_then(Weak::upgrade) {
            Some(feed) => feed,
            None => {
                let feed = Arc::new(Feed {
                    readers: Mutex::default(),
                    task: Mutex::default(),
                });
                feeds.insert(log.name().to_owned(), Arc::downgrade(&feed));
                // From now on, not from when the task first runs.
                let follower = log.follow_raw(log.log().last() + 1);
                let task = tokio::spawn(follow(follower, linger, Arc::downgrade(&feed)));
                *lock(&feed.task) = Some(task.abort_handle());
                feed
            }
        };
        let mailbox = Arc::downgrade(mailbox);
        lock(&feed.readers).push(Reader {
            mailbox: mailbox.clone(),
            channel,
        });
        Reading {
            feed,
            mailbox,
            channel,
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut readers = lock(&self.feed.readers);
        readers.retain(|reader| {
            reader.channel != self.channel || !Weak::ptr_eq(&reader.mailbox, &self.mailbox)
        });
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }
}

/// Follows a stream while it has readers.
async fn follow(mut follower: RawFollower, linger: Duration, feed: Weak<Feed>) {
    loop {
        let news = match follower.next().await {
            Ok(batches) => batches,
            // Readers learn of it when they read.
            Err(StoreError::Log(chappe_log::Error::Gap { .. })) => Vec::new(),
            Err(_) => {
                tokio::time::sleep(FAILED_PAUSE).await;
                Vec::new()
            }
        };
        let Some(feed) = feed.upgrade() else { return };
        for raw in &news {
            let batch = Batch::of(raw);
            let readers = lock(&feed.readers);
            for reader in &*readers {
                if let Some(mailbox) = reader.mailbox.upgrade() {
                    mailbox.put(reader.channel, &batch);
                }
            }
        }
        drop(feed);
        if !linger.is_zero() {
            tokio::time::sleep(linger).await;
            // What came meanwhile is committed now and goes with the rest: the log's pause is a part
            // of the time that an element waits here and does not come on top.
            let _ = tokio::time::timeout(COMMIT_WAIT, follower.committed()).await;
        }
    }
}

impl Mailbox {
    fn put(&self, channel: Channel, batch: &Batch) {
        let mut state = lock(&self.state);
        let bytes = batch.records.byte_len();
        let behind = state.newest.contains_key(&channel);
        if behind || state.bytes + bytes > MAILBOX_BYTES_MAX {
            state.newest.insert(channel, batch.last());
        } else {
            state.bytes += bytes;
            state.batches.push((channel, batch.clone()));
        }
        drop(state);
        self.news.notify_one();
    }

    /// Returns when something waits. May be dropped and called again.
    pub(crate) async fn wait(&self) {
        self.news.notified().await;
    }

    /// What waits, in order for each channel.
    pub(crate) fn take(&self, news: &mut Vec<News>) {
        let mut state = lock(&self.state);
        state.bytes = 0;
        let batches = state.batches.drain(..);
        news.extend(batches.map(|(channel, batch)| News::Live(channel, batch)));
        let newest = std::mem::take(&mut state.newest);
        news.extend(
            newest
                .into_iter()
                .map(|(channel, last)| News::Appended(channel, last)),
        );
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
