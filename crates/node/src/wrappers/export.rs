//! The task of one exporter: reads its streams by a cursor of its own, and passes them to the peer.
//!
//! The cursor is stored in the log after each batch that the peer has, before the next batch is passed:
//! after a crash at most one batch is passed again, and an exporter whose peer can tell how far it came
//! passes none. Of an exporter that keeps several batches on their way, it is stored a few times a second.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chappe_links::{DeadLetters, Message, PeerLetter};
use chappe_log::{Appended, Batch as Records, Error, Stream};
use chappe_stream::{Position, StoreError, StreamElement};
use chappe_transport::Hop;
use chappe_wrappers::{
    Batch, Delivered, Exporter as PeerExporter, ExporterFile, ExporterOpening, Notes, Part,
    Partial, Refused, WrapperError,
};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::attempts::{Attempts, End};
use super::reading::{self, Missed, Positions, Reading};
use super::store::put_letter;
use super::under_way::UnderWay;
use super::{PeerState, node_parts, notes};
use crate::clock;
use crate::shared::App;

/// The version of the record.
const FORMAT: u8 = 1;
/// Records after which the older ones are trimmed; reason: each trim mark is a record.
const TRIM_STEP: u64 = 256;
/// Time between two stored cursors of an exporter that keeps several batches on their way; reason: after a crash,
/// elements delivered within it are passed again.
const KEEP_PERIOD: Duration = Duration::from_millis(200);
/// Time between two looks at the age of the cursor's record.
const REFRESH_PERIOD: Duration = Duration::from_secs(1);
/// Time for the last cursor when an exporter ends.
const END_TIME: Duration = Duration::from_secs(5);

/// Runs an exporter until `stop` becomes true.
pub(super) async fn run(
    app: App,
    file: Arc<ExporterFile>,
    letters: Arc<DeadLetters>,
    stop: watch::Receiver<bool>,
) {
    let newest = Arc::<Newest>::default();
    tokio::select! {
        () = attempt(&app, file, letters, &newest, stop) => {}
        // Also while the peer is gone.
        () = newest.refresh(&app) => {}
    }
}

/// Runs an exporter until `stop` becomes true; notes the newest record of its cursor.
async fn attempt(
    app: &App,
    file: Arc<ExporterFile>,
    letters: Arc<DeadLetters>,
    newest: &Arc<Newest>,
    mut stop: watch::Receiver<bool>,
) {
    let mut attempts = Attempts::default();
    let missed = Missed::default();
    let notes = notes(app, &file.name);
    loop {
        let mut has_written = false;
        let shared = (newest, &missed, &notes);
        let end = export(app, &file, &letters, shared, &mut has_written, &mut stop).await;
        let Err(end) = end else { break };
        attempts.ended(app, &app.exporters, &file.name, &end, has_written);
        app.exporters
            .update(&file.name, |row| row.peer.restarts += 1);
        if attempts.wait(app, &end, &mut stop).await {
            break;
        }
    }
}

