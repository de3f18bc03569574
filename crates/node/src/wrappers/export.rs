//! The task of one exporter: reads its streams by a cursor of its own, and passes them to the peer.
//!
//! The cursor is stored in the log after each batch that the peer has, before the next batch is passed:
//! after a crash at most one batch is passed again, and an exporter whose peer can tell how far it came
//! passes none. Of an exporter that keeps several batches on their way, it is stored a few times a second.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use chappe_links::{DeadLetters, Message};
use chappe_log::{Appended, Batch as Records, Error, Stream};
use chappe_stream::{Epoch, Position, StoreError, StreamLog, Written, WrittenFollower};
use chappe_transport::Hop;
use chappe_wrappers::{
    BATCH_BYTES_MAX, Batch, Delivered, Exporter as PeerExporter, ExporterFile, ExporterOpening,
    Part, Refused, StartKey, StreamDefinition, WrapperError, element_weight,
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::attempts::{Attempts, End};
use super::store::put_letter;
use super::table::Exported;
use super::{PeerState, Row as _, node_parts};
use crate::catalogue::AUDIT;
use crate::clock;
use crate::shared::App;

/// The version of the record.
const FORMAT: u8 = 1;
/// Records after which the older ones are trimmed; reason: each trim mark is a record.
const TRIM_STEP: u64 = 256;
/// Time between two stored cursors of an exporter that keeps several batches on their way; reason: after a crash,
/// elements delivered within it are passed again.
const KEEP_PERIOD: Duration = Duration::from_millis(200);
/// Time for the last cursor when an exporter ends.
const END_TIME: Duration = Duration::from_secs(5);
/// Time after which a batch that the peer does not take counts as failed; reason: a peer that is slower
/// than this is gone.
const WRITE_TIME: Duration = Duration::from_secs(60);

/// Runs an exporter until `stop` becomes true.
pub(super) async fn run(
    app: App,
    file: Arc<ExporterFile>,
    letters: Arc<DeadLetters>,
    mut stop: watch::Receiver<bool>,
) {
    let mut attempts = Attempts::default();
    let mut missed = BTreeMap::new();
    loop {
        let mut has_written = false;
        let end = export(
            &app,
            &file,
            &letters,
            &mut missed,
            &mut has_written,
            &mut stop,
        )
        .await;
        let Err(end) = end else { break };
        attempts.ended(&app, &app.exporters, &file.name, &end, has_written);
        app.exporters.update(&file.name, |row| row.restarts += 1);
        if attempts.wait(&mut stop).await {
            break;
        }
    }
}

/// Exports until a step fails or `stop` becomes true.
async fn export(
    app: &App,
    file: &Arc<ExporterFile>,
    letters: &Arc<DeadLetters>,
    missed: &mut BTreeMap<String, u64>,
    has_written: &mut bool,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), End> {
    let invalid = |error: chappe_stream::DescriptorError| WrapperError::settings(error.to_string());
    let kind = file.kind().map_err(invalid)?;
    let mut cursor = Cursor::open(app, &file.name).await?;
    let mut exporter = (kind.open)(ExporterOpening { file })?;
    exporter.attach(&node_parts(app), &cursor.positions)?;
    let resuming = async {
        for (stream, at) in exporter.resume().await? {
            cursor.advance(&stream, at);
        }
        Ok::<(), WrapperError>(())
    };
    tokio::select! {
        resumed = resuming => resumed?,
        _ = stop.wait_for(|stop| *stop) => return Ok(()),
    }
    let mut exporting = Exporting {
        app: app.clone(),
        file: file.clone(),
        letters: letters.clone(),
        exporter,
        cursor,
        reading: Reading {
            app: app.clone(),
            file: file.clone(),
            followers: BTreeMap::new(),
            missed,
            last: None,
        },
    };
    let ended = tokio::select! {
        Err(end) = exporting.run(has_written) => Err(end),
        _ = stop.wait_for(|stop| *stop) => Ok(()),
    };
    // Without it, delivered elements are passed again.
    let last = exporting.cursor.store_changed(app);
    let _ = tokio::time::timeout(END_TIME, last).await;
    ended
}

/// An exporter that is open.
struct Exporting<'m> {
    app: App,
    file: Arc<ExporterFile>,
    letters: Arc<DeadLetters>,
    exporter: Box<dyn PeerExporter>,
    cursor: Cursor,
    reading: Reading<'m>,
}

