//! The wrapper: elements that a program prints.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use chappe_stream::lines::{ElementReader, Format, Line as Record};
use chappe_stream::{DescriptorError, check_name};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use super::process::{Line, Process, Program};
use super::protocol::{Answer, Message, line, mark_value};
use crate::clock::now;
use crate::decode::Decoder;
use crate::{
    BATCH_BYTES_MAX, Batch, Command, Condition, Delivery, Mark, Step, StreamDefinition,
    Undecodable, Wrapper, WrapperError, WrapperFile, WrapperKind, WrapperOpening, element_weight,
};

/// How far ahead of this clock the time of an element may be, in nanoseconds. Five minutes: clocks that
/// are set by hand.
const FUTURE_NS: i64 = 300 * 1_000_000_000;
/// Bytes of a line that is no message that are kept; reason: a person looks at them.
const KEPT_BYTES: usize = 64 << 10;

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "program",
    about: "the output of a program: messages, or lines in any format",
    delivery: Delivery {
        acknowledges: "each mark, after everything before it is stored",
        resumes: "the program's last stored mark",
        may_double: "without marks: elements that the program prints again",
        may_miss: "without marks: elements that were printed and not stored when the node was killed",
        back_pressure: "its standard output is not read: its writes block",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: None,
};

/// The keys of a wrapper of kind `program`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Settings {
    #[serde(flatten)]
    pub(super) program: Program,
    /// What the program prints. Default: messages.
    #[serde(default)]
    output: Output,
    /// Whether the program prints marks. Then elements are stored with the mark that follows them,
    /// exactly once. Default: false.
    #[serde(default)]
    pub(super) marks: bool,
}

/// What the program prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Output {
    /// Messages, one JSON object a line.
    #[default]
    Messages,
    /// Elements of the only stream, in the file's `format`.
    Elements,
}

pub(super) fn settings(file: &WrapperFile) -> Result<Settings, DescriptorError> {
    let settings: Settings = file.settings()?;
    let wrong = |key: &str, text: &str| Err(file.fault(key, text.to_owned(), None));
    if let Some((key, text)) = settings.program.fault() {
        return wrong(key, text);
    }
    match settings.output {
        Output::Elements => {
            Decoder::new(file, &[])?;
            if settings.marks {
                return wrong("marks", "only a program that prints messages has marks");
            }
        }
        Output::Messages if file.fixed_streams().len() < file.keys.streams.len() => {
            return wrong(
                "stream",
                "a program names its streams itself, without placeholders",
            );
        }
        Output::Messages if file.keys.format.is_some() => {
            return wrong("format", "only output = \"elements\" has a format");
        }
        Output::Messages => {}
    }
    Ok(settings)
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let file = opening.file;
    let settings = settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let first_line = first_line(file, &settings, opening.mark.as_ref());
    let mut wrapper = ProgramWrapper {
        process: None,
        first_line,
        program: settings.program,
        directory: file.path("".as_ref()),
        name: file.name.clone(),
        commands: file
            .keys
            .commands
            .iter()
            .map(|one| one.name.clone())
            .collect(),
        output: settings.output,
        has_marks: settings.marks,
        streams: HashMap::new(),
        only: None,
        streams_max: file.keys.limits.streams as usize,
        level: file.keys.level,
        decoder: None,
        prologue: Vec::new(),
        ready: Batch::default(),
        pending: Batch::default(),
        pending_weight: 0,
        weight: 0,
        mark: opening.mark.unwrap_or_default(),
        calls: 0,
        answers: Vec::new(),
        condition: opening.condition,
        has_news: false,
    };
    match wrapper.output {
        Output::Elements => {
            let decoder = Decoder::new(file, &[]);
            let decoder = decoder.map_err(|error| WrapperError::settings(error.to_string()))?;
            wrapper.decoder = Some(decoder);
        }
        Output::Messages => {
            for (name, definition) in file.fixed_streams() {
                wrapper
                    .define(&name, definition)
                    .map_err(WrapperError::settings)?;
            }
        }
    }
    Ok(Box::new(wrapper))
}

