//! Encodes and decodes the messages of one schema.

use std::sync::{Arc, Mutex, PoisonError};

use chappe_exi::{Cause, Decoder, Encoder, HeaderOptions, Options, Schema, SchemaId, xml};
use chappe_xml::{EventSink as _, EventSource as _, Limits, Reason, text};

use super::content::{Content, Scope};

/// The longest text after which grammars and buffers are kept. Reason: notifications are smaller, and a large message
/// leaves large tables.
const KEPT_TEXT_BYTES: usize = 64 << 10;
/// Encoders that wait for the next message, and decoders as many. Reason: a device serves on few processors.
const KEPT_MAX: usize = 4;
/// The shortest text of a strict message that is compressed. Reason: the strings of a short message are mostly its
/// identifier and addresses, in which nothing repeats.
const COMPRESSED_TEXT_BYTES: usize = 2 << 10;

/// The reason why bytes are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The text exceeds its limit of bytes, or the stream one that follows it.
    #[error("the message exceeds the limit of bytes")]
    TooLarge,
    /// The stream names a schema that is not known here.
    #[error("the message is EXI of the schema {0:?}, which is not known here")]
    OtherSchema(String),
    /// No EXI, or beyond the limits of a message.
    #[error("the message is not EXI, or beyond the limits of a message: {0}")]
    Broken(String),
}

/// A schema with encoders and decoders that are used again.
pub(super) struct Coder {
    schema: Arc<Schema>,
    is_strict: bool,
    encoders: Mutex<Vec<Encoder>>,
    decoders: Mutex<Vec<Decoder>>,
}

impl Coder {
    /// Streams of a strict schema have values of its types, others have them as they are written, with prefixes.
    pub(super) fn new(schema: Schema, is_strict: bool) -> Self {
        Self {
            schema: Arc::new(schema),
            is_strict,
            encoders: Mutex::default(),
            decoders: Mutex::default(),
        }
    }

    pub(super) fn id(&self) -> &str {
        self.schema.id()
    }

    /// The stream of a text; `None` if it is no document, does not fit a strict schema, or does not get shorter.
    pub(super) fn encode(&self, text: &[u8]) -> Option<Vec<u8>> {
        let stream = self.stream(text)?;
        (stream.len() < text.len()).then_some(stream)
    }

    /// The stream of a text, however long; `None` if it is no document, or does not fit a strict schema.
    pub(super) fn stream(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut encoder =
            take(&self.encoders).unwrap_or_else(|| Encoder::new(Arc::clone(&self.schema)));
        let encoded = self.encode_with(&mut encoder, text);
        if text.len() <= KEPT_TEXT_BYTES {
            keep(&self.encoders, encoder);
        }
        encoded
    }

    fn encode_with(&self, encoder: &mut Encoder, text: &[u8]) -> Option<Vec<u8>> {
        let header = HeaderOptions {
            cookie: false,
            options: true,
        };
        let limits = Limits {
            bytes: text.len(),
            ..Limits::default()
        };
        let mut reader = text::Reader::new(text, limits).ok()?;
        let writing = encoder.begin_with(&self.options(text.len()), header).ok()?;
        let mut sink = xml::Sink::new(writing).ok()?;
        let mut content = Content::default();
        while let Some(event) = reader.next_event().ok()? {
            if self.is_strict && !content.is_plain(&event) {
                return None;
            }
            sink.event(event).ok()?;
        }
        Some(sink.finish().ok()?.to_vec())
    }

    fn options(&self, text_bytes: usize) -> Options {
        let mut options = Options {
            // Measured for dev1: also a call with one integer, 209 bytes, gets a fifth shorter.
            compression: !self.is_strict || text_bytes >= COMPRESSED_TEXT_BYTES,
            strict: self.is_strict,
            schema_id: SchemaId::Named(self.id().to_owned()),
            ..Options::default()
        };
        options.preserve.prefixes = !self.is_strict;
        options.preserve.lexical_values = !self.is_strict;
        options
    }

    /// The text of a stream.
    ///
    /// # Errors
    /// See [`DecodeError`].
    pub(super) fn decode(&self, stream: &[u8], limits: Limits) -> Result<String, DecodeError> {
        let decoder =
            take(&self.decoders).unwrap_or_else(|| Decoder::new(Arc::clone(&self.schema)));
        let mut decoder = decoder.with_limits(stream_limits(limits));
        let text = decode_with(&mut decoder, stream, limits);
        // What a large message or a forged one has filled is not kept.
        let is_kept = match &text {
            Ok(text) => text.len() <= KEPT_TEXT_BYTES,
            Err(error) => matches!(error, DecodeError::OtherSchema(_)),
        };
        if is_kept {
            keep(&self.decoders, decoder);
        }
        text
    }
}

fn take<T>(kept: &Mutex<Vec<T>>) -> Option<T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner).pop()
}

fn keep<T>(kept: &Mutex<Vec<T>>, one: T) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() < KEPT_MAX {
        kept.push(one);
    }
}

/// The limits of a stream: as long as its text may be, and as nested as text may be.
fn stream_limits(text: Limits) -> chappe_exi::Limits {
    chappe_exi::Limits {
        depth: text.depth,
        string_characters: text.bytes,
        table_bytes: text.bytes,
        events: text.events as u64,
        block_bytes: text.bytes,
        productions: text.events,
        ..chappe_exi::Limits::default()
    }
}

fn decode_with(
    decoder: &mut Decoder,
    stream: &[u8],
    limits: Limits,
) -> Result<String, DecodeError> {
    let broken = |error: chappe_xml::Error| match &error.reason {
        Reason::Limit { limit, .. } => beyond(limit),
        _ => DecodeError::Broken(error.to_string()),
    };
    let reading = decoder
        .begin(stream, None)
        .map_err(|error| match error.cause {
            Cause::Limit { limit, .. } => beyond(limit),
            Cause::Schema { wanted, .. } => DecodeError::OtherSchema(wanted),
            _ => DecodeError::Broken(error.to_string()),
        })?;
    let mut source = xml::Source::new(reading);
    let mut writer = text::Writer::default();
    let mut scope = Scope::new(limits);
    while let Some(event) = source.next_event().map_err(broken)? {
        if !scope.admits(&event) {
            let what = "more names or declarations than a text may have";
            return Err(DecodeError::Broken(what.to_owned()));
        }
        writer.event(event).map_err(broken)?;
        if writer.bytes() > limits.bytes {
            return Err(DecodeError::TooLarge);
        }
    }
    let text = writer.finish().map_err(broken)?;
    match text.len() <= limits.bytes {
        true => Ok(text),
        false => Err(DecodeError::TooLarge),
    }
}

/// The error of a stream beyond this limit of [`chappe_exi::Limits`]. Those that follow the bytes mean that more may
/// do.
fn beyond(limit: &str) -> DecodeError {
    match limit {
        "string_characters" | "table_bytes" | "block_bytes" => DecodeError::TooLarge,
        _ => DecodeError::Broken(format!("limit {limit}")),
    }
}
