//! Publishes a stream to a topic, starting after the delivered elements.

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

/// The interval at which the stream is looked up and the cursor is stored; reason: after a crash, elements delivered
/// within it are published again.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
/// The limit on sent elements that are not stored; reason: a reader that falls this far behind would get them again
/// anyway.
const UNSTORED_MAX: u64 = 8_192;
/// The largest number of readers with confirmations; reason: any host in the domain can add an unlimited number.
const READERS_MAX: usize = 1_024;
/// The longest pause before unstored elements are published again.
const REPUBLISH_PAUSE_MAX: Duration = Duration::from_secs(60);

/// The hint while no reader confirms storage.
const NO_CONFIRMATION: &str = "no Chappe node confirms that it stores the stream; for other readers set \
                               acknowledge = \"received\"";
/// The hint for samples that DDS does not keep for late readers.
const VOLATILE: &str = "a late reader gets no earlier samples, and may miss the first ones during \
                        discovery; durability = \"transient_local\" on both sides keeps them";

/// Publishes a stream until it is aborted.
pub(super) async fn run(
    shared: Shared,
    publication: Publication,
    status: Arc<Mutex<PublicationStatus>>,
) {
    loop {
        let Some(log) = shared.host.stream(&publication.stream) else {
            lock(&status).last_error = Some("the stream does not exist yet".to_owned());
            tokio::time::sleep(CHECK_INTERVAL).await;
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
        // The schema has changed, or an error occurred: start again.
        tokio::time::sleep(CHECK_INTERVAL).await;
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
    /// The confirmations of readers.
    stored: Option<Inlet>,
    readers: BTreeMap<String, Position>,
    cursor: Cursor,
    follower: WrittenFollower,
    generation: u64,
    /// The number of the last element that was read.
    previous: u64,
    /// The number of the newest element that was counted as published with missing values.
    reduced: u64,
    pending: VecDeque<Outgoing>,
    /// The newest element passed to the writer.
    sent: Option<Position>,
    /// The positions of the tags: the newest elements, not delivered.
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
            // So that a restart before the first delivery continues here.
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
        let mut check = tokio::time::interval(CHECK_INTERVAL);
        loop {
            let next = self.pending.front().cloned();
            let may_send = next.is_some();
            let may_read = next.is_none() && self.generation > 0 && self.has_room();
            tokio::select! {
                changed = self.progress.changed() => {
                    changed.map_err(|_| "the participant has ended".to_owned())?;
                    self.on_progress();
                }
                sample = receive(&mut self.stored) => match sample {
                    Some(sample) => self.on_stored(&sample.payload),
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
                _ = check.tick() => self.check()?,
            }
        }
    }

    fn has_room(&self) -> bool {
        let delivered = self.cursor.at().map_or(0, |at| at.sequence);
        let sent = self.sent.map_or(delivered, |sent| sent.sequence);
        sent.saturating_sub(delivered) < UNSTORED_MAX
    }

    /// Converts elements to samples. The topic has one type, that of the current schema: values of an older
    /// version without a field in it are not published, and counted.
    fn read(&mut self, batch: Written) {
        let values = |values: &[Value]| values.iter().filter(|it| **it != Value::Null).count();
        for mut element in batch.elements {
            let all = values(&element.values);
            element.values = self.of.schema().project(&batch.schema, element.values);
            let missing = all - values(&element.values);
            if missing > 0 && self.reduced < element.position.sequence {
                self.reduced = element.position.sequence;
                let (at, name) = (element.position, &self.publication.stream);
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
                    let detail =
                        format!("{} of {}: {why}", element.position, self.publication.stream);
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

    /// The writer has made progress, or was replaced.
    fn on_progress(&mut self) {
        let now = *self.progress.borrow_and_update();
        if let Some(tag) = now.acknowledged.filter(|_| self.stored.is_none()) {
            while let Some(first) = self.positions.front().copied() {
                if first.sequence > tag {
                    break;
                }
                self.set_delivered(first);
                self.positions.pop_front();
            }
        }
        if now.generation != self.generation {
            self.generation = now.generation;
            self.republish();
        }
    }

    /// A reader confirms how far it has stored.
    fn on_stored(&mut self, payload: &crate::Payload) {
        let stored = match Stored::read(payload) {
            Ok(stored) => stored,
            Err(error) => {
                let topic = &self.publication.topic;
                let host = &self.shared.host;
                return host.dropped("malformed", topic, error.to_string());
            }
        };
        if stored.stream != self.publication.stream || stored.through.sequence == 0 {
            return;
        }
        let known = self.readers.contains_key(&stored.reader);
        if known || self.readers.len() < READERS_MAX {
            self.readers.insert(stored.reader, stored.through);
        }
        // The required number of readers has stored up to this position.
        let mut through: Vec<Position> = self.readers.values().copied().collect();
        through.sort_by_key(|at| std::cmp::Reverse(at.sequence));
        let wanted = (self.publication.readers as usize).max(1);
        let Some(at) = through.get(wanted - 1).copied() else {
            return;
        };
        // Positions that are not in this log cannot have been stored; ones from before a restart can.
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
            self.set_delivered(at);
            while self
                .positions
                .front()
                .is_some_and(|first| first.sequence <= at.sequence)
            {
                self.positions.pop_front();
            }
            if ahead {
                self.republish();
            }
        }
    }

    fn set_delivered(&mut self, at: Position) {
        self.cursor.advance(at);
        lock(self.status).delivered = self.cursor.at();
    }

    /// Starts again after the delivered elements.
    fn republish(&mut self) {
        self.pending.clear();
        self.positions.clear();
        self.sent = self.cursor.at();
        self.moved = Instant::now();
        (self.follower, self.previous) = follow(&self.log, self.cursor.at());
    }

    fn check(&mut self) -> Result<(), String> {
        let kept = self.cursor.keep();
        kept.map_err(|error| error.to_string())?;
        let waits = self.stored.is_some() && self.sent != self.cursor.at();
        if waits && self.pending.is_empty() && self.moved.elapsed() > self.pause {
            self.pause = (self.pause * 2).min(REPUBLISH_PAUSE_MAX);
            lock(self.status).again += 1;
            self.republish();
        }
        let last = self.log.log().last();
        let delivered = self.cursor.at().map_or(0, |at| at.sequence);
        let mut status = lock(self.status);
        status.lag_elements = last.saturating_sub(delivered);
        let is_unconfirmed =
            self.stored.is_some() && self.readers.is_empty() && status.lag_elements > 0;
        let is_volatile = self.publication.qos.durability == Durability::Volatile;
        status.hint = match () {
            () if is_unconfirmed => Some(NO_CONFIRMATION.to_owned()),
            () if self.stored.is_none() && is_volatile => Some(VOLATILE.to_owned()),
            () => None,
        };
        Ok(())
    }
}

/// Follows the stream after a position. Also returns the number of the element before.
fn follow(log: &StreamLog, at: Option<Position>) -> (WrittenFollower, u64) {
    let from = match at.map(|at| log.resume(at)) {
        Some(Ok(next)) => next,
        // The position is no longer in this log: everything in it is new.
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
