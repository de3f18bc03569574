//! Messages as elements: the formats of `chappe-format`, applied to the messages of a wrapper.

use std::sync::Arc;

use chappe_format::config::FormatConfig;
use chappe_format::{Format, Limits, Message, Output};
use chappe_log::Level;
use chappe_stream::{DescriptorError, Timestamp};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use toml::Spanned;

use crate::{Batch, StreamDefinition, Undecodable, WrapperFile};

/// The longest undecodable message that is kept whole. 1 MiB, the longest that can be decoded, and the columns before
/// a piece of a CSV.
const KEPT_BYTES: usize = (1 << 20) + (64 << 10);
/// Bytes that are kept of a longer one; reason: a person looks at them.
const BEGINNING_BYTES: usize = 64 << 10;

/// Decodes the messages of a wrapper.
#[derive(Debug)]
pub(crate) struct Decoder {
    decoder: chappe_format::Decoder,
    output: Output,
    /// The streams that the decoder has made, as batches name them.
    streams: Vec<(Arc<str>, Arc<StreamDefinition>)>,
    level: Option<Level>,
    is_bracketed: bool,
    /// The streams of the file that need no message.
    fixed: Vec<String>,
}

impl Decoder {
    /// The decoder of a file. `names` are the placeholders that the kind fills from topics or paths.
    ///
    /// # Errors
    /// The first fault of `format` or `[[stream]]`.
    pub(crate) fn new(file: &WrapperFile, names: &[String]) -> Result<Self, DescriptorError> {
        let missing = |key: &str, text: &str| Err(file.fault(key, text.to_owned(), None));
        match &file.keys.format {
            Some(format) => Self::of(file, format, names),
            None => missing(
                "format",
                "this kind needs a format, such as format = \"json\"",
            ),
        }
    }

    /// The decoder of a file whose kind makes JSON itself, with its options if it has some.
    ///
    /// # Errors
    /// The first fault of `format` or `[[stream]]`.
    pub(crate) fn json(file: &WrapperFile) -> Result<Self, DescriptorError> {
        if file.keys.format.is_some() {
            return Self::new(file, &[]);
        }
        let json: Result<FormatConfig, serde::de::value::Error> =
            FormatConfig::deserialize("json".into_deserializer());
        match json {
            Ok(format) => Self::of(file, &Spanned::new(0..0, format), &[]),
            Err(error) => Err(file.fault("format", error.to_string(), None)),
        }
    }

    fn of(
        file: &WrapperFile,
        format: &Spanned<FormatConfig>,
        names: &[String],
    ) -> Result<Self, DescriptorError> {
        let keys = &file.keys;
        let missing = |key: &str, text: &str| Err(file.fault(key, text.to_owned(), None));
        if keys.streams.is_empty() {
            return missing("stream", "this kind needs at least one [[stream]]");
        }
        let limits = Limits::default();
        let is_bracketed = format.get_ref().is_bracketed();
        let format = Format::new(file.place(), format, &keys.streams, names, limits)?;
        Ok(Self {
            decoder: chappe_format::Decoder::new(Arc::new(format)),
            output: Output::default(),
            streams: Vec::new(),
            level: keys.level,
            is_bracketed,
            fixed: file
                .fixed_streams()
                .into_iter()
                .map(|(name, _)| name)
                .collect(),
        })
    }

    /// The only stream, if messages fill one alone; messages that are lost were meant for it.
    pub(crate) fn only_stream(&self) -> Option<&str> {
        match &*self.fixed {
            [one] => Some(one),
            _ => None,
        }
    }

    /// Whether a message whose end is missing is whole: without its last bytes it would not end with a bracket, or not
    /// be decoded.
    pub(crate) fn is_whole(&self, body: &[u8]) -> bool {
        let last = body.trim_ascii_end().last();
        self.is_bracketed && matches!(last, Some(b'}' | b']' | b'>'))
    }

