//! The copy of one stream of an origin: its log, the versions of its schema, its dead letters, and what
//! the node is told of it. It stores what it is given; whether that is new is the caller's to know
//! ([`chappe_link::Progress`]).

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use chappe_link::EPOCHS_MAX;
use chappe_log::Appended;
use chappe_stream::{
    CodecError, Epoch, Hole, Intake, IntakeError, OpeningIntake, Position, RawRecords,
    SCHEMA_VERSIONS_MAX, StoreError, StreamElement, StreamLog, StreamSchema, StreamStore,
    Timestamp,
};

use super::dead_letters::{Letter, Reason};
use super::feeding::Claim;
use super::link::{Link, StreamLive};
use super::serialization::{SchemaId, SchemaRef};
use super::{Arrivals, DeadLetterReason, LinkError, LinkNotice, LossReason};

/// Versions of the origin's schema that are remembered; reason: an origin has no more, and over a
/// session it announces each once.
const VERSIONS_MAX: usize = SCHEMA_VERSIONS_MAX;

/// Longest wait until the log has stored what was queued before; reason: a disk that works is quicker.
const SETTLE_LIMIT: Duration = Duration::from_secs(10);

/// The copy of one stream.
pub(crate) struct Replica {
    link: Arc<Link>,
    live: Arc<Mutex<StreamLive>>,
    /// Is told of what comes, once the stream is opened.
    arrivals: Option<Arc<dyn Arrivals>>,
    /// Its name at the origin.
    name: String,
    /// Its name here.
    local: String,
    /// No other link feeds it.
    claim: Claim,
    log: Option<StreamLog>,
    versions: VecDeque<Version>,
    /// The version that is being defined here.
    defining: Option<(SchemaRef, OpeningIntake)>,
    /// The last position, if no element in the log names it: it is stored again when the stream is opened.
    unnamed: Option<Position>,
    /// Behind a batch that the log refused after it was queued, it takes no other: see
    /// [`Intake::append`].
    taken_back: u64,
}

/// One version of the origin's schema.
struct Version {
    at_origin: SchemaRef,
    intake: Intake,
}

/// What is queued in the log, in order.
pub(crate) enum Pending {
    /// Elements up to this one.
    Stored(Position, Appended),
    /// One dead letter.
    Letter(Position, DeadLetterReason, Appended),
}

/// Why elements were not taken.
#[derive(Debug)]
pub(crate) enum InletError {
    /// The log's queue is full: give the same again when so many bytes fit.
    Busy(usize),
    /// The stream, or the version of its schema, is not safe yet: give the same again a little later.
    Defining,
    /// The origin did not say what its elements look like.
    UnknownSchema(SchemaRef),
    /// What is sent again still does not fit.
    Misfit(String),
    /// The log, or the node, does not take them.
    Link(LinkError),
}

impl InletError {
    /// Whether the log refused what it had queued: then it is to be found out how far the origin was
    /// read.
    pub(crate) fn is_taken_back(&self) -> bool {
        use chappe_log::Error::{Full, Retracted};
        let Self::Link(LinkError::Store(StoreError::Log(error))) = self else {
            return false;
        };
        matches!(error, Full { .. } | Retracted { .. })
    }

    /// Whether one element is too large for a record, or all of them for a batch.
    pub(crate) fn is_too_large(&self) -> bool {
        let Self::Link(LinkError::Store(error)) = self else {
            return false;
        };
        matches!(
            error,
            StoreError::Codec(CodecError::TooLarge(_))
                | StoreError::Log(chappe_log::Error::TooLarge { .. })
        )
    }
}

impl From<LinkError> for InletError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::Store(StoreError::Log(chappe_log::Error::QueueFull { bytes, .. })) => {
                Self::Busy(bytes)
            }
            LinkError::Host(error) if error.transient => Self::Defining,
            other => Self::Link(other),
        }
    }
}

impl From<StoreError> for InletError {
    fn from(error: StoreError) -> Self {
        LinkError::Store(error).into()
    }
}

