//! The wrapper of a file.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chappe_stream::DescriptorError;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::task::JoinHandle;

use super::follow::{Follower, GRACE, Item, Piece, Series, Start};
use super::replay::Replay;
use super::rotation::Place;
use crate::clock::{FUTURE_NS, now};
use crate::{
    BATCH_BYTES_MAX, Batch, Condition, Delivery, FormatKey, Lost, Mark, Step, StreamDefinition,
    Undecodable, Wrapper, WrapperError, WrapperFile, WrapperKind, WrapperOpening, element_weight,
};

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "file",
    about: "the lines of a file, through its rotation",
    delivery: Delivery {
        acknowledges: "never: a file is not told",
        resumes: "file and offset",
        may_double: "no",
        may_miss: "lines that are deleted or overwritten before they are read",
        back_pressure: "the file is read no faster than it is stored",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: None,
};

/// The keys of a wrapper of kind `file`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    /// The file. Rotated files next to it are found by their names: `NAME.1`, `NAME-20260101`,
    /// `STEM-20260101.EXTENSION`. Relative to this file.
    path: PathBuf,
    /// The columns of a CSV without a header. Default: the first line names them.
    columns: Option<Vec<String>>,
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
    /// Time between two looks at the end of the file. Default: 500.
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
    /// As its times say.
    Recorded,
}

fn one() -> f64 {
    1.0
}

fn poll_default() -> u64 {
    500
}

fn settings(file: &WrapperFile) -> Result<Settings, DescriptorError> {
    let settings: Settings = file.settings()?;
    let wrong = |key: &str, text: &str| Err(file.fault(key, text.to_owned(), None));
    if file.keys.streams.len() != 1 {
        return wrong("stream", "a file needs exactly one [[stream]]");
    }
    if settings.path.file_name().is_none() {
        return wrong("path", "the path names no file");
    }
    if !(0.001..=1e6).contains(&settings.speed) {
        return wrong("speed", "it is not within 0.001 to 1000000");
    }
    if !(10..=3_600_000).contains(&settings.poll_ms) {
        return wrong("poll_ms", "it is not within 10 to 3600000");
    }
    if settings.columns.is_some() && file.keys.format != FormatKey::Csv {
        return wrong("columns", "only a file of format \"csv\" has columns");
    }
    Ok(settings)
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let file = opening.file;
    let settings = settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let table = &file.keys.streams[0];
    let definition = table.definition(file.keys.level);
    let series = Series {
        path: file.path(&settings.path),
        format: file.keys.format.of_lines(),
        schema: Arc::new(definition.schema.clone()),
        columns: settings.columns,
        start: settings.start,
        grace: GRACE,
        future_ns: FUTURE_NS,
    };
    let resume = opening.mark.as_ref().map(Place::read).transpose()?;
    Ok(Box::new(FileWrapper {
        stage: Stage::Idle(Some(Box::new(Follower::new(series, resume)))),
        queue: VecDeque::new(),
        lost: Vec::new(),
        replay: (settings.pace == Pace::Recorded).then(|| Replay::new(settings.speed)),
        stream: table.name.as_str().into(),
        definition,
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
    stream: Arc<str>,
    definition: Arc<StreamDefinition>,
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
        Some(match (&mut self.replay, &item.element) {
            (Some(replay), Ok(element)) => replay.due(element.source_time, now),
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
            match item.element {
                Ok(element) => {
                    weight += element_weight(&element);
                    batch.push(&self.stream, &self.definition, element);
                }
                Err((reason, message)) => {
                    weight += message.len();
                    batch.undecodable.push(Undecodable {
                        stream: Some(self.stream.to_string()),
                        reason,
                        message,
                    });
                }
            }
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
