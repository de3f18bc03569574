//! The formats of messages: bytes and attributes of one message in, typed stream elements out.
//!
//! All wrappers (files, MQTT, HTTP, UDP, child processes) share this layer, which has no input or output and
//! no clock. A [`Format`] is compiled from configuration; a [`Decoder`] applies it to each [`Message`] of a
//! source and keeps the streams that the placeholders of its names have made. A [`Pattern`] takes the values
//! of placeholders from a topic or a file name. An [`Encoder`] writes elements for exporters.
//!
//! One undecodable record is one [`Fault`] with its position, and says nothing about the next one; a message
//! that cannot be read at all is one fault, for a dead letter. Every input has bounds ([`Limits`]): bytes,
//! elements, steps of paths, depth, streams. No input causes a panic.
//!
//! Each format, with an example: docs/reference/formats.md.

#![forbid(unsafe_code)]

pub mod config;
mod decoder;
mod decoders;
mod encoder;
mod fault;
mod format;
mod json;
mod limits;
pub mod line_protocol;
mod pattern;
mod template;
mod time;
pub mod units;
mod value;

pub use config::{FormatConfig, FormatDocument, StreamConfig, format_json_schema};
pub use decoder::{Decoder, Message, Output, StreamDefinition, StreamIndex};
pub use encoder::{CsvEncoding, EncodeError, Encoder, Encoding};
pub use fault::{Fault, Location, Reason};
pub use format::Format;
pub use json::path::{JsonPath, OutOfWork, PathError, Work};
pub use limits::Limits;
pub use pattern::{Attributes, LEVELS_MAX, PATTERN_BYTES_MAX, Pattern, PatternError};
pub use template::VALUE_BYTES_MAX;
