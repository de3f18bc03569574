//! Reads a topic into a stream: each element once, and only after its predecessor.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::{
    DdsError, Durability, ElementType, Ended, Inlet, InletConfig, Outgoing, Outlet, OutletConfig,
    Progress, Qos, Sample, Stalled, Stored, Supervisor,
};
use chappe_flow::pacer::Choice;
use chappe_stream::{Position, StreamElement, StreamSchema, Timestamp};
use tokio::sync::watch;

use super::config::stored_topic;
use super::reached::Arrival;
use super::{Reached, Subscription, SubscriptionStatus, Topics, lock, show};

/// Elements that are returned together.
const BATCH: usize = 256;

/// A topic that is read.
pub struct Subscriber {
    topics: Arc<Topics>,
    /// Kept alive by those that use it.
    _supervisor: Arc<Supervisor>,
    topic: String,
    /// The name of the stream at its source.
    source: String,
    status: Arc<Mutex<SubscriptionStatus>>,
    of: ElementType,
    inlet: Inlet,
    /// The writer of confirmations.
    confirmations: Outlet,
    progress: watch::Receiver<Progress>,
    generation: u64,
    /// The tag of the last confirmation.
    tag: u64,
    must_confirm: bool,
    /// How far elements were returned.
    reached: Reached,
    /// Whether elements may have been published while nothing was accepted here.
    may_miss: bool,
    /// Elements that are missing, since they were last taken.
    missing: u64,
    stored: Option<Position>,
    /// The batches that were returned and are not stored yet: the newest element, and their number.
    under_way: VecDeque<(Option<Position>, u64)>,
    now: fn() -> Timestamp,
}

impl Topics {
    /// Reads a topic for the stream of this name and schema; everything up to `reached` is in its log. `now` is the wall
    /// clock.
    ///
    /// # Errors
    /// A value is invalid, or there are too many topics.
    pub fn subscriber(
        self: &Arc<Self>,
        subscription: Subscription,
        stream: &str,
        schema: &StreamSchema,
        reached: Reached,
        now: fn() -> Timestamp,
    ) -> Result<Subscriber, DdsError> {
        let stored = reached.newest();
        let source = subscription.source.clone();
        let source = source.unwrap_or_else(|| stream.to_owned());
        let of = ElementType::new(&source, schema.clone()).map_err(|error| DdsError::Qos {
            key: "fields",
            why: error.to_string(),
        })?;
        let topic = subscription.dds_topic(&of);
        let supervisor = self.supervisor()?;
        let confirmations = supervisor.writer(OutletConfig {
            topic: stored_topic(&topic.name),
            // Only the newest confirmation counts, also for late readers.
            qos: Qos {
                durability: Durability::TransientLocal,
                keep_last: 1,
                ..Qos::default()
            },
            readers: 0,
            stalled: Stalled::Pass,
            stalled_after: Duration::from_secs(10),
            pacer: Choice::Flood,
        })?;
        let inlet = supervisor.reader(InletConfig {
            topic,
            qos: Qos {
                fields: of.schema().fields.clone(),
                ..subscription.qos
            },
        })?;
        let status = SubscriptionStatus {
            topic: subscription.topic.clone(),
            stream: stream.to_owned(),
            stored,
            ..SubscriptionStatus::default()
        };
        Ok(Subscriber {
            topics: self.clone(),
            _supervisor: supervisor,
            topic: subscription.topic,
            source,
            status: show(&self.subscriptions, status),
            of,
            inlet,
            progress: confirmations.progress(),
            confirmations,
            generation: 0,
            tag: 0,
            must_confirm: stored.is_some(),
            reached,
            may_miss: true,
            missing: 0,
            stored,
            under_way: VecDeque::new(),
            now,
        })
    }
}

impl Subscriber {
    /// The next elements, which carry their positions at the source. Dropping the future loses nothing. It also
    /// sends confirmations, so it must be called while elements are stored.
    ///
    /// # Errors
    /// The participant has ended.
    pub async fn next(&mut self) -> Result<Vec<StreamElement>, Ended> {
        loop {
            let confirmation = self.confirmation();
            let has_confirmation = confirmation.is_some();
            tokio::select! {
                sample = self.inlet.receive() => {
                    let batch = self.batch(sample.ok_or(Ended)?);
                    if !batch.is_empty() {
                        self.under_way.push_back((self.reached.newest(), batch.len() as u64));
                        return Ok(batch);
                    }
                }
                sent = confirm(&self.confirmations, confirmation), if has_confirmation => {
                    sent?;
                    self.must_confirm = false;
                }
                changed = self.progress.changed() => {
                    changed.map_err(|_| Ended)?;
                    let now = *self.progress.borrow_and_update();
                    if now.generation != self.generation {
                        self.generation = now.generation;
                        self.must_confirm = self.stored.is_some();
                    }
                }
            }
        }
    }

