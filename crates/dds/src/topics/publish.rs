//! Publishes a stream to a topic. Elements are held in memory until they are delivered, so that they can be published
//! again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::types::shown_topic;
use crate::{
    DdsError, Durability, Ended, Inlet, InletConfig, Outgoing, Outlet, OutletConfig, Payload,
    Progress, Qos, SAMPLE_BYTES_MAX, Sample, Stalled, Stored, Supervisor,
};
use chappe_log::Level;
use chappe_stream::{Position, StreamElement, StreamSchema, Value};
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::config::stored_topic;
use super::form::{ForeignType, Form};
use super::{Acknowledge, DdsStalled, Publication, PublicationStatus, Topics, lock, show};

/// The interval at which the stream is looked up.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The limit on elements that are not delivered; reason: a reader that falls this far behind would get them again
/// anyway.
const HELD_MAX: usize = 8_192;
/// The limit on their size in memory; reason: more than twice of what a writer has unacknowledged.
const HELD_BYTES_MAX: usize = 16 << 20;
/// The limit on elements that wait for the writer; reason: its queue is refilled from them.
const WAITING_MAX: usize = 256;
/// The largest number of readers with confirmations; reason: any host in the domain can add an unlimited number.
const READERS_MAX: usize = 1_024;
/// The longest pause before unstored elements are published again.
const REPUBLISH_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The error while there is no stream.
const NO_STREAM: &str = "the stream does not exist yet";
/// The hint while no reader confirms storage.
const NO_CONFIRMATION: &str = "no Chappe node confirms that it stores the stream; for other readers set \
                               acknowledge = \"received\"";
/// The hint for samples that DDS does not keep for late readers.
const VOLATILE: &str = "a late reader gets no earlier samples, and may miss the first ones during \
                        discovery; durability = \"transient_local\" on both sides keeps them";

/// A stream as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamNow {
    /// The schema of its newest elements, which is the type of the topic.
    pub schema: StreamSchema,
    /// The level of its elements.
    pub level: Level,
    /// The number of its newest element.
    pub last: u64,
}

/// Looks up the stream.
pub(super) type LookUp = Box<dyn Fn() -> Option<StreamNow> + Send>;

/// An element that cannot be a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedElement {
    /// The element.
    pub position: Position,
    /// The reason.
    pub reason: String,
}

/// What became of elements.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Advance {
    /// The newest element that is delivered, if it is a newer one: all before it are.
    pub delivered: Option<Position>,
    /// Elements that cannot be samples.
    pub refused: Vec<RefusedElement>,
}

/// A stream that is published to a topic.
pub struct Publisher {
    topics: Arc<Topics>,
    supervisor: Arc<Supervisor>,
    publication: Publication,
    /// The type, if it is not Chappe's.
    foreign: Option<ForeignType>,
    /// The name of the stream in its samples.
    stream: String,
    look_up: LookUp,
    status: Arc<Mutex<PublicationStatus>>,
    writing: Option<Writing>,
    /// The elements that are not delivered, oldest first.
    held: VecDeque<Held>,
    held_bytes: usize,
    /// So many of them, the first ones, the present writer has.
    passed: usize,
    /// The next sample for the writer.
    next: Option<Outgoing>,
    delivered: Option<Position>,
    /// The number of the newest element that was counted as published with missing values.
    reduced: u64,
    /// The confirmations of readers.
    readers: BTreeMap<String, Position>,
    advance: Advance,
    moved: Instant,
    pause: Duration,
    check: Interval,
}

/// An element that is not delivered.
struct Held {
    element: StreamElement,
    schema: Arc<StreamSchema>,
    bytes: usize,
}

/// The writer for the present schema.
struct Writing {
    form: Form,
    outlet: Outlet,
    progress: watch::Receiver<Progress>,
    /// The confirmations of readers, for elements that have to be stored.
    stored: Option<Inlet>,
    generation: u64,
}

/// What happened.
enum Event {
    Progress(Progress),
    Stored(Payload),
    Passed,
    Check,
}

impl Topics {
    /// Publishes a stream under this name, whose elements up to `delivered` were delivered before.
    ///
    /// # Errors
    /// The participant cannot start.
    pub fn publisher(
        self: &Arc<Self>,
        publication: Publication,
        stream: &str,
        delivered: Option<Position>,
        look_up: impl Fn() -> Option<StreamNow> + Send + 'static,
    ) -> Result<Publisher, DdsError> {
        self.publisher_of(publication, None, stream, delivered, Box::new(look_up))
    }