impl std::fmt::Display for InletError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Busy(_) => f.write_str("the log's queue is full"),
            Self::Defining => f.write_str("the stream is being defined"),
            Self::UnknownSchema(schema) => {
                let (id, version) = (schema.id, schema.version);
                write!(f, "schema {id} (version {version}) was never announced")
            }
            Self::Misfit(why) => f.write_str(why),
            Self::Link(error) => error.fmt(f),
        }
    }
}

impl Replica {
    /// The copy of the stream that the origin calls `name`, and how far the origin was read.
    ///
    /// # Errors
    /// Another link feeds the stream here, or an error of the log.
    pub(crate) async fn new(
        link: &Arc<Link>,
        name: &str,
    ) -> Result<(Self, Option<Position>), LinkError> {
        let local = link.config.local_name(name);
        link.shared.host.may_feed(&link.config.name, &local)?;
        let claim = Claim::new(&link.shared.feeding, &link.feeder, &local).await?;
        let log = link.shared.store.existing(&local)?;
        let mut replica = Self {
            link: link.clone(),
            live: link.stream(name),
            arrivals: None,
            name: name.to_owned(),
            local,
            claim,
            log,
            versions: VecDeque::new(),
            defining: None,
            unnamed: None,
            taken_back: 0,
        };
        let last = replica.last_position().await?;
        Ok((replica, last))
    }

    /// Finds out how far the origin was read: at the beginning, and when the log has refused what was
    /// queued.
    ///
    /// # Errors
    /// Errors of the log.
    pub(crate) async fn last_position(&mut self) -> Result<Option<Position>, LinkError> {
        self.taken_back = self.link.shared.store.store().retractions();
        self.wait_until_settled().await?;
        let letters = &self.link.letters;
        letters.count_stored()?;
        let stored = self.log.as_ref().and_then(StreamLog::newest_origin);
        // Of a stream that is not there yet; and an older program remembered all positions there.
        let letter = letters.newest_origin(&self.local)?;
        let last = match (stored, letter) {
            (Some(stored), Some(letter)) if stored.epoch == letter.epoch => {
                Some(stored.max(letter))
            }
            (None, letter) => letter,
            (stored, _) => stored,
        };
        self.unnamed = last;
        self.count(|stream| stream.status.stored = last);
        Ok(last)
    }

    /// The newest element here of each earlier epoch of the origin, the newest first: the origin may be
    /// rolled back to one of them.
    ///
    /// # Errors
    /// Errors of the log.
    pub(crate) fn earlier(&self) -> Result<Vec<chappe_flow::Position>, LinkError> {
        let Some(log) = &self.log else {
            return Ok(Vec::new());
        };
        let earlier = log.earlier_origins(EPOCHS_MAX)?;
        Ok(earlier.into_iter().map(to_flow).collect())
    }

    /// Waits until nothing is queued in the log.
    async fn wait_until_settled(&self) -> Result<(), LinkError> {
        if let Some(log) = &self.log {
            settled(log.log(), &self.local).await?;
        }
        if let Some(log) = self.link.letters.log() {
            settled(log, "dead letters").await?;
        }
        Ok(())
    }

    /// The node's streams: where there is room, or none.
    pub(crate) fn store(&self) -> StreamStore {
        self.link.shared.store.clone()
    }

    /// Waits until everything up to the newest element is stored, also what was queued for a caller who is
    /// gone.
    ///
    /// # Errors
    /// The log has refused some of it.
    pub(crate) async fn all_stored(&self) -> Result<(), InletError> {
        self.wait_until_settled().await?;
        if self.link.shared.store.store().retractions() == self.taken_back {
            return Ok(());
        }
        let stream = self.local.clone();
        Err(StoreError::Log(chappe_log::Error::Retracted { stream }).into())
    }

    /// Its name at the origin.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The schema that is known already, so that the origin need not say it.
    pub(crate) fn known(&self) -> Option<StreamSchema> {
        self.log.as_ref().map(StreamLog::schema)
    }

    /// The schema of this id and version, if the origin has announced it.
    pub(crate) fn schema(&self, schema: SchemaRef) -> Option<&StreamSchema> {
        Some(self.intake_of(schema)?.schema())
    }

