//! Converting text XML to events and back.
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
pub use read::{EntityResolver, TextLimits, read, read_with};
pub use write::Writer;

use crate::{CanonicalOptions, Decoder, Encoder, HeaderOptions, Options};

/// Errors of converting between text XML and EXI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The stream cannot be decoded, or the document cannot be encoded.
    #[error(transparent)]
    Exi(#[from] crate::Error),
    /// The text is not well-formed XML.
    #[error("line {line}: {reason}")]
    Xml {
        /// The line, from 1.
        line: usize,
        /// The problem.
        reason: String,
    },
}

/// Encodes a text XML document.
///
/// # Errors
/// The text is not well-formed, or a strict schema does not allow the document.
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

/// Encodes a text XML document as a canonical stream.
///
/// # Errors
/// See [`encode`].
pub fn encode_canonical<'e>(
    encoder: &'e mut Encoder,
    options: &Options,
    canonical: CanonicalOptions,
    document: &[u8],
) -> Result<&'e [u8], Error> {
    let mut writing = encoder.begin_canonical(options, canonical)?;
    read(document, options, TextLimits::default(), &mut |event| {
        writing.event(event).map_err(Error::Exi)
    })?;
    Ok(writing.finish()?)
}

/// Decodes a stream to text XML. `options` apply to a stream without options in its header.
///
/// # Errors
/// The stream cannot be decoded.
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