    /// Adds a part of a message, which is not decoded, for this reason. `context` comes before its bytes.
    pub(crate) fn refuse(&self, body: &[u8], context: &[u8], reason: &str, batch: &mut Batch) {
        let mut message = [context, body].concat();
        message.truncate(KEPT_BYTES);
        batch.undecodable.push(Undecodable {
            stream: self.only_stream().map(str::to_owned),
            reason: reason.to_owned(),
            message,
            is_cut: true,
        });
    }

    /// Adds the elements of a message that arrived at `now`. A message of which nothing can be read becomes
    /// an undecodable one, with all its bytes; records that cannot be read among others, one that names the
    /// first of them.
    pub(crate) fn message(&mut self, body: &[u8], now: Timestamp, batch: &mut Batch) {
        self.add(&Message::new(body, now), body, batch);
    }

    #[cfg(any(feature = "coap", feature = "mqtt"))]
    /// Like [`Decoder::message`], with the values of a topic or a path.
    pub(crate) fn attributed(&mut self, message: &Message<'_>, batch: &mut Batch) {
        self.add(message, message.body, batch);
    }

    /// Like [`Decoder::message`], for a piece of a text: `is_first` for the one that names its columns.
    /// `context` comes before the bytes of an undecodable one, so that it can be decoded alone.
    pub(crate) fn piece(
        &mut self,
        body: &[u8],
        now: Timestamp,
        is_first: bool,
        context: &[u8],
        batch: &mut Batch,
    ) {
        let message = Message::new(body, now);
        let message = if is_first {
            message
        } else {
            message.continued()
        };
        self.add(&message, &[context, body].concat(), batch);
    }

    fn add(&mut self, message: &Message<'_>, kept: &[u8], batch: &mut Batch) {
        let outcome = self.decoder.decode(message, &mut self.output);
        let known = self.streams.len();
        for made in &self.decoder.streams()[known..] {
            let definition = StreamDefinition {
                schema: (*made.schema).clone(),
                level: self.level,
                description: None,
            };
            self.streams
                .push((made.name.as_str().into(), Arc::new(definition)));
        }
        let count = self.output.elements.len();
        for (index, element) in self.output.elements.drain(..) {
            let (stream, definition) = &self.streams[index];
            batch.push(stream, definition, element);
        }
        let fault = match outcome {
            Err(fault) => *fault,
            Ok(()) => match self.output.faults.first() {
                Some(fault) => fault.clone(),
                None => return,
            },
        };
        let stream = fault.stream.clone().filter(|name| !name.contains('{'));
        let is_cut = count == 0 && kept.len() > KEPT_BYTES;
        let (reason, message) = match (count, self.output.fault_count) {
            (0, _) if is_cut => (fault.to_string(), &kept[..BEGINNING_BYTES]),
            (0, _) => (fault.to_string(), kept),
            // Its other records are stored, so that it is not to be decoded again.
            (_, 1) => (format!("{fault}; the other records are stored"), &[][..]),
            (_, faults) => (
                format!(
                    "{fault}; and {} more; the other records are stored",
                    faults - 1
                ),
                &[][..],
            ),
        };
        batch.undecodable.push(Undecodable {
            stream: stream.or_else(|| self.only_stream().map(str::to_owned)),
            reason,
            message: message.to_vec(),
            is_cut,
        });
    }
}

impl WrapperFile {
    /// Decodes a message that was a dead letter, by the present settings. `received` is the time of its receipt.
    ///
    /// # Errors
    /// Why it still cannot be decoded.
    pub fn decode(&self, message: &[u8], received: Timestamp) -> Result<Batch, String> {
        if message.is_empty() {
            return Err("its other records are stored".to_owned());
        }
        let mut decoder = Decoder::json(self).map_err(|error| error.to_string())?;
        let mut batch = Batch::default();
        decoder.message(message, received, &mut batch);
        match batch.undecodable.pop() {
            Some(undecodable) => Err(undecodable.reason),
            None => Ok(batch),
        }
    }
}