    pub(super) fn intake_of(&self, schema: SchemaRef) -> Option<&Intake> {
        let mut versions = self.versions.iter().rev();
        let found = versions.find(|version| version.at_origin == schema);
        found.map(|version| &version.intake)
    }

    /// The origin says what its elements look like from here on: that becomes the current schema here.
    ///
    /// # Errors
    /// See [`InletError`]; after [`InletError::Busy`] and [`InletError::Defining`] the same may be said
    /// again.
    pub(crate) fn structure(
        &mut self,
        version: u32,
        schema: &StreamSchema,
    ) -> Result<(), InletError> {
        self.learn(version, schema)?;
        let intake = self.intake(version)?;
        self.make_current(&intake)
    }

    /// The origin says what elements of a version look like. It becomes the current one here with the
    /// first new element of it: damaged elements that are sent again may be of an older one.
    ///
    /// # Errors
    /// As [`Replica::structure`].
    pub(crate) fn learn(&mut self, version: u32, schema: &StreamSchema) -> Result<(), InletError> {
        let at_origin = SchemaRef {
            id: SchemaId::of(schema),
            version,
        };
        if self.schema(at_origin).is_some() {
            self.count(|stream| stream.status.refusal = None);
            return Ok(());
        }
        let intake = self.define(at_origin, schema)?;
        self.versions
            .retain(|known| known.at_origin.version != version);
        if self.versions.len() >= VERSIONS_MAX {
            self.versions.pop_front();
        }
        self.versions.push_back(Version { at_origin, intake });
        self.count(|stream| stream.status.refusal = None);
        Ok(())
    }

    /// What takes elements of this schema. Without waiting for the disk: elements of the version come
    /// only when its definition is safe.
    fn define(
        &mut self,
        at_origin: SchemaRef,
        schema: &StreamSchema,
    ) -> Result<Intake, InletError> {
        let begun = self.defining.take();
        let mut opening = match begun.filter(|(version, _)| *version == at_origin) {
            Some((_, opening)) => opening,
            None => {
                let opened = self.log.as_ref().filter(|_| self.arrivals.is_some());
                let log = match opened {
                    Some(log) if !log.schema().equals_but_descriptions(schema) => log.clone(),
                    _ => self.open(schema)?,
                };
                log.intake(schema)?
            }
        };
        let mut nobody = Context::from_waker(Waker::noop());
        match Pin::new(&mut opening).poll(&mut nobody) {
            Poll::Ready(intake) => Ok(intake?),
            Poll::Pending => {
                self.defining = Some((at_origin, opening));
                Err(InletError::Defining)
            }
        }
    }

    /// Opens the stream here with this schema as its current one.
    fn open(&mut self, schema: &StreamSchema) -> Result<StreamLog, InletError> {
        let link = &self.link;
        let level = link.config.level.map(Into::into);
        let host = &link.shared.host;
        let opened = host.open(&link.config.name, &self.local, schema, level);
        let opened = opened.map_err(LinkError::Host)?;
        // Where a stream is begun was remembered among the letters before it was there.
        if let Some(at) = self
            .unnamed
            .filter(|_| opened.log.newest_origin().is_none())
        {
            drop(opened.log.set_origin(self.taken_back, at)?);
        }
        self.log = Some(opened.log.clone());
        self.arrivals = Some(opened.arrivals);
        Ok(opened.log)
    }

    /// This version becomes the current one here.
    fn make_current(&mut self, intake: &Intake) -> Result<(), InletError> {
        if !intake.is_current() {
            self.open(intake.schema())?;
        }
        Ok(())
    }

