//! The exporter: elements that a program reads.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use chappe_stream::{DescriptorError, Position};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::lines::Line;
use super::process::{Process, Program};
use super::protocol::{Message, element_lines, line};
use crate::{
    Batch, Exporter, ExporterFile, ExporterKind, ExporterOpening, Notes, Refused, Step,
    WrapperError, Written,
};

/// The kind.
pub(crate) const EXPORTER: ExporterKind = ExporterKind {
    name: "program",
    about: "a program that reads elements",
    written: "the program has answered `stored`",
    may_double: "yes, unless the program reports what it has, or recognizes stream, epoch and number",
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
};

/// The keys of an exporter of kind `program`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(flatten)]
    program: Program,
}

fn settings(file: &ExporterFile) -> Result<Settings, DescriptorError> {
    let settings: Settings = file.settings()?;
    match settings.program.fault() {
        Some((key, text)) => Err(file.fault(key, text.to_owned(), None)),
        None => Ok(settings),
    }
}

fn open(opening: ExporterOpening<'_>) -> Result<Box<dyn Exporter>, WrapperError> {
    let file = opening.file;
    let settings = settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    Ok(Box::new(ProgramExporter {
        process: None,
        program: settings.program,
        directory: file.path("".as_ref()),
        name: file.name.clone(),
        notes: opening.notes,
        marks: 0,
    }))
}

/// Runs a program.
struct ProgramExporter {
    process: Option<Process>,
    program: Program,
    directory: PathBuf,
    name: String,
    notes: Notes,
    /// Batches so far.
    marks: u64,
}

impl Exporter for ProgramExporter {
    fn write_time(&self) -> Duration {
        // To read the lines, and to answer.
        2 * self.program.answer_time() + Duration::from_secs(1)
    }

    fn resume(&mut self) -> Step<'_, Result<Vec<(String, Position)>, WrapperError>> {
        Box::pin(async {
            let mut process =
                Process::start(&self.program, &self.directory, &self.name, &self.notes)?;
            let start = json!({ "start": {
                "role": "exporter",
                "name": self.name,
                "settings": self.program.settings,
            }});
            let time = self.program.answer_time();
            process.write(&line(&start), time).await?;
            let ready = self.answer(&mut process, "ready", |message| match message {
                Message::Ready(reached) => Some(reached),
                _ => None,
            });
            let reached = ready.await?;
            self.process = Some(process);
            let read = reached.into_iter().map(|one| {
                let position = position(&one.position)?;
                Ok((one.stream, position))
            });
            read.collect()
        })
    }

    fn write<'a>(&'a mut self, batch: &'a Batch) -> Step<'a, Result<Written, WrapperError>> {
        Box::pin(async move {
            // A write that fails, or is dropped, ends the process: the next batch would come in its middle.
            let Some(mut process) = self.process.take() else {
                return Err(WrapperError::peer("the program has ended"));
            };
            self.marks += 1;
            let mark = self.marks;
            let mut lines = element_lines(batch);
            lines.extend(line(&json!({ "mark": mark })));
            process.write(&lines, self.program.answer_time()).await?;
            let mut refused = Vec::new();
            let stored = self.answer(&mut process, "stored", |message| match message {
                Message::Stored { mark: stored, .. } => (stored == mark).then_some(()),
                Message::Refused(one) => {
                    refused.push(one);
                    None
                }
                _ => None,
            });
            stored.await?;
            let positions = positions(batch);
            let refused = refused.into_iter().map(|one| {
                let position = position(&one.position)?;
                if !positions.contains_key(&(&*one.stream, position)) {
                    let text = format!(
                        "the program refused {} of {}, which is not in the batch",
                        one.position, one.stream
                    );
                    return Err(WrapperError::peer(text));
                }
                Ok(Refused {
                    stream: one.stream,
                    position,
                    reason: one.reason,
                })
            });
            let refused = refused.collect::<Result<_, _>>()?;
            self.process = Some(process);
            Ok(Written {
                refused,
                partial: None,
            })
        })
    }
}

impl ProgramExporter {
    /// Waits for a message.
    async fn answer<T>(
        &self,
        process: &mut Process,
        name: &str,
        mut pick: impl FnMut(Message<'_>) -> Option<T>,
    ) -> Result<T, WrapperError> {
        let time = self.program.answer_time();
        let answer = async {
            loop {
                while let Some(line) = process.lines.take() {
                    let (Line::Whole(line) | Line::Cut(line)) = line else {
                        return Err(WrapperError::peer("a line is too long"));
                    };
                    let text = String::from_utf8_lossy(line);
                    let message = Message::read(&text).map_err(|error| {
                        WrapperError::peer(format!("{error}, in the line {text:.200}"))
                    })?;
                    if let Message::Trouble(Some(text)) = message {
                        return Err(WrapperError::peer(text));
                    }
                    if let Some(found) = pick(message) {
                        return Ok(found);
                    }
                }
                if !process.read().await? {
                    return Err(process.ended().await);
                }
            }
        };
        match tokio::time::timeout(time, answer).await {
            Ok(answer) => answer,
            Err(_) => {
                let text = format!("no {name:?} within {} s", time.as_secs_f64());
                Err(WrapperError::peer(text))
            }
        }
    }
}

fn position(text: &str) -> Result<Position, WrapperError> {
    let wrong = |_| WrapperError::peer(format!("{text:?} is not a position EPOCH:NUMBER"));
    text.parse().map_err(wrong)
}

fn positions(batch: &Batch) -> HashMap<(&str, Position), ()> {
    let of_part = |part: &crate::Part| part.elements.len();
    let mut positions = HashMap::with_capacity(batch.parts.iter().map(of_part).sum());
    for part in &batch.parts {
        for element in &part.elements {
            positions.insert((&*part.stream, element.position), ());
        }
    }
    positions
}
