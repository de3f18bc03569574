//! A stream is published to a topic, behind what was delivered before.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::{
    DdsError, Durability, ElementType, Inlet, InletConfig, Outgoing, Outlet, OutletConfig,
    Progress, Qos, SAMPLE_BYTES_MAX, Stalled, Stored,
};
use chappe_log::Level;
use chappe_stream::{Position, StoreError, StreamLog, Value, Written, WrittenFollower};
use tokio::sync::watch;
use tokio::time::Instant;

use super::config::stored_topic;
use super::cursor::Cursor;
use super::{Acknowledge, DdsStalled, DdsStart, Publication, PublicationStatus, Shared, lock};

/// How often is looked whether the stream is there, and the cursor is stored; reason: what is
/// published again after a crash is what was delivered within it.
const LOOK: Duration = Duration::from_millis(200);
/// Elements sent and not stored, above which no more are sent; reason: a reader that stores nothing
/// for so long would get them again anyway.
const UNSTORED_MAX: u64 = 8_192;
/// Readers whose storing is remembered; reason: whoever reaches the domain can be as many as it likes.
const READERS_MAX: usize = 1_024;
/// The longest pause between two times that what is not stored is published again.
const AGAIN_MAX: Duration = Duration::from_secs(60);

/// Said while nobody stores what is to be stored.
const UNHEARD: &str = "no Chappe node says that it stores it; for other readers set \
                       acknowledge = \"received\"";
/// Said of what DDS itself does not keep for readers that come.
const VOLATILE: &str = "a reader that comes gets nothing from before, and may miss the first samples \
                        while both find each other; durability = \"transient_local\" on both sides \
                        keeps them";

/// Publishes a stream until it is aborted.
pub(super) async fn run(
    shared: Shared,
    publication: Publication,
    status: Arc<Mutex<PublicationStatus>>,
) {
    loop {
        let Some(log) = shared.host.stream(&publication.stream) else {
            lock(&status).last_error = Some("there is no such stream yet".to_owned());
            tokio::time::sleep(LOOK).await;
            continue;
        };
        lock(&status).last_error = None;
        let published = Publishing::new(&shared, &publication, log, &status);
        let ended = match published {
            Ok(mut publishing) => publishing.run().await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            lock(&status).last_error = Some(error);
        }
        // The schema has changed, or something failed: anew.
        tokio::time::sleep(LOOK).await;
    }
}

struct Publishing<'a> {
    shared: &'a Shared,
    publication: &'a Publication,
    status: &'a Mutex<PublicationStatus>,
    log: StreamLog,
    of: ElementType,
    outlet: Outlet,
    progress: watch::Receiver<Progress>,
    /// Where readers say that they have stored.
    stored: Option<Inlet>,
    readers: BTreeMap<String, Position>,
    cursor: Cursor,
    follower: WrittenFollower,
    generation: u64,
    /// The number of the element that was read last.
    previous: u64,
    /// The number of the newest element that was counted as published without some of its values.
    reduced: u64,
    pending: VecDeque<Outgoing>,
    /// The newest that was given to the writer.
    sent: Option<Position>,
    /// Which elements the tags are: the newest, not delivered.
    positions: VecDeque<Position>,
    moved: Instant,
    pause: Duration,
}