    /// Consecutive new records of one epoch, as the origin's log has them. Adds to `pending` what is
    /// queued in the log. After [`InletError::Busy`] and [`InletError::Defining`] those that are
    /// not in `pending` may be given again.
    ///
    /// # Errors
    /// See [`InletError`].
    pub(crate) fn append_records<'a>(
        &mut self,
        first: Position,
        version: u32,
        records: impl Iterator<Item = (i64, &'a [u8])>,
        pending: &mut VecDeque<Pending>,
    ) -> Result<(), InletError> {
        let records: Vec<(Timestamp, &[u8])> = records
            .map(|(time, bytes)| (Timestamp(time), bytes))
            .collect();
        let mut first = first;
        let mut rest = records.as_slice();
        while !rest.is_empty() {
            let intake = self.intake(version)?;
            self.make_current(&intake)?;
            let taken_back = self.taken_back;
            let outcome = intake.append(taken_back, first, version, rest.iter().copied());
            let good = match outcome {
                Ok(appended) => {
                    self.queued(first, rest, appended, pending);
                    return Ok(());
                }
                Err(StoreError::Intake(IntakeError { index, error })) => {
                    if index > 0 {
                        let good = rest[..index].iter().copied();
                        let appended = intake.append(taken_back, first, version, good)?;
                        self.queued(first, &rest[..index], appended, pending);
                    }
                    let sequence = first.sequence + index as u64;
                    let at = Position { sequence, ..first };
                    let (time, record) = rest[index];
                    let schema = intake.schema().clone();
                    self.letter(at, schema, time, record.to_vec(), &error, pending)?;
                    index + 1
                }
                Err(error) => return Err(error.into()),
            };
            first.sequence += good as u64;
            rest = &rest[good..];
        }
        Ok(())
    }

    /// Elements of one version, each with its origin.
    ///
    /// # Errors
    /// See [`InletError`].
    pub(super) fn append_elements(
        &mut self,
        intake: &Intake,
        batch: &mut Vec<StreamElement>,
        pending: &mut VecDeque<Pending>,
    ) -> Result<(), InletError> {
        let Some((last, newest)) = batch
            .last()
            .and_then(|last| Some((last.origin?, last.source_time)))
        else {
            return Ok(());
        };
        self.make_current(intake)?;
        let appended = intake.append_elements(self.taken_back, batch)?;
        self.note(newest, batch.len() as u64);
        pending.push_back(Pending::Stored(last, appended));
        batch.clear();
        Ok(())
    }

    /// Elements that do not say how far the origin was read; returns when they are stored.
    ///
    /// # Errors
    /// See [`InletError`].
    pub(super) async fn append_again(
        &self,
        intake: &Intake,
        elements: &[StreamElement],
    ) -> Result<(), InletError> {
        let count = elements.len() as u64;
        let taken_back = self.link.shared.store.store().retractions();
        let appended = intake.append_elements(taken_back, elements)?;
        appended.await.map_err(StoreError::from)?;
        self.count(|stream| stream.status.counts.received += count);
        Ok(())
    }

    /// So many bytes of it are here and not stored.
    pub(crate) fn holds(&self, bytes: u64) {
        let window = self.link.config.limits.stream_window_bytes;
        self.count(|stream| {
            stream.status.held_bytes = bytes;
            stream.status.occupation = (bytes as f64 / window as f64).min(1.0);
        });
    }

    /// Queues that the origin was read up to here, behind all that is queued in the log.
    ///
    /// # Errors
    /// See [`InletError`].
    pub(crate) fn remember(&mut self, at: Position) -> Result<(), InletError> {
        match &self.log {
            Some(log) => drop(log.set_origin(self.taken_back, at)?),
            None => drop(self.link.letters.put_began(&self.local, at)?),
        }
        self.unnamed = Some(at);
        Ok(())
    }

    fn queued(
        &mut self,
        first: Position,
        records: &[(Timestamp, &[u8])],
        appended: Appended,
        pending: &mut VecDeque<Pending>,
    ) {
        let Some((newest, _)) = records.last() else {
            return;
        };
        let count = records.len() as u64;
        let sequence = first.sequence + count - 1;
        let last = Position { sequence, ..first };
        self.note(*newest, count);
        pending.push_back(Pending::Stored(last, appended));
    }

    /// So many elements are on their way to the log.
    fn note(&mut self, newest: Timestamp, count: u64) {
        self.unnamed = None;
        if let Some(arrivals) = &self.arrivals {
            arrivals.came(count, newest);
        }
        let late = self.link.shared.host.now().0.saturating_sub(newest.0) as f64 / 1e9;
        self.count(|stream| {
            stream.meter.add(count);
            stream.status.counts.received += count;
            stream.status.lag_s = late.max(0.0);
        });
    }

