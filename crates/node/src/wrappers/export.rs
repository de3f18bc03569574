//! The task of one exporter: reads its streams by a cursor of its own, and passes them to the peer.
//!
//! The cursor is stored in the log after each batch that the peer has, before the next batch is passed:
//! after a crash at most one batch is passed again, and an exporter whose peer can tell how far it came
//! passes none.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use chappe_links::{DeadLetters, Message};
use chappe_log::{Batch as Records, Error, Stream};
use chappe_stream::{Epoch, Position, StoreError, StreamLog, Written, WrittenFollower};
use chappe_transport::Hop;
use chappe_wrappers::{
    BATCH_BYTES_MAX, Batch, Exporter as PeerExporter, ExporterFile, ExporterOpening, Part,
    StartKey, StreamDefinition, WrapperError, element_weight,
};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::pause::Pause;
use super::store::put_letter;
use super::table::Exported;
use super::{PeerState, Row as _};
use crate::catalogue::AUDIT;
use crate::clock;
use crate::notices::NoticeKind;
use crate::shared::App;

/// The version of the record.
const FORMAT: u8 = 1;
/// Records after which the older ones are trimmed; reason: each trim mark is a record.
const TRIM_STEP: u64 = 256;
/// Time after which a batch that the peer does not take counts as failed; reason: a peer that is slower
/// than this is gone.
const WRITE_TIME: Duration = Duration::from_secs(60);

/// Why an exporter is opened again.
enum End {
    Storage(StoreError),
    Peer(WrapperError),
}

impl From<StoreError> for End {
    fn from(error: StoreError) -> Self {
        Self::Storage(error)
    }
}

impl From<Error> for End {
    fn from(error: Error) -> Self {
        Self::Storage(error.into())
    }
}

impl From<WrapperError> for End {
    fn from(error: WrapperError) -> Self {
        Self::Peer(error)
    }
}

/// Runs an exporter until `stop` becomes true.
pub(super) async fn run(
    app: App,
    file: Arc<ExporterFile>,
    letters: Arc<DeadLetters>,
    mut stop: watch::Receiver<bool>,
) {
    let mut pause = Pause::default();
    let mut notified = None;
    let mut missed = BTreeMap::new();
    loop {
        let mut has_written = false;
        let end = tokio::select! {
            end = export(&app, &file, &letters, &mut missed, &mut has_written) => end,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        let Err(end) = end;
        let (reason, hint) = match &end {
            End::Storage(error) => (format!("cannot read or store: {error}"), None),
            End::Peer(error) => (error.to_string(), error.hint().map(str::to_owned)),
        };
        if has_written {
            pause.reset();
            notified = None;
        }
        if notified.as_ref() != Some(&reason) {
            let notices = &app.observability.notices;
            notices.notify(NoticeKind::Link, &file.name, reason.clone());
            notified = Some(reason.clone());
        }
        app.exporters.update(&file.name, |row| {
            row.set_state(PeerState::Trouble, Some(reason), hint);
            row.restarts += 1;
        });
        tokio::select! {
            () = tokio::time::sleep(pause.next()) => {}
            _ = stop.wait_for(|stop| *stop) => break,
        }
    }
}

/// Exports until a step fails.
async fn export(
    app: &App,
    file: &Arc<ExporterFile>,
    letters: &Arc<DeadLetters>,
    missed: &mut BTreeMap<String, u64>,
    has_written: &mut bool,
) -> Result<std::convert::Infallible, End> {
    let invalid = |error: chappe_stream::DescriptorError| WrapperError::settings(error.to_string());
    let kind = file.kind().map_err(invalid)?;
    let mut cursor = Cursor::open(app, &file.name).await?;
    let mut exporter = (kind.open)(ExporterOpening { file })?;
    for (stream, at) in exporter.resume().await? {
        cursor.advance(&stream, at);
    }
    let mut exporting = Exporting {
        app: app.clone(),
        file: file.clone(),
        letters: letters.clone(),
        exporter,
        cursor,
        followers: BTreeMap::new(),
        missed,
        last: None,
    };
    exporting.run(has_written).await
}

/// An exporter that is open.
struct Exporting<'m> {
    app: App,
    file: Arc<ExporterFile>,
    letters: Arc<DeadLetters>,
    exporter: Box<dyn PeerExporter>,
    cursor: Cursor,
    followers: BTreeMap<String, Followed>,
    /// Elements that were removed before they were exported.
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
        self.follow().await?;
        self.show();
        loop {
            let parts = tokio::select! {
                biased;
                changed = changes.changed() => {
                    // The catalogue lives as long as the node.
                    let _ = changed;
                    self.follow().await?;
                    self.show();
                    continue;
                }
                parts = poll_fn(|context| self.poll_parts(context)) => parts?,
            };
            let batch = Batch {
                parts,
                ..Batch::default()
            };
            self.write(&batch).await?;
            *has_written = true;
            self.show();
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
            if self.followers.contains_key(&entry.name) {
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
            self.followers.insert(entry.name.clone(), followed);
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

    /// Passes a batch to the peer and moves the cursor.
    async fn write(&mut self, batch: &Batch) -> Result<(), End> {
        let writing = self.exporter.write(batch);
        let written = tokio::time::timeout(WRITE_TIME, writing).await;
        let late = |_| {
            let text = format!("the peer did not take a batch within {WRITE_TIME:?}");
            Err(WrapperError::peer(text))
        };
        let written = written.unwrap_or_else(late)?;
        let refused = written.refused.len() as u64;
        for one in written.refused {
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
        for part in &batch.parts {
            if let Some(last) = part.elements.last() {
                self.cursor.advance(&part.stream, last.position);
            }
        }
        self.cursor.store(&self.app).await?;
        let elements = batch.elements() as u64;
        self.app.exporters.update(&self.file.name, |row| {
            row.elements += elements;
            row.refused += refused;
        });
        Ok(())
    }

    /// Updates what the node shows.
    fn show(&self) {
        let streams = self.followers.keys().map(|stream| Exported {
            stream: stream.clone(),
            read: self
                .cursor
                .positions
                .get(stream)
                .map_or(0, |at| at.sequence),
            missed: self.missed.get(stream).copied().unwrap_or(0),
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
            stream,
            since_trim: 0,
        })
    }

    /// Moves on to a position, never back within an epoch.
    fn advance(&mut self, stream: &str, at: Position) {
        let known = self.positions.entry(stream.to_owned()).or_insert(at);
        if known.epoch != at.epoch || known.sequence < at.sequence {
            *known = at;
        }
    }

    /// Stores the positions; returns when they are safe.
    async fn store(&mut self, app: &App) -> Result<(), StoreError> {
        let positions = self.positions.iter();
        let flat = positions.map(|(name, at)| (name.clone(), at.epoch.0, at.sequence));
        let mut bytes = vec![FORMAT];
        // Plain data always encodes.
        bytes.extend(postcard::to_allocvec(&Record(flat.collect())).unwrap_or_default());
        let appended = loop {
            let mut batch = Records::with_capacity(1, bytes.len());
            batch.push(0, &bytes);
            match self.stream.append(batch) {
                Err(Error::QueueFull { bytes, .. }) => app.storage.log.room(bytes).await,
                appended => break appended?,
            }
        };
        let first = appended.first.sequence;
        appended.await?;
        self.since_trim += 1;
        if self.since_trim >= TRIM_STEP {
            self.since_trim = 0;
            // If it is refused, the next one trims more.
            let _ = self.stream.trim(first);
        }
        Ok(())
    }
}
