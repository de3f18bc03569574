//! Text XML to events and back.
//!
//! ```
//! use chappe_exi::{Decoder, Encoder, HeaderOptions, Options, Schema, text};
//! use std::sync::Arc;
//! let schema = Arc::new(Schema::none());
//! let header = HeaderOptions { cookie: false, options: true };
//! let mut encoder = Encoder::new(schema.clone());
//! let stream = text::encode(&mut encoder, &Options::default(), header, b"<a b='1'>two</a>")?;
//! let xml = text::decode(&mut Decoder::new(schema), stream, None)?;
//! assert_eq!(xml, r#"<a b="1">two</a>"#);
//! # Ok::<(), chappe_exi::text::Error>(())
//! ```

mod read;
mod write;

use alloc::string::String;

pub(crate) use read::read_at;
pub use read::{Entities, TextLimits, read, read_with};
pub use write::Writer;

use crate::{Canonical, Decoder, Encoder, HeaderOptions, Options};

/// Why text and stream do not become each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream is refused, or cannot hold the document.
    #[error(transparent)]
    Exi(#[from] crate::Error),
    /// The text is no well-formed XML.
    #[error("line {line}: {reason}")]
    Xml {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
}

/// Encodes a document of text XML.
///
/// # Errors
/// Text that is not well-formed, or a document that a strict schema does not allow.
pub fn encode<'e>(
    encoder: &'e mut Encoder,
    options: &Options,
    header: HeaderOptions,
    document: &[u8],
) -> Result<&'e [u8], Error> {
    let mut writing = encoder.begin_with(options, header)?;
    read(document, options, TextLimits::default(), &mut |event| {
        writing.event(event).map_err(Error::Exi)
    })?;
    Ok(writing.finish()?)
}

/// Encodes a document of text XML as a canonical stream.
///
/// # Errors
/// As [`encode`].
pub fn encode_canonical<'e>(
    encoder: &'e mut Encoder,
    options: &Options,
    canonical: Canonical,
    document: &[u8],
) -> Result<&'e [u8], Error> {
    let mut writing = encoder.begin_canonical(options, canonical)?;
    read(document, options, TextLimits::default(), &mut |event| {
        writing.event(event).map_err(Error::Exi)
    })?;
    Ok(writing.finish()?)
}

/// Decodes a stream to text XML. `options` are those of a stream that has none in its header.
///
/// # Errors
/// A stream that is refused.
pub fn decode(
    decoder: &mut Decoder,
    stream: &[u8],
    options: Option<&Options>,
) -> Result<String, Error> {
    let mut reading = decoder.begin(stream, options)?;
    let mut writer = Writer::default();
    while let Some(event) = reading.next_event()? {
        writer.event(&event);
    }
    Ok(writer.finish())
}