    /// An element that does not fit becomes a dead letter.
    ///
    /// # Errors
    /// See [`InletError`].
    pub(super) fn letter(
        &mut self,
        at: Position,
        schema: StreamSchema,
        source_time: Timestamp,
        record: Vec<u8>,
        error: &CodecError,
        pending: &mut VecDeque<Pending>,
    ) -> Result<(), InletError> {
        let (reason, shown) = match error {
            CodecError::TooLarge(_) => (Reason::TooLarge, DeadLetterReason::TooLarge),
            _ if chappe_stream::decode_element(&record, at, source_time).is_ok() => {
                (Reason::Schema, DeadLetterReason::Schema)
            }
            _ => (Reason::Unreadable, DeadLetterReason::Unreadable),
        };
        let appended = self.link.letters.put(Letter {
            stream: self.local.clone(),
            origin: Some(at),
            reason,
            text: error.to_string(),
            received: self.link.shared.host.now(),
            source_time,
            schema,
            record,
        })?;
        // The letter says so too, as long as it is kept; if there is no room for this it must do.
        let _ = self.remember(at);
        self.count(|stream| {
            let refused = &mut stream.status.counts.refused;
            *refused.entry(shown.as_str().to_owned()).or_default() += 1;
        });
        let host = &self.link.shared.host;
        host.dead_letter(&self.local, shown, at, source_time);
        host.notice(LinkNotice::DeadLetter {
            link: self.link.config.name.clone(),
            stream: self.local.clone(),
            why: error.to_string(),
        });
        pending.push_back(Pending::Letter(at, shown, appended));
        Ok(())
    }

    /// The damaged numbers of its stream, to be asked of the origin.
    pub(crate) fn holes(&self) -> Vec<Hole> {
        let holes = self.log.as_ref().map(StreamLog::copied_holes);
        holes.and_then(Result::ok).unwrap_or_default()
    }

    /// The origin has sent damaged records again; how many were put back.
    pub(crate) fn put_back<'a>(
        &self,
        first: Position,
        records: impl Iterator<Item = (i64, &'a [u8])>,
    ) -> Result<u64, InletError> {
        let holes = self.holes();
        let records: Vec<(Timestamp, &[u8])> = records
            .map(|(time, bytes)| (Timestamp(time), bytes))
            .collect();
        let Some((_, record)) = records.first() else {
            return Ok(0);
        };
        let hole = holes.iter().find(|hole| {
            let end = hole.origin.sequence + hole.count;
            hole.origin.epoch == first.epoch
                && (hole.origin.sequence..end).contains(&first.sequence)
        });
        let Some(hole) = hole else { return Ok(0) };
        let version = chappe_stream::record_version(record).map_err(StoreError::from)?;
        let passed = first.sequence - hole.origin.sequence;
        let fits = (hole.count - passed).min(records.len() as u64);
        let sequence = hole.here.sequence + passed;
        let here = Position {
            sequence,
            ..hole.here
        };
        let intake = self.intake(version)?;
        let records = records[..fits as usize].iter().copied();
        drop(intake.put_back(here, first, version, records)?);
        Ok(fits)
    }