    /// How far elements were returned, by their positions at the source.
    #[must_use]
    pub fn reached(&self) -> &Reached {
        &self.reached
    }

    /// The number of elements that the source does not publish again, since the last call: it refused them, or delivered
    /// them to others while this reader was away.
    pub fn take_missing(&mut self) -> u64 {
        std::mem::take(&mut self.missing)
    }

    /// The first batch that was returned and not stored yet is stored: the source is told.
    pub fn stored(&mut self) {
        let Some((newest, count)) = self.under_way.pop_front() else {
            return;
        };
        let mut status = lock(&self.status);
        status.received += count;
        if newest != self.stored {
            self.stored = newest;
            self.must_confirm = true;
            status.stored = newest;
        }
    }

    /// The confirmation to send, if there is a new one.
    fn confirmation(&mut self) -> Option<Outgoing> {
        let through = self
            .stored
            .filter(|_| self.must_confirm && self.generation > 0)?;
        self.tag += 1;
        let stored = Stored {
            stream: self.source.clone(),
            reader: self.topics.key.clone(),
            through,
        };
        Some(Outgoing {
            generation: self.generation,
            tag: self.tag,
            payload: stored.payload(),
        })
    }

    /// The elements of a received sample and of those queued after it.
    fn batch(&mut self, first: Sample) -> Vec<StreamElement> {
        let mut batch = Vec::new();
        let mut next = Some(first);
        while let Some(sample) = next {
            if let Some(element) = self.read(&sample) {
                batch.push(element);
            }
            next = match batch.len() < BATCH {
                true => self.inlet.try_receive(),
                false => None,
            };
        }
        batch
    }

    /// Converts a sample to an element, if it is to be stored.
    fn read(&mut self, sample: &Sample) -> Option<StreamElement> {
        if let Some(differences) = &sample.differences {
            lock(&self.status).other_fields += 1;
            let detail = format!("from {}: {differences}", sample.writer);
            (self.topics.reports.dropped)("other fields", &self.topic, detail);
            return None;
        }
        let decoded = match self.of.decode(&sample.payload) {
            Ok(decoded) => decoded,
            Err(error) => {
                lock(&self.status).malformed += 1;
                let detail = format!("from {}: {error}", sample.writer);
                (self.topics.reports.dropped)("malformed", &self.topic, detail);
                return None;
            }
        };
        let mut status = lock(&self.status);
        if decoded.stream != self.source {
            status.foreign += 1;
            return None;
        }
        let mut element = decoded.element;
        let at = std::mem::take(&mut element.position);
        element.receive_time = (self.now)();
        // An element without a number cannot be deduplicated.
        if at.sequence == 0 {
            return Some(element);
        }
        match self.reached.arrive(at, decoded.previous) {
            Arrival::Repeated => {
                status.repeated += 1;
                drop(status);
                // The source sends it again because it missed the confirmation.
                self.must_confirm = self.stored.is_some();
                return None;
            }
            Arrival::Early => {
                status.early += 1;
                self.may_miss = true;
                return None;
            }
            Arrival::Rollback => status.rollbacks += 1,
            Arrival::Next { first_missing } => {
                drop(status);
                self.note_missing(first_missing, at);
            }
        }
        self.may_miss = false;
        element.origin = Some(at);
        Some(element)
    }

    /// Notes elements that were published while this reader was away.
    fn note_missing(&mut self, first: u64, at: Position) {
        if first < at.sequence && self.may_miss {
            self.missing += at.sequence - first;
            let last = at.sequence - 1;
            (self.topics.reports.notice)(format!(
                "topic {}: {first} to {last} of {} are missing: its source refused them, or delivered them to others",
                self.topic, self.source
            ));
        }
    }
}

async fn confirm(outlet: &Outlet, confirmation: Option<Outgoing>) -> Result<(), Ended> {
    match confirmation {
        Some(confirmation) => outlet.send(confirmation).await,
        None => std::future::pending().await,
    }
}