/// What a program receives when it starts; nothing if it prints no messages.
pub(super) fn first_line(file: &WrapperFile, settings: &Settings, mark: Option<&Mark>) -> Vec<u8> {
    if settings.output == Output::Elements {
        return Vec::new();
    }
    let streams = file.fixed_streams().into_iter().map(|(name, _)| name);
    let streams: Vec<String> = streams.collect();
    line(&json!({ "start": {
        "role": "wrapper",
        "name": file.name,
        "settings": settings.program.settings,
        "mark": mark.map(mark_value),
        "streams": streams,
    }}))
}

/// Runs a program.
struct ProgramWrapper {
    process: Option<Process>,
    /// What the program receives when it starts.
    first_line: Vec<u8>,
    program: Program,
    directory: PathBuf,
    name: String,
    commands: Vec<String>,
    output: Output,
    has_marks: bool,
    streams: HashMap<Arc<str>, Reader>,
    /// The stream of elements without a name, if there is exactly one.
    only: Option<Arc<str>>,
    streams_max: usize,
    level: Option<chappe_log::Level>,
    /// Reads the elements of a program that prints no messages.
    decoder: Option<Decoder>,
    /// Its first line, which names columns in some formats.
    prologue: Vec<u8>,
    /// What can be returned; with marks, everything up to the last one.
    ready: Batch,
    /// Elements after the last mark.
    pending: Batch,
    weight: usize,
    pending_weight: usize,
    /// The last mark.
    mark: Mark,
    has_news: bool,
    /// Commands called so far.
    calls: u64,
    answers: Vec<Answer>,
    condition: Condition,
}

/// Reads the elements of one stream.
struct Reader {
    definition: Arc<StreamDefinition>,
    elements: ElementReader,
}

impl Reader {
    fn new(definition: Arc<StreamDefinition>) -> Self {
        let schema = Arc::new(definition.schema.clone());
        Self {
            definition,
            elements: ElementReader::new(Format::Ndjson, schema, FUTURE_NS),
        }
    }
}

impl Wrapper for ProgramWrapper {
    fn next(&mut self) -> Step<'_, Result<Batch, WrapperError>> {
        Box::pin(async {
            if self.process.is_none() {
                self.start().await?;
            }
            loop {
                self.decode()?;
                if let Some(batch) = self.batch() {
                    return Ok(batch);
                }
                let Some(process) = &mut self.process else {
                    return Err(WrapperError::peer("the program has ended"));
                };
                if !process.read().await? {
                    let error = process.ended().await;
                    self.process = None;
                    return Err(error);
                }
            }
        })
    }

    fn stored<'a>(&'a mut self, mark: &'a Mark) -> Step<'a, Result<(), WrapperError>> {
        Box::pin(async move {
            if !self.has_marks || mark.bytes().is_empty() {
                return Ok(());
            }
            self.send(&json!({ "stored": mark_value(mark) })).await
        })
    }

    fn command<'a>(&'a mut self, command: &'a Command) -> Step<'a, Result<Json, WrapperError>> {
        Box::pin(async move {
            if self.output != Output::Messages || !self.commands.contains(&command.name) {
                let text = format!("this wrapper has no command {:?}", command.name);
                return Err(WrapperError::Command(text));
            }
            self.calls += 1;
            let id = self.calls;
            let call = json!({ "id": id, "name": command.name, "arguments": command.arguments });
            self.send(&json!({ "command": call })).await?;
            let time = self.program.answer_time();
            let answer = tokio::time::timeout(time, self.answer(id)).await;
            let answer = answer.map_err(|_| {
                let text = format!("no answer within {} s", time.as_secs_f64());
                WrapperError::Command(text)
            })??;
            match answer.error {
                Some(error) => Err(WrapperError::Command(error)),
                None => Ok(answer.result),
            }
        })
    }
}

impl ProgramWrapper {
    async fn start(&mut self) -> Result<(), WrapperError> {
        let mut process = Process::start(&self.program, &self.directory, &self.name)?;
        process
            .write(&self.first_line, self.program.answer_time())
            .await?;
        self.process = Some(process);
        self.condition.runs();
        Ok(())
    }

