//! Feeds: one follower for each stream that other nodes read, however many readers it has.
//!
//! New elements are read and encoded once, and put into the mailbox of each session that reads the
//! stream. A slow session loses nothing when its mailbox is full: it keeps the number of the newest
//! element and reads from the log later.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use chappe_flow::{Channel, Records, RecordsBuilder};
use chappe_stream::{Position, RawFollower, RawRecords, StoreError, StreamLog};
use tokio::sync::Notify;

/// Bytes of new elements in a mailbox; reason: a session that falls some milliseconds behind reads
/// from the log, at the cost of a read.
const MAILBOX_BYTES_MAX: usize = 512 << 10;
/// Longest wait for a commit; reason: far longer than a sync. If it takes longer, the disk is full
/// or failing, and elements that are committed should not wait for it.
const COMMIT_WAIT: Duration = Duration::from_millis(20);
/// Delay before a stopped log is checked again; reason: an operator reopens it.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

/// The feeds of a node.
#[derive(Default)]
pub(crate) struct Feeds {
    feeds: Mutex<BTreeMap<String, Weak<Feed>>>,
}

/// The feed of one stream; it ends when its last reader does.
pub(crate) struct Feed {
    readers: Mutex<Vec<Reader>>,
    task: Mutex<Option<tokio::task::AbortHandle>>,
}

struct Reader {
    mailbox: Weak<Mailbox>,
    channel: Channel,
}

/// The subscription of one channel of a session; ends when dropped.
pub(crate) struct FeedSubscription {
    feed: Arc<Feed>,
    mailbox: Weak<Mailbox>,
    channel: Channel,
}

/// Updates that wait for a session.
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

/// New elements, encoded; clones share them.
#[derive(Clone)]
pub(crate) struct Batch {
    pub(crate) first: Position,
    pub(crate) schema_version: u32,
    pub(crate) records: Records,
}

/// An update for a session.
pub(crate) enum FeedUpdate {
    /// New elements.
    Live(Channel, Batch),
    /// New elements up to this number, to be read from the log.
    Appended(Channel, u64),
}

impl Batch {
    /// Encodes records.
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
    /// Subscribes a channel to the new elements of `log`. It receives everything appended after
    /// this returns, so there is no gap if the newest number is read later. `linger`: how long
    /// elements wait to share a batch.
    pub(crate) fn read(
        &self,
        log: &StreamLog,
        linger: Duration,
        mailbox: &Arc<Mailbox>,
        channel: Channel,
    ) -> FeedSubscription {
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
                // The follower starts now, not when the task first runs.
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
        FeedSubscription {
            feed,
            mailbox,
            channel,
        }
    }
}

impl Drop for FeedSubscription {
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
            // Readers notice the error when they read.
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
            // Newer elements are committed now and go with the rest: the log's own pause becomes a
            // part of the linger time instead of adding to it.
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

    /// Returns when an update waits. Cancel-safe.
    pub(crate) async fn wait(&self) {
        self.news.notified().await;
    }

    /// Takes the waiting updates, in order for each channel.
    pub(crate) fn take(&self, news: &mut Vec<FeedUpdate>) {
        let mut state = lock(&self.state);
        state.bytes = 0;
        let batches = state.batches.drain(..);
        news.extend(batches.map(|(channel, batch)| FeedUpdate::Live(channel, batch)));
        let newest = std::mem::take(&mut state.newest);
        news.extend(
            newest
                .into_iter()
                .map(|(channel, last)| FeedUpdate::Appended(channel, last)),
        );
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
