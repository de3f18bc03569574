//! One stream of elements: what is known of it, appending, reading.

use std::sync::{Arc, PoisonError, RwLock};

use chappe_log::{Appended, Batch, Defining, Record, Rollback, Stream};

use super::elements::{batch_of, decode_all};
use super::metadata::Metadata;
use super::{DeviceIdentity, StoreError};
use crate::retention::Trimmer;
use crate::{Position, Retention, StreamElement, StreamSchema, Timestamp, check_name};

/// One stream of elements. Clones share it.
#[derive(Clone)]
pub struct StreamLog {
    pub(super) name: Arc<str>,
    pub(super) stream: Stream,
    pub(super) metadata: Arc<RwLock<Arc<Metadata>>>,
    /// That of a stream without its own.
    pub(super) default_retention: Retention,
    pub(super) trimmer: Arc<Trimmer>,
}

impl StreamLog {
    pub(super) fn new(
        name: &str,
        stream: Stream,
        metadata: Metadata,
        default_retention: Retention,
    ) -> Self {
        Self {
            name: name.into(),
            stream,
            metadata: Arc::new(RwLock::new(Arc::new(metadata))),
            default_retention,
            trimmer: Arc::default(),
        }
    }

    /// The name under which it was defined, which identifies it in the log; [`StreamLog::current_name`] is the
    /// one to show.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// [`StreamLog::name`], shared.
    #[must_use]
    pub fn shared_name(&self) -> Arc<str> {
        self.name.clone()
    }

    /// The schema of its elements.
    #[must_use]
    pub fn schema(&self) -> StreamSchema {
        self.snapshot().current().clone()
    }

    /// The number of the schema's current version, from 0; it falls when an earlier schema returns.
    #[must_use]
    pub fn schema_version(&self) -> u32 {
        self.snapshot().current_version()
    }

    /// Whether this is its schema, and this its source.
    #[must_use]
    pub fn is_as(&self, schema: &StreamSchema, origin: &str) -> bool {
        let metadata = self.snapshot();
        metadata.current() == schema && metadata.origin.as_deref() == Some(origin)
    }

    /// The origin of the elements: the key of a device, or the name of a virtual sensor.
    #[must_use]
    pub fn origin(&self) -> Option<String> {
        self.snapshot().origin.clone()
    }

    /// The device that produces its elements, if it has an identity beyond its key.
    #[must_use]
    pub fn device(&self) -> Option<DeviceIdentity> {
        self.snapshot().device.clone()
    }

    /// The underlying stream of the log: level, first and last number, epochs, gaps.
    #[must_use]
    pub fn log(&self) -> &Stream {
        &self.stream
    }

    /// Makes `schema` the current one: the version that the stream had before, otherwise a new one.
    ///
    /// # Errors
    /// The schema is invalid, has too many versions, or the log failed.
    pub fn set_schema(&self, schema: &StreamSchema) -> Result<(), StoreError> {
        schema.check_names().map_err(StoreError::Schema)?;
        self.alter(|metadata| metadata.describe(schema, None, None))
    }

    /// The retention of its elements.
    #[must_use]
    pub fn retention(&self) -> Retention {
        self.snapshot().retention.unwrap_or(self.default_retention)
    }

    /// Records the retention of its elements; `None` for the store's default. It applies until
    /// another one is recorded, even if the sensor or device that set it is removed.
    ///
    /// # Errors
    /// An error of the log.
    pub fn set_retention(&self, retention: Option<Retention>) -> Result<(), StoreError> {
        self.alter(|metadata| {
            metadata.retention = retention;
            Ok(())
        })?;
        self.trimmer.reset();
        Ok(())
    }

    /// Trims it to its retention at `now`; see [`StreamStore::retain`](crate::StreamStore::retain).
    ///
    /// # Errors
    /// An error of the log.
    pub fn retain(&self, now: Timestamp) -> Result<(), StoreError> {
        Ok(self
            .trimmer
            .trim_overdue(&self.stream, now, self.retention())?)
    }