    /// What this copy has of the origin's damaged numbers.
    pub(crate) fn read_copied(&self, from: Position, count: u64, bytes: u64) -> Option<RawRecords> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let raw = self.log.as_ref()?.read_copied(from, count, bytes).ok()?;
        let mut versions = self.versions.iter().rev();
        let version = versions.find(|known| known.intake.version() == raw.schema_version)?;
        raw.with_version(version.at_origin.version).ok()
    }

    /// The numbers up to `next` of this epoch never come. They are counted when it is certain that they
    /// are passed over only once, whatever ends before the next element.
    ///
    /// # Errors
    /// See [`InletError`]; then nothing is counted, and the call may be repeated.
    pub(crate) fn lost(
        &mut self,
        from: Position,
        next: u64,
        reason: LossReason,
    ) -> Result<(), InletError> {
        let sequence = next.saturating_sub(1);
        self.remember(Position { sequence, ..from })?;
        let elements = self.claim.count_lost(to_flow(from), next);
        if elements > 0 {
            self.report_lost(reason, elements, (from, next));
        }
        Ok(())
    }

    /// So many elements will never come.
    fn report_lost(&self, reason: LossReason, elements: u64, numbers: (Position, u64)) {
        let link = self.link.config.name.clone();
        self.count(|stream| {
            let lost = &mut stream.status.counts.lost;
            let count: &mut u64 = lost.entry(reason.as_str().to_owned()).or_default();
            *count = count.saturating_add(elements);
        });
        let host = &self.link.shared.host;
        host.lost(&link, &self.local, reason, elements, numbers);
        host.notice(LinkNotice::Lost {
            link,
            stream: self.local.clone(),
            reason,
            elements,
        });
    }

    /// The origin was rolled back, and continues at `next`.
    ///
    /// # Errors
    /// See [`InletError`]; then nothing is reported, and the call may be repeated.
    pub(crate) fn rollback(
        &mut self,
        have: Position,
        kept: Option<Position>,
        next: Position,
    ) -> Result<(), InletError> {
        let sequence = next.sequence.saturating_sub(1);
        let before = Position { sequence, ..next };
        self.remember(before)?;
        self.count(|stream| stream.status.counts.rollbacks += 1);
        self.link.shared.host.notice(LinkNotice::Rollback {
            link: self.link.config.name.clone(),
            stream: self.local.clone(),
            have: have.to_string(),
            kept: kept.map(|kept| kept.to_string()),
            next: next.to_string(),
        });
        Ok(())
    }

    /// Elements up to this one are stored at their level.
    pub(crate) fn stored(&self, position: Position, count: u64) {
        self.claim.stored(to_flow(position));
        self.count(|stream| {
            stream.status.stored = Some(position);
            stream.status.counts.acknowledged += count;
        });
    }

    /// The origin, or this node, refuses the stream.
    pub(crate) fn refused(&self, why: &str) {
        refused(&self.link, &self.name, why);
    }

    /// Changes what is known of it.
    pub(crate) fn count(&self, change: impl FnOnce(&mut StreamLive)) {
        change(&mut self.live.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The time of this node, at which elements are received.
    pub(super) fn now(&self) -> Timestamp {
        self.link.shared.host.now()
    }

    fn intake(&self, version: u32) -> Result<Intake, InletError> {
        let mut versions = self.versions.iter().rev();
        let found = versions.find(|known| known.at_origin.version == version);
        let intake = found.map(|known| known.intake.clone().received_at(self.now()));
        intake.ok_or(InletError::UnknownSchema(SchemaRef {
            version,
            ..SchemaRef::default()
        }))
    }
}

/// Waits until what was given to the log before is stored, or never will be: the newest element says
/// where the link goes on only then.
async fn settled(log: &chappe_log::Stream, name: &str) -> Result<(), LinkError> {
    let settled = tokio::time::timeout(SETTLE_LIMIT, log.settled()).await;
    settled.map_err(|_| {
        let why = format!("the log does not store what was queued for {name} before");
        LinkError::Unsupported(why)
    })
}

/// The origin, or this node, refuses a stream; told once.
pub(crate) fn refused(link: &Link, name: &str, why: &str) {
    let before = {
        let stream = link.stream(name);
        let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.status.refusal.replace(why.to_owned())
    };
    if before.as_deref() != Some(why) {
        link.shared.host.notice(LinkNotice::Refused {
            link: link.config.name.clone(),
            stream: name.to_owned(),
            why: why.to_owned(),
        });
    }
}

pub(crate) fn to_flow(position: Position) -> chappe_flow::Position {
    chappe_flow::Position {
        epoch: position.epoch.0,
        sequence: position.sequence,
    }
}

pub(crate) fn from_flow(position: chappe_flow::Position) -> Position {
    Position {
        epoch: Epoch(position.epoch),
        sequence: position.sequence,
    }
}