/// The streams that are read.
struct Reading<'m> {
    app: App,
    file: Arc<ExporterFile>,
    followers: BTreeMap<String, Followed>,
    /// Elements that were removed before they were exported, by stream, since the exporter started.
    missed: &'m mut BTreeMap<String, u64>,
    /// The stream that was read last: the next one has its turn.
    last: Option<String>,
}

struct Followed {
    name: Arc<str>,
    follower: WrittenFollower,
    /// The definition of the elements that were read last, by the version of the schema.
    definition: Option<(u32, Arc<StreamDefinition>)>,
}

impl Exporting<'_> {
    async fn run(&mut self, has_written: &mut bool) -> Result<std::convert::Infallible, End> {
        let mut changes = self.app.catalogue.changes();
        let mut keep = tokio::time::interval(KEEP_PERIOD);
        keep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let is_pipelined = self.exporter.is_pipelined();
        self.follow().await?;
        self.show();
        loop {
            let has_room = self.exporter.has_room();
            tokio::select! {
                changed = changes.changed() => {
                    // The catalogue lives as long as the node.
                    let _ = changed;
                    self.follow().await?;
                    self.show();
                }
                parts = poll_fn(|context| self.reading.poll_parts(context)), if has_room => {
                    let batch = Batch {
                        parts: parts?,
                        ..Batch::default()
                    };
                    self.write(&batch).await?;
                    *has_written = true;
                    if !is_pipelined {
                        self.show();
                    }
                }
                delivered = self.exporter.delivered() => {
                    self.on_delivered(delivered?).await?;
                }
                _ = keep.tick(), if is_pipelined => {
                    self.cursor.keep()?;
                    self.show();
                }
            }
        }
    }

    /// Follows the streams that the file selects.
    async fn follow(&mut self) -> Result<(), End> {
        let entries = self.app.catalogue.entries();
        let selected = entries.iter().filter(|entry| {
            // A renamed stream is selected by any of its names.
            let selects = |name: &str| self.file.keys.selects(name);
            entry.name != AUDIT && entry.log.has_name(selects)
        });
        let mut is_new = false;
        for entry in selected {
            let log = &entry.log;
            if self.reading.followers.contains_key(&entry.name) {
                continue;
            }
            let from = match self.cursor.positions.get(&entry.name) {
                Some(at) => self.resume(log, *at),
                None if self.file.keys.start == StartKey::New => {
                    is_new = true;
                    let at = Position {
                        epoch: Epoch(log.log().epoch()),
                        sequence: log.log().last(),
                    };
                    self.cursor.advance(&entry.name, at);
                    at.sequence + 1
                }
                None => 0,
            };
            let followed = Followed {
                name: entry.name.as_str().into(),
                follower: log.follow_written(from),
                definition: None,
            };
            self.reading.followers.insert(entry.name.clone(), followed);
        }
        if is_new {
            self.cursor.store(&self.app).await?;
        }
        Ok(())
    }

    /// The number after a position of the cursor.
    fn resume(&self, log: &StreamLog, at: Position) -> u64 {
        let position = chappe_log::Position {
            epoch: at.epoch.0,
            sequence: at.sequence,
        };
        log.log().resume(position).unwrap_or_else(|rollback| {
            let detail = format!("{}: {at} is no position any more", log.name());
            let drops = &self.app.observability.drops;
            drops.record(Hop::Element, "rolled back", &self.file.name, detail, None);
            rollback.next
        })
    }

    /// Passes a batch to the peer, and moves the cursor if the peer has it.
    async fn write(&mut self, batch: &Batch) -> Result<(), End> {
        let writing = self.exporter.write(batch);
        let written = tokio::time::timeout(WRITE_TIME, writing).await;
        let late = |_| {
            let text = format!("the peer did not take a batch within {WRITE_TIME:?}");
            Err(WrapperError::peer(text))
        };
        let written = written.unwrap_or_else(late)?;
        self.put_aside(written.refused).await?;
        if !self.exporter.is_pipelined() {
            for part in &batch.parts {
                if let Some(last) = part.elements.last() {
                    self.cursor.advance(&part.stream, last.position);
                }
            }
            self.cursor.store(&self.app).await?;
        }
        let elements = batch.elements() as u64;
        let name = &self.file.name;
        self.app
            .exporters
            .update(name, |row| row.elements += elements);
        Ok(())
    }

    /// The peer has elements that were on their way, or refuses them.
    async fn on_delivered(&mut self, delivered: Delivered) -> Result<(), End> {
        self.put_aside(delivered.refused).await?;
        for (stream, at) in delivered.positions {
            self.cursor.advance(&stream, at);
        }
        Ok(())
    }

    /// Keeps elements that the peer refused as dead letters.
    async fn put_aside(&mut self, refused: Vec<Refused>) -> Result<(), End> {
        let count = refused.len() as u64;
        for one in refused {
            let name = &self.file.name;
            let hint = format!("chappe wrapper dead-letters --exporter {name}");
            let drops = &self.app.observability.drops;
            drops.record(
                Hop::Element,
                "peer refused",
                name,
                one.reason.clone(),
                Some(hint),
            );
            let message = Message {
                stream: Some(one.stream),
                reason: one.reason,
                received: clock::now(),
                bytes: one.position.to_string().into_bytes(),
            };
            put_letter(&self.app, &self.letters, message).await?.await?;
        }
        if count > 0 {
            let name = &self.file.name;
            self.app.exporters.update(name, |row| row.refused += count);
        }
        Ok(())
    }

    /// Updates what the node shows.
    fn show(&self) {
        let streams = self.reading.followers.keys().map(|stream| Exported {
            stream: stream.clone(),
            read: self
                .cursor
                .positions
                .get(stream)
                .map_or(0, |at| at.sequence),
            missed: self.reading.missed.get(stream).copied().unwrap_or(0),
        });
        let streams: Vec<Exported> = streams.collect();
        let letters = self.letters.count();
        self.app.exporters.update(&self.file.name, |row| {
            let waits = streams
                .is_empty()
                .then(|| "no stream has such a name".to_owned());
            let state = match waits {
                Some(_) => PeerState::Waiting,
                None => PeerState::Running,
            };
            row.set_state(state, waits, None);
            row.streams = streams;
            row.dead_letters = letters;
        });
    }
}