    /// Publishes a stream with samples of a type of others, if there is one.
    pub(super) fn publisher_of(
        self: &Arc<Self>,
        publication: Publication,
        foreign: Option<ForeignType>,
        stream: &str,
        delivered: Option<Position>,
        look_up: LookUp,
    ) -> Result<Publisher, DdsError> {
        let status = PublicationStatus {
            stream: stream.to_owned(),
            topic: match &foreign {
                Some(_) => shown_topic(&publication.topic),
                None => publication.topic.clone(),
            },
            delivered,
            last_error: Some(NO_STREAM.to_owned()),
            ..PublicationStatus::default()
        };
        let mut check = tokio::time::interval(CHECK_INTERVAL);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Publisher {
            topics: self.clone(),
            supervisor: self.supervisor()?,
            pause: publication.stalled_after(),
            publication,
            foreign,
            stream: stream.to_owned(),
            look_up,
            status: show(&self.publications, status),
            writing: None,
            held: VecDeque::new(),
            held_bytes: 0,
            passed: 0,
            next: None,
            delivered,
            reduced: 0,
            readers: BTreeMap::new(),
            advance: Advance::default(),
            moved: Instant::now(),
            check,
        })
    }
}

impl Publisher {
    /// Whether it takes elements now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.held.len() < HELD_MAX
            && self.held_bytes < HELD_BYTES_MAX
            && self.held.len() - self.passed < WAITING_MAX
    }

    /// Takes elements of one schema, which follow those before.
    pub fn take(&mut self, schema: &Arc<StreamSchema>, elements: &[StreamElement]) {
        for element in elements {
            let bytes = size(element);
            self.held_bytes += bytes;
            self.held.push_back(Held {
                element: element.clone(),
                schema: schema.clone(),
                bytes,
            });
        }
        // Readers may have confirmed them in an earlier run.
        self.confirm();
    }

    /// Publishes until elements are delivered or refused, or there is room again. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The participant has ended, or the topic is invalid.
    pub async fn advance(&mut self) -> Result<Advance, DdsError> {
        let had_room = self.has_room();
        loop {
            if self.advance != Advance::default() || self.has_room() != had_room {
                return Ok(std::mem::take(&mut self.advance));
            }
            self.prepare();
            if !self.advance.refused.is_empty() {
                continue;
            }
            match self.event().await? {
                Event::Progress(progress) => self.on_progress(progress),
                Event::Stored(payload) => self.on_stored(&payload),
                Event::Passed => {
                    if self.passed == 0 {
                        self.moved = Instant::now();
                    }
                    self.passed += 1;
                    self.next = None;
                }
                Event::Check => self.check()?,
            }
        }
    }

    async fn event(&mut self) -> Result<Event, DdsError> {
        let Some(writing) = &mut self.writing else {
            self.check.tick().await;
            return Ok(Event::Check);
        };
        let next = self.next.clone();
        let may_send = next.is_some();
        let event = tokio::select! {
            changed = writing.progress.changed() => {
                changed.map_err(|_| ended())?;
                Event::Progress(*writing.progress.borrow_and_update())
            }
            sample = receive(&mut writing.stored) => {
                Event::Stored(sample.ok_or_else(ended)?.payload)
            }
            sent = send(&writing.outlet, next), if may_send => {
                sent.map_err(|_| ended())?;
                Event::Passed
            }
            _ = self.check.tick() => Event::Check,
        };
        Ok(event)
    }

    /// Looks the stream up, opens the writer, and publishes again after silence.
    fn check(&mut self) -> Result<(), DdsError> {
        let Some(now) = (self.look_up)() else {
            lock(&self.status).last_error = Some(NO_STREAM.to_owned());
            return Ok(());
        };
        if self
            .writing
            .as_ref()
            .is_none_or(|writing| *writing.form.schema() != now.schema)
        {
            // The former writer ends first.
            self.writing = None;
            self.writing = Some(self.open(&now)?);
            self.republish();
        }
        let must_store = self.must_store();
        let is_all_passed = self.passed > 0 && self.passed == self.held.len();
        if must_store && is_all_passed && self.moved.elapsed() > self.pause {
            self.pause = (self.pause * 2).min(REPUBLISH_PAUSE_MAX);
            lock(&self.status).again += 1;
            self.republish();
        }
        let first = self.held.front();
        let delivered = match (self.delivered, first) {
            (Some(at), _) => at.sequence,
            // It starts there.
            (None, Some(first)) => first.element.position.sequence.saturating_sub(1),
            (None, None) => now.last,
        };
        let is_volatile = self.publication.qos.durability == Durability::Volatile;
        let unused = self.writing.as_ref().and_then(|it| it.form.hint());
        let mut status = lock(&self.status);
        status.last_error = None;
        status.lag_elements = now.last.saturating_sub(delivered);
        let is_unconfirmed = must_store && self.readers.is_empty() && status.lag_elements > 0;
        status.hint = match () {
            () if is_unconfirmed => Some(NO_CONFIRMATION.to_owned()),
            () if unused.is_some() => unused,
            () if !must_store && is_volatile => Some(VOLATILE.to_owned()),
            () => None,
        };
        Ok(())
    }

    fn open(&self, now: &StreamNow) -> Result<Writing, DdsError> {
        let form = Form::new(&self.stream, &now.schema, self.foreign.as_ref())?;
        let publication = &self.publication;
        let acknowledge = publication.acknowledge.unwrap_or(match now.level {
            Level::Power => Acknowledge::Stored,
            _ => Acknowledge::Received,
        });
        let topic = publication.dds_topic(form.type_name());
        let outlet = self.supervisor.writer(OutletConfig {
            topic: topic.clone(),
            qos: form.qos(&publication.qos),
            readers: publication.readers as usize,
            stalled: match publication.stalled {
                DdsStalled::Wait => Stalled::Wait,
                DdsStalled::Pass => Stalled::Pass,
            },
            stalled_after: publication.stalled_after(),
            pacer: publication.pacer.clone(),
        })?;
        let (word, stored) = match acknowledge {
            Acknowledge::Received => ("received", None),
            Acknowledge::Stored => {
                let qos = Qos {
                    durability: Durability::TransientLocal,
                    ..Qos::default()
                };
                let topic = stored_topic(&topic.name);
                let inlet = self.supervisor.reader(InletConfig { topic, qos })?;
                ("stored", Some(inlet))
            }
        };
        lock(&self.status).acknowledge = word;
        Ok(Writing {
            form,
            progress: outlet.progress(),
            outlet,
            stored,
            generation: 0,
        })
    }

    /// Whether elements have to be stored by readers.
    fn must_store(&self) -> bool {
        let writing = self.writing.as_ref();
        writing.is_some_and(|writing| writing.stored.is_some())
    }

    /// Encodes the next element for the writer. The topic has one type, that of the current schema: values of an
    /// older version without a field in it are not published, and counted.
    fn prepare(&mut self) {
        let Some(writing) = self.writing.as_ref().filter(|it| it.generation > 0) else {
            return;
        };
        while self.next.is_none() {
            let Some(held) = self.held.get(self.passed) else {
                return;
            };
            let position = held.element.position;
            let before = self.held.range(..self.passed).next_back();
            // Any reader accepts the first one. Those that confirmed the delivered ones have them, and a reader that was
            // away gets them no more: it goes on here.
            let previous = match before {
                Some(before) if writing.stored.is_some() => before.element.position.sequence,
                _ => 0,
            };
            let mut element = held.element.clone();
            let values = |values: &[Value]| values.iter().filter(|it| **it != Value::Null).count();
            let all = values(&element.values);
            element.values = writing.form.schema().project(&held.schema, element.values);
            let missing = all - values(&element.values);
            if missing > 0 && self.reduced < position.sequence {
                self.reduced = position.sequence;
                let detail = format!(
                    "{missing} values of {position} of {}: an earlier version of its schema has fields \
                     that the topic, which has those of the current one, lacks",
                    self.stream
                );
                let topic = &self.publication.topic;
                (self.topics.reports.dropped)("values not published", topic, detail);
            }
            let reason = match writing.form.encode(&element, previous) {
                Ok(payload) if payload.bytes.len() <= SAMPLE_BYTES_MAX => {
                    self.next = Some(Outgoing {
                        generation: writing.generation,
                        tag: position.sequence,
                        payload,
                    });
                    return;
                }
                Ok(payload) => format!("it has {} bytes", payload.bytes.len()),
                Err(reason) => reason,
            };
            lock(&self.status).refused += 1;
            // It leaves at once, for any number of them may follow each other. The cursor passes it with the next one
            // that is delivered.
            let held = self.held.remove(self.passed);
            self.held_bytes -= held.map_or(0, |held| held.bytes);
            self.advance
                .refused
                .push(RefusedElement { position, reason });
        }
    }

    /// The writer has made progress, or was replaced.
    fn on_progress(&mut self, now: Progress) {
        let Some(writing) = &mut self.writing else {
            return;
        };
        let is_other = now.generation != writing.generation;
        writing.generation = now.generation;
        if let Some(tag) = now.acknowledged.filter(|_| writing.stored.is_none()) {
            self.deliver(|held, index, passed| {
                index < passed && held.element.position.sequence <= tag
            });
        }
        if is_other {
            self.republish();
        }
    }

    /// A reader confirms how far it has stored.
    fn on_stored(&mut self, payload: &Payload) {
        let stored = match Stored::read(payload) {
            Ok(stored) => stored,
            Err(error) => {
                let topic = &self.publication.topic;
                return (self.topics.reports.dropped)("malformed", topic, error.to_string());
            }
        };
        if stored.stream != self.stream || stored.through.sequence == 0 {
            return;
        }
        let known = self.readers.contains_key(&stored.reader);
        if known || self.readers.len() < READERS_MAX {
            self.readers.insert(stored.reader, stored.through);
        }
        self.confirm();
    }

    /// Delivers what the required number of readers has stored. They may have stored elements that this writer does
    /// not have yet: after a restart the delivered ones are known only up to the last record of them.
    fn confirm(&mut self) {
        if !self.must_store() {
            return;
        }
        let readers = self.readers.values();
        let mut stored: Vec<u64> = readers.filter_map(|at| self.stored_until(*at)).collect();
        stored.sort_unstable_by_key(|sequence| std::cmp::Reverse(*sequence));
        let wanted = (self.publication.readers as usize).max(1);
        let Some(until) = stored.get(wanted - 1).copied() else {
            return;
        };
        if self.deliver(|held, _, _| held.element.position.sequence <= until) {
            self.moved = Instant::now();
            self.pause = self.publication.stalled_after();
        }
    }

    /// The number of the newest element that a reader with this confirmation has stored. A position that is none of
    /// this log cannot have been stored; one after all elements is of this log if its epoch is.
    fn stored_until(&self, at: Position) -> Option<u64> {
        let position = |held: &Held| held.element.position;
        let index = self
            .held
            .partition_point(|held| position(held).sequence < at.sequence);
        match self.held.get(index) {
            Some(held) => (position(held) == at).then_some(at.sequence),
            None => {
                let last = position(self.held.back()?);
                (last.epoch == at.epoch).then_some(last.sequence)
            }
        }
    }

    /// Releases the first elements as long as each is delivered.
    fn deliver(&mut self, is_delivered: impl Fn(&Held, usize, usize) -> bool) -> bool {
        let passed = self.passed;
        let mut released = 0;
        for (index, held) in self.held.iter().enumerate() {
            if !is_delivered(held, index, passed) {
                break;
            }
            released = index + 1;
        }
        if released == 0 {
            return false;
        }
        for held in self.held.drain(..released) {
            self.held_bytes -= held.bytes;
            self.delivered = Some(held.element.position);
        }
        if released > passed {
            self.next = None;
        }
        self.passed = passed.saturating_sub(released);
        self.advance.delivered = self.delivered;
        lock(&self.status).delivered = self.delivered;
        true
    }

    /// Starts again after the delivered elements.
    fn republish(&mut self) {
        self.next = None;
        self.passed = 0;
        self.moved = Instant::now();
    }
}

fn ended() -> DdsError {
    DdsError::Library {
        doing: "publishing",
        why: Ended.to_string(),
    }
}

/// About how many bytes of memory an element takes.
fn size(element: &StreamElement) -> usize {
    let value = |value: &Value| match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Samples(samples) => 8 * samples.values.len(),
        _ => 0,
    };
    let values = element.values.iter().map(value).sum::<usize>();
    size_of::<Held>() + values + size_of_val(element.values.as_slice())
}

async fn receive(inlet: &mut Option<Inlet>) -> Option<Sample> {
    match inlet {
        Some(inlet) => inlet.receive().await,
        None => std::future::pending().await,
    }
}

async fn send(outlet: &Outlet, next: Option<Outgoing>) -> Result<(), Ended> {
    match next {
        Some(next) => outlet.send(next).await,
        None => std::future::pending().await,
    }
}
