//! The wrapper: elements that a program prints, of its own or made of those of other streams.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use chappe_stream::lines::{ElementReader, Format, Line as Record};
use chappe_stream::{Position, StreamElement, check_name};
use serde::Serialize;
use serde_json::{Value as Json, json};
use tokio::time::Instant;

use super::lines::{Line, Lines};
use super::passed::{Passed, ends};
use super::process::{Process, Program};
use super::protocol::{Answer, Message, element_lines, line, mark_value};
use super::settings::{OTHER_NAME, Output, Settings, first_line, reads_itself, settings};
use crate::clock::now;
use crate::decode::Decoder;
use crate::{
    BATCH_BYTES_MAX, Batch, Command, Condition, Delivery, Inputs, Mark, Notes, Step,
    StreamDefinition, Undecodable, Wrapper, WrapperError, WrapperKind, WrapperOpening,
    element_weight,
};

/// How far ahead of this clock the time of an element may be, in nanoseconds. Five minutes: clocks that
/// are set by hand.
const FUTURE_NS: i64 = 300 * 1_000_000_000;
/// Bytes of a line that is no message that are kept; reason: a person looks at them.
const KEPT_BYTES: usize = 64 << 10;

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "program",
    about: "the output of a program: messages, or lines in any format; with `inputs`, a processor of other streams",
    delivery: Delivery {
        acknowledges: "each mark, after everything before it is stored",
        resumes: "the program's last stored mark; with `inputs`, the inputs after the last stored output",
        may_double: "without marks: elements that the program prints again",
        may_miss: "without marks: elements that were printed and not stored when the node was killed",
        back_pressure: "its standard output is not read: its writes block",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: None,
};

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    Ok(Box::new(open_program(opening)?))
}