    async fn send(&mut self, message: &impl Serialize) -> Result<(), WrapperError> {
        let Some(process) = &mut self.process else {
            return Err(WrapperError::peer("the program does not run"));
        };
        process
            .write(&line(message), self.program.answer_time())
            .await
    }

    /// Waits for the answer to a command; elements that come meanwhile are kept for the next batch.
    async fn answer(&mut self, id: u64) -> Result<Answer, WrapperError> {
        loop {
            self.decode()?;
            if let Some(at) = self.answers.iter().position(|answer| answer.id == id) {
                self.answers.truncate(at + 1);
                return Ok(self.answers.swap_remove(at));
            }
            if self.is_full() {
                let text = "the program answers after more elements than one batch takes";
                return Err(WrapperError::Command(text.to_owned()));
            }
            let Some(process) = &mut self.process else {
                return Err(WrapperError::peer("the program has ended"));
            };
            if !process.read().await? {
                return Err(process.ended().await);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.weight + self.pending_weight >= BATCH_BYTES_MAX / 2
    }

    /// Reads what has arrived, as far as it fits into one batch.
    fn decode(&mut self) -> Result<(), WrapperError> {
        if self.output == Output::Elements {
            self.decode_elements();
            return Ok(());
        }
        while !self.is_full() {
            match self.process.as_mut().and_then(Process::line) {
                None => return Ok(()),
                Some(Line::TooLong(line)) => {
                    self.refuse(None, "the line is too long".to_owned(), &line);
                }
                Some(Line::Whole(line)) => self.decode_line(&line)?,
            }
        }
        if self.weight == 0 {
            let bytes = BATCH_BYTES_MAX / 2;
            let text = format!("the program printed {bytes} bytes of elements without a mark");
            return Err(WrapperError::peer(text));
        }
        Ok(())
    }

    /// Reads lines that are elements in the format of the file.
    fn decode_elements(&mut self) {
        let (Some(decoder), Some(process)) = (&mut self.decoder, &mut self.process) else {
            return;
        };
        while self.weight < BATCH_BYTES_MAX / 2 {
            let mut line = match process.line() {
                None => return,
                Some(Line::TooLong(line)) => {
                    return self.refuse(None, "the line is too long".to_owned(), &line);
                }
                Some(Line::Whole(line)) => line,
            };
            line.push(b'\n');
            let is_first = self.prologue.is_empty();
            decoder.piece(&line, now(), is_first, &self.prologue, &mut self.ready);
            self.weight += line.len() + 64;
            if is_first {
                self.prologue = line;
            }
        }
    }

    fn decode_line(&mut self, line: &[u8]) -> Result<(), WrapperError> {
        let Ok(text) = std::str::from_utf8(line) else {
            self.refuse(None, "the line is not UTF-8".to_owned(), line);
            return Ok(());
        };
        match Message::read(text) {
            Ok(Message::Element {
                stream,
                element,
                mark,
            }) => {
                self.element(stream.as_deref(), element, line);
                mark.map_or(Ok(()), |mark| self.marked(mark))
            }
            Ok(Message::Mark(mark)) => self.marked(mark),
            Ok(Message::Stream(stream)) => {
                let definition = stream.definition(self.level);
                if let Err(reason) = self.define(&stream.name, definition) {
                    self.refuse(None, reason, line);
                }
                Ok(())
            }
            Ok(Message::Trouble(Some(text))) => {
                self.condition.waits(text);
                Ok(())
            }
            Ok(Message::Trouble(None)) => {
                self.condition.runs();
                Ok(())
            }
            Ok(Message::Answer(answer)) => {
                // An answer that nobody waits for any more is dropped.
                if answer.id == self.calls {
                    self.answers.clear();
                    self.answers.push(answer);
                }
                Ok(())
            }
            Ok(Message::Ready(_)) => Ok(()),
            Ok(Message::Stored(_) | Message::Refused(_)) => {
                self.refuse(None, "only an exporter sends this message".to_owned(), line);
                Ok(())
            }
            Err(reason) => {
                self.refuse(None, reason, line);
                Ok(())
            }
        }
    }

    fn element(&mut self, stream: Option<&str>, element: &str, line: &[u8]) {
        let name = match stream {
            Some(name) => self
                .streams
                .get_key_value(name)
                .map(|(name, _)| name.clone()),
            None => self.only.clone(),
        };
        let Some(name) = name else {
            let reason = match stream {
                Some(name) => format!("{name:?} is not a stream of this wrapper"),
                None => "the element names no stream, and there is not exactly one".to_owned(),
            };
            return self.refuse(stream, reason, line);
        };
        let Some(reader) = self.streams.get_mut(&name) else {
            return;
        };
        let mut records = Vec::new();
        let time = now();
        let pushed = reader
            .elements
            .push(element.as_bytes(), time, &mut records)
            .and_then(|()| reader.elements.push(b"\n", time, &mut records));
        let definition = reader.definition.clone();
        if let Err(broken) = pushed {
            *reader = Reader::new(definition.clone());
            self.refuse(Some(&name), broken.to_string(), line);
        }
        self.add(&name, &definition, records, line);
    }

    fn add(
        &mut self,
        name: &Arc<str>,
        definition: &Arc<StreamDefinition>,
        records: Vec<Record>,
        line: &[u8],
    ) {
        for record in records {
            match record.element {
                Ok(element) => {
                    let weight = element_weight(&element);
                    if self.has_marks {
                        self.pending_weight += weight;
                        self.pending.push(name, definition, element);
                    } else {
                        self.weight += weight;
                        self.ready.push(name, definition, element);
                    }
                }
                Err(error) => self.refuse(Some(name), error.to_string(), line),
            }
        }
    }

    /// The program has read its source up to this mark.
    fn marked(&mut self, mark: Mark) -> Result<(), WrapperError> {
        if !self.has_marks {
            let text = "the program prints marks, and the file does not say so";
            return Err(WrapperError::settings(text).with_hint("marks = true"));
        }
        let pending = std::mem::take(&mut self.pending);
        for part in pending.parts {
            for element in part.elements {
                self.ready.push(&part.stream, &part.definition, element);
            }
        }
        self.ready.undecodable.extend(pending.undecodable);
        self.weight += std::mem::take(&mut self.pending_weight);
        self.mark = mark;
        self.has_news = true;
        Ok(())
    }

    /// A message that cannot be used becomes a dead letter.
    fn refuse(&mut self, stream: Option<&str>, reason: String, message: &[u8]) {
        let message = message[..message.len().min(KEPT_BYTES)].to_vec();
        let weight = message.len() + 128;
        let one = Undecodable {
            stream: stream.map(str::to_owned),
            reason,
            message,
        };
        if self.has_marks {
            self.pending_weight += weight;
            self.pending.undecodable.push(one);
        } else {
            self.weight += weight;
            self.ready.undecodable.push(one);
        }
    }

    fn define(&mut self, name: &str, definition: StreamDefinition) -> Result<(), String> {
        check_name(name).map_err(|error| error.to_string())?;
        if definition.schema.fields.is_empty() {
            return Err(format!("{name}: a stream needs at least one field"));
        }
        let checked = definition.schema.check_names();
        checked.map_err(|error| format!("{name}: {error}"))?;
        let is_known = self.streams.contains_key(name);
        if !is_known && self.streams.len() >= self.streams_max {
            return Err(format!(
                "the limit of {} streams is reached",
                self.streams_max
            ));
        }
        let name: Arc<str> = name.into();
        self.streams
            .insert(name.clone(), Reader::new(Arc::new(definition)));
        self.only = (self.streams.len() == 1).then_some(name);
        Ok(())
    }

    fn batch(&mut self) -> Option<Batch> {
        let is_empty = self.ready.parts.is_empty() && self.ready.undecodable.is_empty();
        let has_news = std::mem::take(&mut self.has_news);
        if is_empty && !has_news {
            return None;
        }
        self.weight = 0;
        let mut batch = std::mem::take(&mut self.ready);
        batch.mark = self.mark.clone();
        Some(batch)
    }
}