/// Exports until a step fails or `stop` becomes true.
async fn export(
    app: &App,
    file: &Arc<ExporterFile>,
    letters: &Arc<DeadLetters>,
    (newest, missed, notes): (&Arc<Newest>, &Missed, &Notes),
    has_written: &mut bool,
    stop: &mut watch::Receiver<bool>,
) -> Result<(), End> {
    let invalid = |error: chappe_stream::DescriptorError| WrapperError::settings(error.to_string());
    let kind = file.kind().map_err(invalid)?;
    let mut cursor = Cursor::open(app, &file.name, newest).await?;
    let mut exporter = (kind.open)(ExporterOpening {
        file,
        notes: notes.clone(),
        drops: app.observability.drops.clone(),
    })?;
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
        reading: Reading::of_exporter(app, &file.name, file.keys.inputs(), missed.clone()),
        under_way: UnderWay::default(),
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
struct Exporting {
    app: App,
    file: Arc<ExporterFile>,
    letters: Arc<DeadLetters>,
    exporter: Box<dyn PeerExporter>,
    cursor: Cursor,
    reading: Reading,
    /// Of an exporter that keeps several batches on their way.
    under_way: UnderWay,
}

impl Exporting {
    async fn run(&mut self, has_written: &mut bool) -> Result<std::convert::Infallible, End> {
        let mut changes = self.app.catalogue.changes();
        let mut keep = tokio::time::interval(KEEP_PERIOD);
        keep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let is_pipelined = self.exporter.is_pipelined();
        if is_pipelined {
            self.reading.read_ahead();
        }
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
                batch = self.reading.next(), if has_room => {
                    self.write(batch?, has_written).await?;
                    if !is_pipelined {
                        self.show();
                    }
                }
                delivered = self.exporter.delivered() => {
                    let delivered = delivered?;
                    *has_written |= !delivered.positions.is_empty();
                    self.on_delivered(delivered).await?;
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
        if self.reading.follow(&mut self.cursor.positions) {
            self.cursor.store(&self.app).await?;
        }
        Ok(())
    }

    /// Passes a batch to the peer. A slow peer gets it in several parts.
    async fn write(&mut self, mut batch: Batch, has_written: &mut bool) -> Result<(), End> {
        while let Some(reached) = self.write_part(&batch, has_written).await? {
            let before = batch.elements();
            for part in &mut batch.parts {
                let stream = part.stream.clone();
                let has = |one: &StreamElement| is_within(&stream, one.position, &reached);
                part.elements.retain(|one| !has(one));
            }
            batch.parts.retain(|part| !part.elements.is_empty());
            match batch.elements() {
                0 => break,
                left if left == before => {
                    let text = "the exporter passed nothing on and gave no reason";
                    return Err(WrapperError::peer(text).into());
                }
                _ => self.show(),
            }
        }
        Ok(())
    }

    /// Passes a batch to the peer once, and moves the cursor if the peer has it. If the peer has only a part,
    /// returns the last element of each stream that it has taken.
    async fn write_part(
        &mut self,
        batch: &Batch,
        has_written: &mut bool,
    ) -> Result<Option<Vec<(String, Position)>>, End> {
        let time = self.exporter.write_time();
        let written = tokio::time::timeout(time, self.exporter.write(batch)).await;
        let late = |_| {
            let text = format!("the peer did not take a batch within {time:?}");
            Err(WrapperError::peer(text))
        };
        let written = written.unwrap_or_else(late)?;
        self.put_aside(written.refused).await?;
        let is_whole = written.partial.is_none();
        let (reached, error) = match written.partial {
            Some(Partial { reached, error }) => (reached, error),
            None => (last_positions(batch), None),
        };
        if self.exporter.is_pipelined() {
            self.under_way.pass(batch);
        } else {
            for (stream, at) in &reached {
                self.cursor.advance(stream, *at);
            }
            self.cursor.store(&self.app).await?;
            self.count(match is_whole {
                true => batch.elements() as u64,
                false => count_until(batch, &reached),
            });
            *has_written = true;
        }
        match error {
            Some(error) => Err(error.into()),
            None => Ok((!is_whole).then_some(reached)),
        }
    }

    /// The peer has elements that were on their way, or refuses them.
    async fn on_delivered(&mut self, delivered: Delivered) -> Result<(), End> {
        self.put_aside(delivered.refused).await?;
        let mut elements = 0;
        for (stream, at) in delivered.positions {
            elements += self.under_way.arrived(&stream, at);
            self.cursor.advance(&stream, at);
        }
        self.count(elements);
        Ok(())
    }

    /// Counts elements that the peer has.
    fn count(&self, elements: u64) {
        let name = &self.file.name;
        self.app
            .exporters
            .update(name, |row| row.peer.elements += elements);
    }

    /// Keeps elements that the peer refused as dead letters.
    async fn put_aside(&mut self, refused: Vec<Refused>) -> Result<(), End> {
        let count = refused.len() as u64;
        let mut acks = Vec::with_capacity(refused.len());
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
            let letter = PeerLetter::Message(Message {
                stream: Some(one.stream),
                reason: one.reason,
                received: clock::now(),
                bytes: one.position.to_string().into_bytes(),
            });
            acks.push(put_letter(&self.app, name, &self.letters, letter).await?);
        }
        for ack in acks {
            ack.await?;
        }
        if count > 0 {
            let name = &self.file.name;
            self.app.exporters.update(name, |row| row.refused += count);
        }
        Ok(())
    }

    /// Updates what the node shows.
    fn show(&self) {
        let streams = self.reading.shown(&self.cursor.positions);
        self.letters.forget_removed();
        let letters = self.letters.count();
        self.app.exporters.update(&self.file.name, |row| {
            let waits = streams
                .is_empty()
                .then(|| "no stream has such a name".to_owned());
            let state = match waits {
                Some(_) => PeerState::Waiting,
                None => PeerState::Running,
            };
            row.peer.set_state(state, waits, None);
            row.streams = streams;
            row.peer.dead_letters = letters;
            row.peer.dead_letters_dropped = self.letters.dropped();
        });
    }
}

/// The last element of each stream of a batch.
fn last_positions(batch: &Batch) -> Vec<(String, Position)> {
    let last = |part: &Part| Some((part.stream.to_string(), part.elements.last()?.position));
    batch.parts.iter().filter_map(last).collect()
}

/// Whether a position in a stream is up to one of these.
fn is_within(stream: &str, at: Position, reached: &[(String, Position)]) -> bool {
    let mut of_stream = reached.iter().filter(|(name, _)| name == stream);
    of_stream.any(|(_, last)| at.epoch == last.epoch && at.sequence <= last.sequence)
}

/// The elements of a batch up to these positions.
fn count_until(batch: &Batch, reached: &[(String, Position)]) -> u64 {
    let count = |part: &Part| {
        let has = |one: &&StreamElement| is_within(&part.stream, one.position, reached);
        part.elements.iter().filter(has).count() as u64
    };
    batch.parts.iter().map(count).sum()
}

/// The newest record of an exporter's cursor.
#[derive(Default)]
struct Newest(Mutex<Option<NewestRecord>>);

struct NewestRecord {
    stream: Stream,
    bytes: Vec<u8>,
    /// The bytes that the log had written when it was appended; 0 for one of an earlier run of the node.
    written: u64,
}

impl Newest {
    fn lock(&self) -> MutexGuard<'_, Option<NewestRecord>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a record that was read.
    fn note(&self, stream: &Stream, bytes: Vec<u8>) {
        let (mut newest, stream) = (self.lock(), stream.clone());
        if newest.as_ref().is_none_or(|known| known.bytes != bytes) {
            let written = 0;
            *newest = Some(NewestRecord {
                stream,
                bytes,
                written,
            });
        }
    }

    /// Appends a record.
    fn append(&self, stream: &Stream, bytes: Vec<u8>, written: u64) -> Result<Appended, Error> {
        let mut newest = self.lock();
        let appended = stream.append(records(&bytes))?;
        let stream = stream.clone();
        *newest = Some(NewestRecord {
            stream,
            bytes,
            written,
        });
        Ok(appended)
    }

    /// Appends the newest record again whenever the log has written a segment since: the size limit removes old
    /// segments, and an exporter may have nothing to do for long. Runs for ever.
    async fn refresh(&self, app: &App) {
        let mut tick = tokio::time::interval(REFRESH_PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let written = app.storage.log.counters().bytes;
            let mut newest = self.lock();
            let Some(newest) = newest.as_mut() else {
                continue;
            };
            if written.saturating_sub(newest.written) < app.config.log.segment_bytes {
                continue;
            }
            // If the log refuses it, it is tried again.
            if let Ok(appended) = newest.stream.append(records(&newest.bytes)) {
                drop(appended);
                newest.written = written;
            }
        }
    }
}

/// One record of a cursor.
fn records(bytes: &[u8]) -> Records {
    let mut records = Records::with_capacity(1, bytes.len());
    records.push(0, bytes);
    records
}

/// The stored cursor of an exporter.
struct Cursor {
    app: App,
    stream: Stream,
    newest: Arc<Newest>,
    positions: Positions,
    /// Whether they changed since they were appended.
    is_changed: bool,
    /// The record that is on its way, and was not waited for.
    under_way: Option<Appended>,
    since_trim: u64,
}

impl Cursor {
    /// Reads the cursor of the exporter `name`.
    async fn open(app: &App, name: &str, shared: &Arc<Newest>) -> Result<Self, StoreError> {
        let (store, level) = (app.storage.log.clone(), app.config.log.level);
        let name = format!("exporter-progress/{name}");
        let opened = tokio::task::spawn_blocking(move || store.stream(&name, level, &[FORMAT]));
        let stream = opened.await.unwrap_or(Err(Error::Closed))?;
        // Records of an earlier run of the exporter may be on their way.
        stream.settled().await;
        let newest = stream.newest(1)?;
        let record = newest.last().map(|record| record.payload.as_slice());
        let positions = match record.map(<[u8]>::split_first) {
            None => Some(Positions::new()),
            Some(Some((&FORMAT, bytes))) => reading::decode(bytes),
            Some(Some((&found, _))) if found > FORMAT => {
                return Err(Error::newer_format(stream.name(), found, FORMAT).into());
            }
            Some(_) => None,
        };
        if let Some(record) = newest.last() {
            shared.note(&stream, record.payload.clone());
        }
        Ok(Self {
            app: app.clone(),
            newest: shared.clone(),
            positions: positions.ok_or_else(|| StoreError::Metadata(stream.name()))?,
            is_changed: false,
            under_way: None,
            stream,
            since_trim: 0,
        })
    }

    /// Moves on to a position, never back within an epoch.
    fn advance(&mut self, stream: &str, at: Position) {
        let known = self.positions.get(stream).copied();
        reading::advance(&mut self.positions, stream, at);
        self.is_changed |= self.positions.get(stream).copied() != known;
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
        let mut bytes = vec![FORMAT];
        bytes.extend(reading::encode(&self.positions));
        let written = self.app.storage.log.counters().bytes;
        let appended = self.newest.append(&self.stream, bytes, written)?;
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