/// Opens a wrapper of this kind.
pub(super) fn open_program(opening: WrapperOpening<'_>) -> Result<ProgramWrapper, WrapperError> {
    let file = opening.file;
    let settings = settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let first_line = first_line(file, &settings, opening.mark.as_ref());
    let mut wrapper = ProgramWrapper {
        process: None,
        starting: None,
        first_line,
        inputs: settings.inputs(),
        passed: None,
        passed_batches: 0,
        heard: Instant::now(),
        program: settings.program,
        directory: file.path("".as_ref()),
        name: file.name.clone(),
        notes: opening.notes,
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
        records: Vec::new(),
        ready: Batch::default(),
        pending: Vec::new(),
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
    Ok(wrapper)
}

/// Runs a program.
pub(super) struct ProgramWrapper {
    process: Option<Process>,
    /// A start that a dropped future left: the program must not be started twice.
    starting: Option<Step<'static, Result<Process, WrapperError>>>,
    /// What the program receives when it starts.
    first_line: Vec<u8>,
    /// The streams that a processor reads.
    inputs: Option<Inputs>,
    /// The batch of inputs that the program has not answered.
    passed: Option<Passed>,
    passed_batches: u64,
    /// When the program printed something, or was passed a batch.
    heard: Instant,
    program: Program,
    directory: PathBuf,
    name: String,
    notes: Notes,
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
    /// Room for the elements of a line.
    records: Vec<Record>,
    /// What can be returned; with marks, everything up to the last one.
    ready: Batch,
    /// What was printed after the last mark.
    pending: Vec<Pending>,
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

/// What was printed after the last mark.
enum Pending {
    Element(Arc<str>, Arc<StreamDefinition>, StreamElement),
    Undecodable(Undecodable),
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
    fn inputs(&self) -> Option<&Inputs> {
        self.inputs.as_ref()
    }

    fn input<'a>(&'a mut self, batch: &'a Batch) -> Step<'a, Result<(), WrapperError>> {
        Box::pin(async move { self.pass(element_lines(batch), ends(batch)).await })
    }

    fn repeats(&self) -> bool {
        // The inputs of a processor are passed to it again.
        self.has_marks || self.inputs.is_some()
    }

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
                if !self.read().await? {
                    let Some(process) = &mut self.process else {
                        return Err(WrapperError::peer("the program has ended"));
                    };
                    // If this future is dropped here, the next call finds the same end.
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
        if self.starting.is_none() {
            let (program, directory) = (&self.program, &self.directory);
            let mut process = Process::start(program, directory, &self.name, &self.notes)?;
            let (first, time) = (self.first_line.clone(), program.answer_time());
            self.starting = Some(Box::pin(async move {
                process.write(&first, time).await?;
                Ok(process)
            }));
        }
        let Some(starting) = &mut self.starting else {
            return Ok(());
        };
        let started = starting.await;
        self.starting = None;
        self.process = Some(started?);
        self.condition.runs();
        Ok(())
    }

    /// Passes a batch of inputs, as lines, with the positions of its elements.
    pub(super) async fn pass(
        &mut self,
        mut lines: Vec<u8>,
        positions: impl IntoIterator<Item = (&str, Position)>,
    ) -> Result<(), WrapperError> {
        if self.process.is_none() {
            self.start().await?;
        }
        self.passed_batches += 1;
        let mark = self.passed_batches;
        lines.extend(line(&json!({ "mark": mark })));
        self.passed = Some(Passed::new(mark, positions));
        self.write(&lines).await?;
        self.heard = Instant::now();
        Ok(())
    }

    async fn send(&mut self, message: &impl Serialize) -> Result<(), WrapperError> {
        self.write(&line(message)).await
    }

    async fn write(&mut self, lines: &[u8]) -> Result<(), WrapperError> {
        let Some(process) = &mut self.process else {
            return Err(WrapperError::peer("the program does not run"));
        };
        process.write(lines, self.program.answer_time()).await
    }

    /// Waits for more output; false: it has ended. A processor that has a batch prints something in time.
    async fn read(&mut self) -> Result<bool, WrapperError> {
        let Some(process) = &mut self.process else {
            return Ok(false);
        };
        let time = self.program.answer_time();
        let read = match &self.passed {
            None => process.read().await?,
            Some(_) => {
                let read = tokio::time::timeout_at(self.heard + time, process.read()).await;
                read.map_err(|_| {
                    let text = format!("no \"stored\" within {} s", time.as_secs_f64());
                    WrapperError::peer(text)
                })??
            }
        };
        self.heard = Instant::now();
        Ok(read)
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

    /// Most bytes of elements that are read before they are returned.
    fn bytes_max(&self) -> usize {
        match self.inputs {
            // What becomes of a batch of inputs is one batch.
            Some(_) => BATCH_BYTES_MAX,
            None => BATCH_BYTES_MAX / 2,
        }
    }

    fn is_full(&self) -> bool {
        self.weight + self.pending_weight >= self.bytes_max()
    }

    /// Reads what has arrived, as far as it fits into one batch.
    fn decode(&mut self) -> Result<(), WrapperError> {
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        // The lines are not borrowed from what they change.
        let mut lines = std::mem::take(&mut process.lines);
        let decoded = match self.output {
            Output::Messages => self.decode_messages(&mut lines),
            Output::Elements => {
                self.decode_elements(&mut lines);
                Ok(())
            }
        };
        if let Some(process) = &mut self.process {
            process.lines = lines;
        }
        decoded
    }

    /// Reads lines that are messages.
    fn decode_messages(&mut self, lines: &mut Lines) -> Result<(), WrapperError> {
        while !self.is_full() {
            match lines.take() {
                None => return Ok(()),
                Some(Line::TooLong(line)) => {
                    self.put_aside(None, "the line is too long".to_owned(), line, true);
                }
                Some(Line::Whole(line) | Line::Cut(line)) => self.decode_line(line)?,
            }
        }
        if self.weight == 0 && !self.has_news {
            let bytes = self.bytes_max();
            let before = match self.inputs {
                Some(_) => "before \"stored\"",
                None => "without a mark",
            };
            let text = format!("the program printed {bytes} bytes of elements {before}");
            return Err(WrapperError::peer(text));
        }
        Ok(())
    }

    /// Reads lines that are elements in the format of the file.
    fn decode_elements(&mut self, lines: &mut Lines) {
        while !self.is_full() {
            let line = match lines.take() {
                None => return,
                Some(Line::TooLong(line)) => {
                    self.put_aside(None, "the line is too long".to_owned(), line, true);
                    continue;
                }
                Some(Line::Cut(line)) => {
                    // A part of a number is a number, too.
                    let stream = self.decoder.as_ref().and_then(Decoder::only_stream);
                    let stream = stream.map(str::to_owned);
                    let reason = "the program ended in the middle of this line".to_owned();
                    self.put_aside(stream.as_deref(), reason, line, true);
                    continue;
                }
                Some(Line::Whole(line)) => [line, b"\n"].concat(),
            };
            let Some(decoder) = &mut self.decoder else {
                return;
            };
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
                let reads = |inputs: &Inputs| inputs.selects(&stream.name);
                if self.inputs.as_ref().is_some_and(reads) {
                    let text = format!("inputs: {}", reads_itself(&stream.name));
                    return Err(WrapperError::settings(text).with_hint(OTHER_NAME));
                }
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
            Ok(Message::Stored { mark, state }) if self.inputs.is_some() => {
                self.processed(mark, state)
            }
            Ok(Message::Refused(one)) if self.inputs.is_some() => {
                let is_passed = |passed: &Passed| passed.has(&one.stream, &one.position);
                let (stream, position) = (&one.stream, &one.position);
                if !self.passed.as_ref().is_some_and(is_passed) {
                    let text = format!(
                        "the program refused {position} of {stream}, which it was not passed"
                    );
                    return Err(WrapperError::peer(text));
                }
                let reason = format!("refused {position} of {stream}: {}", one.reason);
                self.refuse(None, reason, position.as_bytes());
                Ok(())
            }
            Ok(Message::Stored { .. } | Message::Refused(_)) => {
                let reason = "only an exporter or a processor sends this message";
                self.refuse(None, reason.to_owned(), line);
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
        let mut records = std::mem::take(&mut self.records);
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
        for record in records.drain(..) {
            match record.element {
                Ok(element) => self.add(&name, &definition, element),
                Err(error) => self.refuse(Some(&name), error.to_string(), line),
            }
        }
        self.records = records;
    }

    /// Whether elements are stored only with what follows them: a mark, or `stored`.
    fn is_marked(&self) -> bool {
        self.has_marks || self.inputs.is_some()
    }

    fn add(&mut self, name: &Arc<str>, definition: &Arc<StreamDefinition>, element: StreamElement) {
        let weight = element_weight(&element);
        if self.is_marked() {
            self.pending_weight += weight;
            let pending = Pending::Element(name.clone(), definition.clone(), element);
            self.pending.push(pending);
        } else {
            self.weight += weight;
            self.ready.push(name, definition, element);
        }
    }

    /// The program has read its source up to this mark.
    fn marked(&mut self, mark: Mark) -> Result<(), WrapperError> {
        if self.inputs.is_some() {
            let text = "a program with inputs answers `stored`; it prints no marks";
            return Err(WrapperError::peer(text));
        }
        if !self.has_marks {
            let text = "the program prints marks, and the file does not say so";
            return Err(WrapperError::settings(text).with_hint("marks = true"));
        }
        self.finish(mark);
        Ok(())
    }

    /// The program has processed the batch with this mark.
    fn processed(&mut self, mark: u64, state: Option<Mark>) -> Result<(), WrapperError> {
        match self.passed.take() {
            Some(passed) if passed.mark == mark => {
                self.finish(state.unwrap_or_default());
                Ok(())
            }
            passed => {
                let awaited = passed.map_or("nothing".to_owned(), |it| it.mark.to_string());
                let text = format!("the program answered `stored` {mark}, not {awaited}");
                Err(WrapperError::peer(text))
            }
        }
    }

    /// Everything before this line is stored with this mark.
    fn finish(&mut self, mark: Mark) {
        for one in self.pending.drain(..) {
            match one {
                Pending::Element(name, definition, element) => {
                    self.ready.push(&name, &definition, element);
                }
                Pending::Undecodable(one) => self.ready.undecodable.push(one),
            }
        }
        self.weight += std::mem::take(&mut self.pending_weight);
        self.mark = mark;
        self.has_news = true;
    }

    /// A message that cannot be used becomes a dead letter.
    fn refuse(&mut self, stream: Option<&str>, reason: String, message: &[u8]) {
        self.put_aside(stream, reason, message, false);
    }

    /// Like [`Self::refuse`], for the part of one.
    fn put_aside(&mut self, stream: Option<&str>, reason: String, message: &[u8], is_cut: bool) {
        let is_cut = is_cut || message.len() > KEPT_BYTES;
        let message = message[..message.len().min(KEPT_BYTES)].to_vec();
        let weight = message.len() + 128;
        let one = Undecodable {
            stream: stream.map(str::to_owned),
            reason,
            message,
            is_cut,
        };
        if self.is_marked() {
            self.pending_weight += weight;
            self.pending.push(Pending::Undecodable(one));
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