impl Reading<'_> {
    /// The elements that can be read now, from each stream in turn, up to a batch.
    fn poll_parts(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<Part>, End>> {
        let last = self.last.clone().unwrap_or_default();
        let after = self.followers.keys().filter(|name| **name > last).cloned();
        let mut names: Vec<String> = after.collect();
        names.extend(self.followers.keys().filter(|name| **name <= last).cloned());
        let (mut parts, mut weight) = (Vec::new(), 0);
        for name in names {
            if weight >= BATCH_BYTES_MAX / 2 {
                break;
            }
            let Some(followed) = self.followers.get_mut(&name) else {
                continue;
            };
            // Dropping the future loses nothing.
            let polled = pin!(followed.follower.next()).poll(context);
            match polled {
                Poll::Pending => {}
                Poll::Ready(Ok(written)) => {
                    weight += written.elements.iter().map(element_weight).sum::<usize>();
                    parts.push(followed.part(written));
                    self.last = Some(name);
                }
                Poll::Ready(Err(StoreError::Log(Error::Gap { from, next, .. }))) => {
                    let count = next.saturating_sub(from);
                    let detail = format!("elements {from} to {} of {name}", next.saturating_sub(1));
                    let hint = "keep elements for longer: log.keep_elements, log.keep_age_s";
                    self.app.observability.drops.record_times(
                        count,
                        Hop::Element,
                        "removed before export",
                        &self.file.name,
                        detail,
                        Some(hint.to_owned()),
                    );
                    *self.missed.entry(name).or_default() += count;
                    context.waker().wake_by_ref();
                }
                Poll::Ready(Err(StoreError::Log(Error::Removed { .. }))) => {
                    self.followers.remove(&name);
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
            }
        }
        match parts.is_empty() {
            true => Poll::Pending,
            false => Poll::Ready(Ok(parts)),
        }
    }
}

impl Followed {
    fn part(&mut self, written: Written) -> Part {
        let definition = match &self.definition {
            Some((version, definition)) if *version == written.schema_version => definition.clone(),
            _ => {
                let definition = Arc::new(StreamDefinition {
                    schema: written.schema,
                    ..StreamDefinition::default()
                });
                self.definition = Some((written.schema_version, definition.clone()));
                definition
            }
        };
        Part {
            stream: self.name.clone(),
            definition,
            elements: written.elements,
        }
    }
}

/// How far each stream was exported. Its fields are the format of the record.
#[derive(Serialize, Deserialize)]
struct Record(Vec<(String, u64, u64)>);

/// The stored cursor of an exporter.
struct Cursor {
    stream: Stream,
    positions: BTreeMap<String, Position>,
    /// Whether they changed since they were appended.
    is_changed: bool,
    /// The record that is on its way, and was not waited for.
    under_way: Option<Appended>,
    since_trim: u64,
}

impl Cursor {
    /// Reads the cursor of the exporter `name`.
    async fn open(app: &App, name: &str) -> Result<Self, StoreError> {
        let (store, level) = (app.storage.log.clone(), app.config.log.level);
        let name = format!("exporter-progress/{name}");
        let opened = tokio::task::spawn_blocking(move || store.stream(&name, level, &[FORMAT]));
        let stream = opened.await.unwrap_or(Err(Error::Closed))?;
        // Records of an earlier run of the exporter may be on their way.
        stream.settled().await;
        let newest = stream.newest(1)?;
        let record = newest.last().map(|record| record.payload.as_slice());
        let positions = match record.map(<[u8]>::split_first) {
            None => Record(Vec::new()),
            Some(Some((&FORMAT, bytes))) => {
                postcard::from_bytes(bytes).map_err(|_| StoreError::Metadata(stream.name()))?
            }
            Some(_) => return Err(StoreError::Metadata(stream.name())),
        };
        let positions = positions.0.into_iter().map(|(name, epoch, sequence)| {
            let epoch = Epoch(epoch);
            (name, Position { epoch, sequence })
        });
        Ok(Self {
            positions: positions.collect(),
            is_changed: false,
            under_way: None,
            stream,
            since_trim: 0,
        })
    }

    /// Moves on to a position, never back within an epoch.
    fn advance(&mut self, stream: &str, at: Position) {
        let known = self.positions.get(stream);
        if known.is_none_or(|known| known.epoch != at.epoch || known.sequence < at.sequence) {
            self.positions.insert(stream.to_owned(), at);
            self.is_changed = true;
        }
    }

    /// Stores the positions; returns when they are safe.
    async fn store(&mut self, app: &App) -> Result<(), StoreError> {
        let appended = loop {
            match self.append() {
                Err(Error::QueueFull { bytes, .. }) => app.storage.log.room(bytes).await,
                appended => break appended?,
            }
        };
        self.settle(appended).await
    }

    /// Stores the positions if they changed; returns when they are safe.
    async fn store_changed(&mut self, app: &App) -> Result<(), StoreError> {
        match self.is_changed {
            true => self.store(app).await,
            false => Ok(()),
        }
    }

    /// Stores the positions if they changed, without waiting; one record at a time is on its way.
    fn keep(&mut self) -> Result<(), StoreError> {
        if let Some(appended) = &self.under_way {
            match appended.try_result() {
                None => return Ok(()),
                Some(result) => result?,
            }
            let first = appended.first.sequence;
            self.under_way = None;
            self.trim(first);
        }
        if !self.is_changed {
            return Ok(());
        }
        match self.append() {
            // It is tried again soon.
            Err(Error::QueueFull { .. }) => {}
            appended => self.under_way = Some(appended?),
        }
        Ok(())
    }

    async fn settle(&mut self, appended: Appended) -> Result<(), StoreError> {
        let first = appended.first.sequence;
        appended.await?;
        self.trim(first);
        Ok(())
    }

    fn append(&mut self) -> Result<Appended, Error> {
        let positions = self.positions.iter();
        let flat = positions.map(|(name, at)| (name.clone(), at.epoch.0, at.sequence));
        let mut bytes = vec![FORMAT];
        // Plain data always encodes.
        bytes.extend(postcard::to_allocvec(&Record(flat.collect())).unwrap_or_default());
        let mut batch = Records::with_capacity(1, bytes.len());
        batch.push(0, &bytes);
        let appended = self.stream.append(batch)?;
        self.is_changed = false;
        Ok(appended)
    }

    /// Removes the records before a stored one, now and then.
    fn trim(&mut self, first: u64) {
        self.since_trim += 1;
        if self.since_trim >= TRIM_STEP {
            self.since_trim = 0;
            // If it is refused, the next one trims more.
            let _ = self.stream.trim(first);
        }
    }
}