impl<'a> Publishing<'a> {
    fn new(
        shared: &'a Shared,
        publication: &'a Publication,
        log: StreamLog,
        status: &'a Mutex<PublicationStatus>,
    ) -> Result<Self, String> {
        let said = |error: DdsError| error.to_string();
        let of = ElementType::new(&publication.stream, log.schema());
        let of = of.map_err(|error| error.to_string())?;
        let level = log.log().level();
        let acknowledge = publication.acknowledge.unwrap_or(match level {
            Level::Power => Acknowledge::Stored,
            _ => Acknowledge::Received,
        });
        let topic = publication.dds_topic(&of);
        let outlet = shared.supervisor.writer(OutletConfig {
            topic: topic.clone(),
            qos: publication.qos.clone(),
            readers: publication.readers as usize,
            stalled: match publication.stalled {
                DdsStalled::Wait => Stalled::Wait,
                DdsStalled::Pass => Stalled::Pass,
            },
            stalled_after: publication.stalled_after(),
            pacer: publication.pacer.clone(),
        });
        let outlet = outlet.map_err(said)?;
        let stored = match acknowledge {
            Acknowledge::Received => None,
            Acknowledge::Stored => {
                let qos = Qos {
                    durability: Durability::TransientLocal,
                    ..Qos::default()
                };
                let topic = stored_topic(&topic.name);
                let inlet = shared.supervisor.reader(InletConfig { topic, qos });
                Some(inlet.map_err(said)?)
            }
        };
        let failed = |error: chappe_log::Error| error.to_string();
        let store = shared.store.store();
        let mut cursor = Cursor::open(store, &topic.name, log.name(), level).map_err(failed)?;
        if cursor.at().is_none() && publication.start == DdsStart::New {
            // From here on also after a restart before anything was delivered.
            let newest = log.newest(1).map_err(|error| error.to_string())?;
            if let Some(newest) = newest.last() {
                cursor.advance(newest.position);
                cursor.keep().map_err(failed)?;
            }
        }
        {
            let mut status = lock(status);
            status.acknowledge = match acknowledge {
                Acknowledge::Received => "received",
                Acknowledge::Stored => "stored",
            };
            status.idl = of.idl();
            status.delivered = cursor.at();
        }
        let (follower, previous) = follow(&log, cursor.at());
        Ok(Self {
            progress: outlet.progress(),
            shared,
            publication,
            status,
            log,
            of,
            outlet,
            stored,
            readers: BTreeMap::new(),
            cursor,
            follower,
            generation: 0,
            previous,
            reduced: 0,
            pending: VecDeque::new(),
            sent: None,
            positions: VecDeque::new(),
            moved: Instant::now(),
            pause: publication.stalled_after(),
        })
    }

    /// Publishes until the schema changes.
    async fn run(&mut self) -> Result<(), String> {
        let mut look = tokio::time::interval(LOOK);
        loop {
            let next = self.pending.front().cloned();
            let may_send = next.is_some();
            let may_read = next.is_none() && self.generation > 0 && self.has_room();
            tokio::select! {
                changed = self.progress.changed() => {
                    changed.map_err(|_| "the participant has ended".to_owned())?;
                    self.progressed();
                }
                sample = receive(&mut self.stored) => match sample {
                    Some(sample) => self.told(&sample.payload),
                    None => return Err("the participant has ended".to_owned()),
                },
                sent = send(&self.outlet, next), if may_send => {
                    sent.map_err(|error| error.to_string())?;
                    self.pending.pop_front();
                }
                batch = self.follower.next(), if may_read => match batch {
                    Ok(batch) => {
                        if self.log.schema() != *self.of.schema() {
                            return Ok(());
                        }
                        self.read(batch);
                    }
                    Err(StoreError::Log(chappe_log::Error::Gap { .. })) => {}
                    Err(error) => return Err(error.to_string()),
                },
                _ = look.tick() => self.look()?,
            }
        }
    }

    fn has_room(&self) -> bool {
        let delivered = self.cursor.at().map_or(0, |at| at.sequence);
        let sent = self.sent.map_or(delivered, |sent| sent.sequence);
        sent.saturating_sub(delivered) < UNSTORED_MAX
    }

    /// Elements become samples. The topic has one type, that of the current schema: values of an older
    /// version for which it has no field are not published, and counted.
    fn read(&mut self, batch: Written) {
        let values = |values: &[Value]| values.iter().filter(|it| **it != Value::Null).count();
        for mut element in batch.elements {
            let all = values(&element.values);
            element.values = self.of.schema().project(&batch.schema, element.values);
            let missing = all - values(&element.values);
            if missing > 0 && self.reduced < element.position.sequence {
                self.reduced = element.position.sequence;
                let (at, name) = (element.position, self.log.name());
                let detail = format!(
                    "{missing} values of {at} of {name}: version {} of its schema has fields that the \
                     topic, which has those of the current one, lacks",
                    batch.schema_version
                );
                let topic = &self.publication.topic;
                self.shared
                    .host
                    .dropped("values not published", topic, detail);
            }
            let previous = self.stored.as_ref().map_or(0, |_| self.previous);
            self.previous = element.position.sequence;
            let payload = match self.of.encode(&element, previous) {
                Ok(payload) if payload.bytes.len() <= SAMPLE_BYTES_MAX => payload,
                refused => {
                    let why = match refused {
                        Ok(payload) => format!("it has {} bytes", payload.bytes.len()),
                        Err(error) => error.to_string(),
                    };
                    let detail = format!("{} of {}: {why}", element.position, self.log.name());
                    let topic = &self.publication.topic;
                    self.shared.host.dropped("not published", topic, detail);
                    lock(self.status).refused += 1;
                    continue;
                }
            };
            if self.sent == self.cursor.at() {
                self.moved = Instant::now();
            }
            self.sent = Some(element.position);
            self.positions.push_back(element.position);
            self.pending.push_back(Outgoing {
                generation: self.generation,
                tag: element.position.sequence,
                payload,
            });
        }
    }

