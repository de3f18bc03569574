//! The task of one exporter: reads its streams by a cursor of its own, and passes them to the peer.
//!
//! The cursor is stored in the log after each batch that the peer has, before the next batch is passed:
//! after a crash at most one batch is passed again, and an exporter whose peer can tell how far it came
//! passes none.

use std::sync::Arc;
use std::time::Duration;

use chappe_links::{DeadLetters, Message};
use chappe_log::{Batch as Records, Error, Stream};
use chappe_stream::StoreError;
use chappe_transport::Hop;
use chappe_wrappers::{
    Batch, Exporter as PeerExporter, ExporterFile, ExporterOpening, Notes, WrapperError,
};
use tokio::sync::watch;

use super::pause::Pause;
use super::reading::{self, Missed, Positions, Reading};
use super::store::put_letter;
use super::{PeerState, Row as _, notes};
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
    let missed = Missed::default();
    let notes = notes(&app, &file.name);
    loop {
        let mut has_written = false;
        let end = tokio::select! {
            end = export(&app, &file, &letters, (&missed, &notes), &mut has_written) => end,
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
    (missed, notes): (&Missed, &Notes),
    has_written: &mut bool,
) -> Result<std::convert::Infallible, End> {
    let invalid = |error: chappe_stream::DescriptorError| WrapperError::settings(error.to_string());
    let kind = file.kind().map_err(invalid)?;
    let mut cursor = Cursor::open(app, &file.name).await?;
    let notes = notes.clone();
    let mut exporter = (kind.open)(ExporterOpening { file, notes })?;
    for (stream, at) in exporter.resume().await? {
        reading::advance(&mut cursor.positions, &stream, at);
    }
    let mut exporting = Exporting {
        app: app.clone(),
        file: file.clone(),
        letters: letters.clone(),
        exporter,
        cursor,
        reading: Reading::of_exporter(app, &file.name, file.keys.inputs(), missed.clone()),
    };
    exporting.run(has_written).await
}

/// An exporter that is open.
struct Exporting {
    app: App,
    file: Arc<ExporterFile>,
    letters: Arc<DeadLetters>,
    exporter: Box<dyn PeerExporter>,
    cursor: Cursor,
    reading: Reading,
}

impl Exporting {
    async fn run(&mut self, has_written: &mut bool) -> Result<std::convert::Infallible, End> {
        let mut changes = self.app.catalogue.changes();
        self.follow().await?;
        self.show();
        loop {
            let batch = tokio::select! {
                biased;
                changed = changes.changed() => {
                    // The catalogue lives as long as the node.
                    let _ = changed;
                    self.follow().await?;
                    self.show();
                    continue;
                }
                batch = self.reading.next() => batch?,
            };
            self.write(&batch).await?;
            *has_written = true;
            self.show();
        }
    }

    /// Follows the streams that the file selects.
    async fn follow(&mut self) -> Result<(), End> {
        if self.reading.follow(&mut self.cursor.positions) {
            self.cursor.store(&self.app).await?;
        }
        Ok(())
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
                let positions = &mut self.cursor.positions;
                reading::advance(positions, &part.stream, last.position);
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
        let streams = self.reading.shown(&self.cursor.positions);
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

/// The stored cursor of an exporter.
struct Cursor {
    stream: Stream,
    positions: Positions,
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
            None => Some(Positions::new()),
            Some(Some((&FORMAT, bytes))) => reading::decode(bytes),
            Some(_) => None,
        };
        Ok(Self {
            positions: positions.ok_or_else(|| StoreError::Metadata(stream.name()))?,
            stream,
            since_trim: 0,
        })
    }

    /// Stores the positions; returns when they are safe.
    async fn store(&mut self, app: &App) -> Result<(), StoreError> {
        let mut bytes = vec![FORMAT];
        bytes.extend(reading::encode(&self.positions));
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