    /// Calls `append`, which queues elements of this stream, again whenever the log's queue was too
    /// full for them and has room again.
    ///
    /// # Errors
    /// Those of `append` other than [`chappe_log::Error::QueueFull`].
    pub async fn when_room<T>(
        &self,
        append: impl Fn() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        loop {
            match append() {
                Err(StoreError::Log(chappe_log::Error::QueueFull { bytes, .. })) => {
                    self.stream.room(bytes).await;
                }
                queued => return queued,
            }
        }
    }

    /// Queues `elements`. Their positions are ignored: the log assigns them, one after another from
    /// [`Appended::first`]. They are stored when the result resolves.
    ///
    /// # Errors
    /// The first element that does not match the schema, or the log's error; then none is queued.
    pub fn append(&self, elements: &[StreamElement]) -> Result<Appended, StoreError> {
        self.append_by(elements, |batch| self.stream.append(batch))
    }

    /// Like [`StreamLog::append`], after the elements that the same caller queued before, as in
    /// [`Intake::append`](crate::Intake::append).
    ///
    /// # Errors
    /// [`chappe_log::Error::Retracted`]; those of [`StreamLog::append`].
    pub fn append_after(
        &self,
        retractions: u64,
        elements: &[StreamElement],
    ) -> Result<Appended, StoreError> {
        self.append_by(elements, |batch| {
            self.stream.append_after(retractions, batch)
        })
    }

    /// Like [`StreamLog::append`], for elements derived from those that
    /// [`StreamLog::follow_eagerly`] returned since [`Store::retractions`](chappe_log::Store::retractions) returned `retractions`.
    ///
    /// # Errors
    /// [`chappe_log::Error::Retracted`]; those of [`StreamLog::append`].
    pub fn append_derived(
        &self,
        retractions: u64,
        elements: &[StreamElement],
    ) -> Result<Appended, StoreError> {
        self.append_by(elements, |batch| {
            self.stream.append_derived(retractions, batch)
        })
    }

    fn append_by(
        &self,
        elements: &[StreamElement],
        append: impl FnOnce(Batch) -> Result<Appended, chappe_log::Error>,
    ) -> Result<Appended, StoreError> {
        let metadata = self.snapshot();
        let batch = batch_of(elements, metadata.current(), metadata.current_version())?;
        Ok(self.queued(append(batch)?))
    }

    /// Trims the elements that a queued batch makes surplus.
    pub(super) fn queued(&self, appended: Appended) -> Appended {
        let last = appended.last().sequence;
        self.trimmer.appended(&self.stream, last, self.retention());
        appended
    }

    /// At most `count` elements from number `from` (0: from the first kept).
    ///
    /// # Errors
    /// A gap, with the number to continue at; elements that cannot be decoded.
    pub fn read(&self, from: u64, count: usize) -> Result<Vec<StreamElement>, StoreError> {
        self.decode(self.stream.read(from, count)?)
    }

    /// The newest elements, at most `count`, oldest first.
    ///
    /// # Errors
    /// The log's error; elements that cannot be decoded.
    pub fn newest(&self, count: usize) -> Result<Vec<StreamElement>, StoreError> {
        self.decode(self.stream.newest(count)?)
    }

    /// Elements with source time from `from` to before `to`, in the order of their numbers.
    ///
    /// # Errors
    /// The log's error; elements that cannot be decoded.
    pub fn range(
        &self,
        from: Timestamp,
        to: Timestamp,
        count: usize,
    ) -> Result<Vec<StreamElement>, StoreError> {
        self.decode(self.stream.range(from.0, to.0, count)?)
    }

    /// The number of elements kept.
    #[must_use]
    pub fn kept(&self) -> u64 {
        let numbers = (self.stream.last() + 1).saturating_sub(self.stream.first());
        numbers.saturating_sub(self.damaged(0, u64::MAX))
    }

