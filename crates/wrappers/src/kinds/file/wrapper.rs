//! The wrapper of a file.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use chappe_stream::DescriptorError;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::task::JoinHandle;

use super::follow::{Follower, GRACE, Item, Piece, Series, Start};
use super::records::Rows;
use super::replay::Replay;
use super::rotation::Place;
use crate::clock::now;
use crate::decode::Decoder;
use crate::{
    BATCH_BYTES_MAX, Batch, Condition, Delivery, Lost, Mark, Step, Wrapper, WrapperError,
    WrapperFile, WrapperKind, WrapperOpening,
};

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "file",
    about: "the lines of a file, through its rotation",
    delivery: Delivery {
        acknowledges: "never: a file needs no acknowledgement",
        resumes: "file and offset",
        may_double: "no",
        may_miss: "lines that are deleted or overwritten before they are read, or written to a renamed file more than a second after the next one has lines",
        back_pressure: "the file is read no faster than it is stored",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: Some(crate::kinds::browse::file),
};

/// The keys of a wrapper of kind `file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The file. Rotated files next to it are found by their names: `NAME.1`, `NAME-20260101`,
    /// `STEM-20260101.EXTENSION`. Relative to this file.
    path: PathBuf,
    /// Where to start if the file was never read: at the oldest rotated file, at the beginning of the
    /// current one, or at its end. Default: current.
    #[serde(default)]
    start: Start,
    /// Read as fast as possible, or at the pace of the recorded times. Default: full.
    #[serde(default)]
    pace: Pace,
    /// How many recorded seconds pass in one second, with `pace = "recorded"`. Default: 1.
    #[serde(default = "one")]
    #[schemars(range(min = 0.001, max = 1_000_000.0))]
    speed: f64,
    /// Time between two checks of the end of the file. Default: 500.
    #[serde(default = "poll_default")]
    #[schemars(range(min = 10, max = 3_600_000), extend("x-unit" = "milliseconds"))]
    poll_ms: u64,
}

/// How fast a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Pace {
    /// As fast as it can be stored.
    #[default]
    Full,
    /// At the pace of its times.
    Recorded,
}

fn one() -> f64 {
    1.0
}

fn poll_default() -> u64 {
    500
}

fn settings(file: &WrapperFile) -> Result<(Settings, Decoder), DescriptorError> {
    let settings: Settings = file.settings()?;
    let wrong = |key: &str, text: &str| Err(file.fault(key, text.to_owned(), None));
    if settings.path.file_name().is_none() {
        return wrong("path", "the path names no file");
    }
    if !(0.001..=1e6).contains(&settings.speed) {
        return wrong("speed", "it is not within 0.001 to 1000000");
    }
    if !(10..=3_600_000).contains(&settings.poll_ms) {
        return wrong("poll_ms", "it is not within 10 to 3600000");
    }
    Ok((settings, Decoder::new(file, &[])?))
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let file = opening.file;
    let (settings, decoder) =
        settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let format = file.keys.format.as_ref();
    let series = Series {
        path: file.path(&settings.path),
        rows: format
            .and_then(|format| format.get_ref().csv())
            .map(Rows::of),
        start: settings.start,
        grace: GRACE,
    };
    let resume = opening.mark.as_ref().map(Place::read).transpose()?;
    Ok(Box::new(FileWrapper {
        stage: Stage::Idle(Some(Box::new(Follower::new(series, decoder, resume)))),
        queue: VecDeque::new(),
        lost: Vec::new(),
        replay: (settings.pace == Pace::Recorded).then(|| Replay::new(settings.speed)),
        poll: Duration::from_millis(settings.poll_ms),
        look_at: None,
        mark: opening.mark.unwrap_or_default(),
        condition: opening.condition,
    }))
}

/// Follows a file.
struct FileWrapper {
    stage: Stage,
    /// Records that were read and not returned yet: at most those of one piece.
    queue: VecDeque<Item>,
    lost: Vec<Lost>,
    replay: Option<Replay>,
    poll: Duration,
    /// When to look at the end of the file again.
    look_at: Option<Instant>,
    /// The mark of the last batch.
    mark: Mark,
    condition: Condition,
}

/// The thread that has the follower.
enum Stage {
    /// This one; `None` after a read that failed.
    Idle(Option<Box<Follower>>),
    /// One that may block on the disk.
    Reading(JoinHandle<(Box<Follower>, Result<Piece, WrapperError>)>),
}

impl Wrapper for FileWrapper {
    fn repeats(&self) -> bool {
        true
    }

    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            loop {
                if let Some(batch) = self.batch(Instant::now()) {
                    return Ok(batch);
                }
                if let Some(due) = self.due(Instant::now()) {
                    tokio::time::sleep_until(due.into()).await;
                    continue;
                }
                if let Some(look_at) = self.look_at {
                    tokio::time::sleep_until(look_at.into()).await;
                    self.look_at = None;
                }
                self.read().await?;
            }
        })
    }
}

impl FileWrapper {
    /// When the first record of the queue is due, if there is one.
    fn due(&mut self, now: Instant) -> Option<Instant> {
        let item = self.queue.front()?;
        let first = item
            .batch
            .parts
            .iter()
            .flat_map(|part| &part.elements)
            .next();
        Some(match (&mut self.replay, first) {
            (Some(replay), Some(element)) => replay.due(element.source_time, now),
            _ => now,
        })
    }

    /// The records that are due; `None` if there are none.
    fn batch(&mut self, now: Instant) -> Option<Batch> {
        let mut batch = Batch {
            lost: std::mem::take(&mut self.lost),
            ..Batch::default()
        };
        let (mut weight, mut last) = (0, None);
        while weight < BATCH_BYTES_MAX / 2 && self.due(now).is_some_and(|due| due <= now) {
            let Some(item) = self.queue.pop_front() else {
                break;
            };
            weight += item.batch.weight();
            batch.append(item.batch);
            last = Some(item.end);
        }
        if let Some(place) = last {
            self.mark = place.mark();
        }
        let is_empty = batch.parts.is_empty() && batch.undecodable.is_empty();
        if is_empty && batch.lost.is_empty() {
            return None;
        }
        batch.mark = self.mark.clone();
        Some(batch)
    }

    /// Reads the next piece, on a thread that may block.
    async fn read(&mut self) -> Result<(), WrapperError> {
        let failed = || WrapperError::peer("reading the file was interrupted");
        if let Stage::Idle(follower) = &mut self.stage {
            let mut follower = follower.take().ok_or_else(failed)?;
            self.stage = Stage::Reading(tokio::task::spawn_blocking(move || {
                let read = follower.read(now());
                (follower, read)
            }));
        }
        let Stage::Reading(reading) = &mut self.stage else {
            return Ok(());
        };
        let (follower, piece) = reading.await.map_err(|_| failed())?;
        self.stage = Stage::Idle(Some(follower));
        let piece = piece?;
        match piece.waits {
            Some(reason) => {
                self.condition.waits(reason);
                self.look_at = Some(Instant::now() + self.poll);
            }
            None => self.condition.runs(),
        }
        self.queue.extend(piece.items);
        self.lost.extend(piece.lost);
        Ok(())
    }
}