    /// The writer has written, or is another one.
    fn progressed(&mut self) {
        let now = *self.progress.borrow_and_update();
        if let Some(tag) = now.acknowledged.filter(|_| self.stored.is_none()) {
            while let Some(first) = self.positions.front().copied() {
                if first.sequence > tag {
                    break;
                }
                self.delivered(first);
                self.positions.pop_front();
            }
        }
        if now.generation != self.generation {
            self.generation = now.generation;
            self.again();
        }
    }

    /// A reader says how far it has stored.
    fn told(&mut self, payload: &crate::Payload) {
        let stored = match Stored::read(payload) {
            Ok(stored) => stored,
            Err(error) => {
                let topic = &self.publication.topic;
                let host = &self.shared.host;
                return host.dropped("malformed", topic, error.to_string());
            }
        };
        if stored.stream != self.log.name() || stored.through.sequence == 0 {
            return;
        }
        let known = self.readers.contains_key(&stored.reader);
        if known || self.readers.len() < READERS_MAX {
            self.readers.insert(stored.reader, stored.through);
        }
        // As many as are waited for have stored up to there.
        let mut through: Vec<Position> = self.readers.values().copied().collect();
        through.sort_by_key(|at| std::cmp::Reverse(at.sequence));
        let wanted = (self.publication.readers as usize).max(1);
        let Some(at) = through.get(wanted - 1).copied() else {
            return;
        };
        // Nobody has stored what is not here; what was sent before a restart they may have.
        if at.sequence > self.log.log().last() || self.log.resume(at).is_err() {
            return;
        }
        let ahead = self.sent.is_none_or(|sent| sent.sequence < at.sequence);
        if self
            .cursor
            .at()
            .is_none_or(|now| now.sequence < at.sequence)
        {
            self.moved = Instant::now();
            self.pause = self.publication.stalled_after();
            self.delivered(at);
            while self
                .positions
                .front()
                .is_some_and(|first| first.sequence <= at.sequence)
            {
                self.positions.pop_front();
            }
            if ahead {
                self.again();
            }
        }
    }

    fn delivered(&mut self, at: Position) {
        self.cursor.advance(at);
        lock(self.status).delivered = self.cursor.at();
    }

    /// Begins again behind what was delivered.
    fn again(&mut self) {
        self.pending.clear();
        self.positions.clear();
        self.sent = self.cursor.at();
        self.moved = Instant::now();
        (self.follower, self.previous) = follow(&self.log, self.cursor.at());
    }

    fn look(&mut self) -> Result<(), String> {
        let kept = self.cursor.keep();
        kept.map_err(|error| error.to_string())?;
        let waits = self.stored.is_some() && self.sent != self.cursor.at();
        if waits && self.pending.is_empty() && self.moved.elapsed() > self.pause {
            self.pause = (self.pause * 2).min(AGAIN_MAX);
            lock(self.status).again += 1;
            self.again();
        }
        let last = self.log.log().last();
        let delivered = self.cursor.at().map_or(0, |at| at.sequence);
        let mut status = lock(self.status);
        status.lag_elements = last.saturating_sub(delivered);
        let unheard = self.stored.is_some() && self.readers.is_empty() && status.lag_elements > 0;
        let volatile = self.publication.qos.durability == Durability::Volatile;
        status.hint = match () {
            () if unheard => Some(UNHEARD.to_owned()),
            () if self.stored.is_none() && volatile => Some(VOLATILE.to_owned()),
            () => None,
        };
        Ok(())
    }
}

/// What follows behind a position, and the number before it.
fn follow(log: &StreamLog, at: Option<Position>) -> (WrittenFollower, u64) {
    let from = match at.map(|at| log.resume(at)) {
        Some(Ok(next)) => next,
        // It is not of this log any more: all that is there is new.
        Some(Err(_)) | None => 0,
    };
    let previous = at.filter(|_| from > 0).map_or(0, |at| at.sequence);
    (log.follow_written(from), previous)
}

async fn receive(inlet: &mut Option<Inlet>) -> Option<crate::Sample> {
    match inlet {
        Some(inlet) => inlet.receive().await,
        None => std::future::pending().await,
    }
}

async fn send(outlet: &Outlet, next: Option<Outgoing>) -> Result<(), crate::Ended> {
    match next {
        Some(next) => outlet.send(next).await,
        None => std::future::pending().await,
    }
}
