//! The receiving end of one stream of a link that receives documents: new elements are stored with
//! their origin, repeated ones are dropped, misfits become dead letters. In sessions,
//! [`chappe_link::Subscriber`] makes the same decisions.

use std::collections::VecDeque;
use std::sync::Arc;

use chappe_link::Progress;
use chappe_stream::{CodecError, Intake, Position, StoreError, StreamElement, StreamSchema};

use super::dead_letters::{own_schema, record_of};
use super::link::Link;
use super::replica::{from_flow, to_flow};
use super::serialization::{Elements, SchemaRef};
use super::{LinkError, LinkStart, LossReason};

pub(crate) use super::replica::{InletError, Pending, Replica, refused};

/// The receiving end of one stream.
pub(crate) struct Inlet {
    replica: Replica,
    progress: Progress,
    starts_at_end: bool,
}

/// A received element.
#[derive(Debug, Clone)]
pub(crate) struct Arrival {
    /// In the shape of its schema; a misfit is as it was received.
    pub(crate) element: StreamElement,
    /// The names of a misfit's values.
    pub(crate) names: Option<Vec<String>>,
    /// Why a misfit does not fit.
    pub(crate) why: String,
}

impl Arrival {
    /// An element that fits.
    pub(crate) fn fitting(element: StreamElement) -> Self {
        Self {
            element,
            names: None,
            why: String::new(),
        }
    }
}

impl Inlet {
    /// The receiving end of the origin's stream `name`. Determines how far the origin was read.
    ///
    /// # Errors
    /// Another link feeds the local stream, or an error of the log.
    pub(crate) async fn new(link: &Arc<Link>, name: &str) -> Result<Self, LinkError> {
        let (replica, last) = Replica::new(link, name).await?;
        let mut progress = Progress::default();
        progress.know(&replica.earlier()?);
        progress.resume(last.map(to_flow));
        Ok(Self {
            replica,
            progress,
            starts_at_end: link.config.start == LinkStart::New,
        })
    }

    /// Determines how far the origin was read, after the log has refused queued elements.
    ///
    /// # Errors
    /// Errors of the log.
    pub(crate) async fn resume(&mut self) -> Result<(), LinkError> {
        let last = self.replica.last_position().await?;
        self.progress.resume(last.map(to_flow));
        Ok(())
    }

    /// The local copy.
    pub(crate) fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The newest position that is stored, lost or queued.
    pub(crate) fn have(&self) -> Option<Position> {
        self.progress.last().map(from_flow)
    }

    /// The newest local position of each earlier epoch of the origin, the newest first.
    pub(crate) fn earlier(&self) -> Vec<Position> {
        self.progress.earlier().map(from_flow).collect()
    }

    /// Notes that everything up to this position is stored, lost or queued.
    fn reach(&mut self, at: Position) {
        self.progress.reach(to_flow(at));
    }

    /// The schema of this id and version, if the origin has announced it.
    pub(crate) fn schema(&self, schema: SchemaRef) -> Option<&StreamSchema> {
        self.replica.schema(schema)
    }

    /// As [`Replica::structure`].
    ///
    /// # Errors
    /// See [`InletError`].
    pub(crate) fn structure(
        &mut self,
        version: u32,
        schema: &StreamSchema,
    ) -> Result<(), InletError> {
        self.replica.structure(version, schema)
    }

    /// Appends elements of one version, in the order of their positions at the origin. Gaps between
    /// them count as lost.
    ///
    /// # Errors
    /// See [`InletError`].
    pub(crate) fn take_elements(
        &mut self,
        schema: SchemaRef,
        elements: Vec<Arrival>,
        pending: &mut VecDeque<Pending>,
    ) -> Result<(), InletError> {
        let intake = self.replica.intake_of(schema).cloned();
        let intake = intake.ok_or(InletError::UnknownSchema(schema))?;
        let mut batch: Vec<StreamElement> = Vec::with_capacity(elements.len());
        let (mut repeated, now) = (0, self.replica.now());
        for arrival in elements {
            let Arrival {
                mut element,
                names,
                why,
            } = arrival;
            let origin = std::mem::take(&mut element.position);
            element.receive_time = now;
            let before = batch.last().and_then(|last| last.origin).or(self.have());
            match before {
                Some(have) if have.epoch == origin.epoch && origin.sequence <= have.sequence => {
                    repeated += 1;
                    continue;
                }
                // After a crash an origin sends its latest elements again, across the epochs that
                // its crashes have started.
                Some(_) if self.progress.repeated(to_flow(origin), 1) > 0 => {
                    repeated += 1;
                    continue;
                }
                Some(have) if origin.sequence == have.sequence + 1 => {}
                // Numbers continue from one epoch to the next, unless the origin was rolled back.
                Some(have) if origin.sequence > have.sequence => {
                    self.append(&intake, &mut batch, pending)?;
                    let sequence = have.sequence + 1;
                    let from = Position { sequence, ..origin };
                    self.lost(from, origin.sequence, LossReason::Skipped)?;
                }
                Some(have) => {
                    self.append(&intake, &mut batch, pending)?;
                    self.rollback(have, None, origin)?;
                }
                None => {}
            }
            if let Some(names) = names {
                self.append(&intake, &mut batch, pending)?;
                let own = own_schema(&names, &element.values);
                let (time, record) = (element.source_time, record_of(&element));
                let why = CodecError::Malformed(why);
                self.replica
                    .letter(origin, own, time, record, &why, pending)?;
                self.reach(origin);
                continue;
            }
            element.origin = Some(origin);
            batch.push(element);
        }
        self.append(&intake, &mut batch, pending)?;
        if repeated > 0 {
            let replica = &self.replica;
            replica.count(|stream| stream.status.repeated += repeated);
        }
        Ok(())
    }