    /// The number of damaged elements between or next to the numbers `first` to `last`: a reader of
    /// these may lack as many elements.
    #[must_use]
    pub fn damaged(&self, first: u64, last: u64) -> u64 {
        let gaps = self.stream.gaps().into_iter().chain(self.stream.given_up());
        let near = gaps
            .filter(|(from, to)| *from <= last.saturating_add(1) && to.saturating_add(1) >= first);
        near.map(|(from, to)| to - from + 1).sum()
    }

    /// The position at which a client that has everything up to `position` continues.
    ///
    /// # Errors
    /// The client has seen elements that this log does not have.
    pub fn resume(&self, position: Position) -> Result<u64, Rollback> {
        self.stream.resume(chappe_log::Position {
            epoch: position.epoch.0,
            sequence: position.sequence,
        })
    }

    pub(super) fn snapshot(&self) -> Arc<Metadata> {
        let metadata = self.metadata.read();
        metadata.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records the metadata that `change` computes from the newest ones; waits until they are
    /// durable.
    pub(super) fn alter(
        &self,
        change: impl FnOnce(&mut Metadata) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        self.redefine(change)?.wait()?;
        self.renew()
    }

    /// Queues the metadata that `change` computes from the newest ones.
    pub(super) fn redefine(
        &self,
        change: impl FnOnce(&mut Metadata) -> Result<(), StoreError>,
    ) -> Result<Defining, StoreError> {
        self.stream.change_metadata(|stored| {
            let mut metadata = Metadata::decode(&self.name, stored)?;
            change(&mut metadata)?;
            metadata.encode()
        })
    }

    /// Loads the newest durable metadata: only then may a record name a new version.
    pub(super) fn renew(&self) -> Result<(), StoreError> {
        let mut shared = self
            .metadata
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let metadata = Metadata::decode(&self.name, &self.stream.metadata())?;
        if metadata != **shared {
            *shared = Arc::new(metadata);
        }
        Ok(())
    }

    fn decode(&self, records: Vec<Record>) -> Result<Vec<StreamElement>, StoreError> {
        decode_all(&self.snapshot(), records)
    }
}

// Its names; the rules are those of `LaterNames`.
impl StreamLog {
    /// The current name.
    #[must_use]
    pub fn current_name(&self) -> String {
        self.snapshot().later_names.current(&self.name).to_owned()
    }

    /// All its names, oldest first.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let metadata = self.snapshot();
        let all = std::iter::once(&*self.name).chain(metadata.later_names.iter());
        all.map(str::to_owned).collect()
    }

    /// The names that it had before its current one, oldest first.
    #[must_use]
    pub fn former_names(&self) -> Vec<String> {
        let (mut names, current) = (self.names(), self.current_name());
        names.retain(|name| *name != current);
        names
    }

    /// Whether one of its names fits.
    #[must_use]
    pub fn has_name(&self, mut fits: impl FnMut(&str) -> bool) -> bool {
        fits(&self.name) || self.snapshot().later_names.iter().any(fits)
    }

    /// Gives it another name; returns when that is durable. Its elements, their numbers and its epochs stay
    /// as they are, and its former names stay its own.
    ///
    /// # Errors
    /// The name is invalid, it has had too many, or the log failed; then nothing has changed.
    pub fn rename(&self, name: &str) -> Result<(), StoreError> {
        check_name(name)?;
        let first = self.name.clone();
        self.alter(|metadata| Ok(metadata.later_names.set_current(&first, name)?))
    }

    /// Makes it no longer have a former name; returns when that is durable.
    ///
    /// # Errors
    /// The name is the first or the current one or not its own, or the log failed; then nothing has changed.
    pub fn forget_name(&self, name: &str) -> Result<(), StoreError> {
        let first = self.name.clone();
        self.alter(|metadata| Ok(metadata.later_names.forget(&first, name)?))
    }
}