    /// Stores elements that an operator of the origin sends again. They may follow newer ones, so
    /// they do not change how far the origin was read.
    ///
    /// # Errors
    /// See [`InletError`]; if one does not fit, none is stored.
    pub(crate) async fn store_resent(&mut self, elements: Elements) -> Result<(), InletError> {
        let intake = self.replica.intake_of(elements.schema).cloned();
        let intake = intake.ok_or(InletError::UnknownSchema(elements.schema))?;
        let shaped = elements.shape(intake.schema());
        let mut shaped = shaped.map_err(|error| InletError::Misfit(error.to_string()))?;
        let now = self.replica.now();
        for element in &mut shaped {
            element.origin = None;
            element.receive_time = now;
        }
        self.replica.append_resent(&intake, &shaped).await
    }

    /// Notes the newest number at the origin, if the origin has just reported one.
    pub(crate) fn note_newest(&self, last: Option<u64>) {
        if let Some((last, have)) = last.zip(self.have()) {
            let behind = last.saturating_sub(have.sequence);
            self.replica
                .count(|stream| stream.status.lag_elements = Some(behind));
        }
    }

    /// Whether the stream starts at its end and no element of it is here yet.
    pub(crate) fn begins_at_end(&self) -> bool {
        self.have().is_none() && self.starts_at_end
    }

    /// Starts the stream at its end, after this position: a link that reconnects before the first
    /// element resumes there.
    ///
    /// # Errors
    /// Errors of the log.
    pub(crate) fn begin(&mut self, at: Position) -> Result<(), InletError> {
        if self.have().is_none() {
            self.replica.remember(at)?;
            self.reach(at);
        }
        Ok(())
    }

    /// Counts the numbers up to `next` of this epoch as lost, once it is certain that they are
    /// counted only once, even if the process ends before the next element.
    ///
    /// # Errors
    /// See [`InletError`]; then nothing is counted, and the call can be repeated.
    pub(crate) fn lost(
        &mut self,
        from: Position,
        next: u64,
        reason: LossReason,
    ) -> Result<(), InletError> {
        if let Some(first) = self.progress.first_unread(to_flow(from), next) {
            self.replica.lost(from_flow(first), next, reason)?;
            let sequence = next.saturating_sub(1);
            self.reach(Position { sequence, ..from });
        }
        Ok(())
    }

    /// Notes that the origin was rolled back and continues at `next`. An origin that is killed
    /// before it has stored this report sends it again; the repetition has no effect.
    ///
    /// # Errors
    /// See [`InletError`]; then nothing is reported, and the call can be repeated.
    pub(crate) fn rollback(
        &mut self,
        have: Position,
        kept: Option<Position>,
        next: Position,
    ) -> Result<(), InletError> {
        if self.progress.went_back_to(to_flow(next)) {
            return Ok(());
        }
        self.replica.rollback(have, kept, next)?;
        let sequence = next.sequence.saturating_sub(1);
        self.reach(Position { sequence, ..next });
        Ok(())
    }

    fn append(
        &mut self,
        intake: &Intake,
        batch: &mut Vec<StreamElement>,
        pending: &mut VecDeque<Pending>,
    ) -> Result<(), InletError> {
        let last = batch.last().and_then(|last| last.origin);
        match self.replica.append_elements(intake, batch, pending) {
            Err(error) if error.is_too_large() => {
                return self.append_one_by_one(intake, std::mem::take(batch), pending);
            }
            other => other?,
        }
        if let Some(last) = last {
            self.reach(last);
        }
        Ok(())
    }

    /// Appends a batch that is too large one by one: an element too large for a record becomes a
    /// dead letter.
    fn append_one_by_one(
        &mut self,
        intake: &Intake,
        batch: Vec<StreamElement>,
        pending: &mut VecDeque<Pending>,
    ) -> Result<(), InletError> {
        for element in batch {
            let Some(origin) = element.origin else {
                continue;
            };
            let mut alone = vec![element];
            if let Err(error) = self.replica.append_elements(intake, &mut alone, pending) {
                let InletError::Link(LinkError::Store(StoreError::Codec(too_large))) = &error
                else {
                    return Err(error);
                };
                let (time, record) = (alone[0].source_time, record_of(&alone[0]));
                let schema = intake.schema().clone();
                self.replica
                    .letter(origin, schema, time, record, too_large, pending)?;
            }
            self.reach(origin);
        }
        Ok(())
    }
}
