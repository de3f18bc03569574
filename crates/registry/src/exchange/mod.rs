//! Import and export: N-Quads, TriG, UDDI XML (docs/reference/registry-stores.md).
//!
//! In N-Quads and TriG each entity is a named graph of the triples that it brings; the graph's name is
//! the entity's key. Its other fields are statements about the key in the default graph. In UDDI XML the file has
//! the elements of `uddi_v2.xsd`. Files are read and written entity by entity.

mod export;
mod import;
mod quads;
mod split;
mod uddi;

use std::io;

pub use import::{ImportRules, Imported};

use crate::error::Error;

/// Maximum size of one statement of N-Quads or TriG, or of one element of UDDI XML, in bytes. An entity
/// has at most 512 KiB of terms, and a change at most 4 MiB.
pub const MAX_STATEMENT_BYTES: usize = split::MAX_ELEMENT_BYTES;

/// The format of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// RDF 1.1 N-Quads.
    NQuads,
    /// RDF 1.1 TriG.
    TriG,
    /// `tModel`, `businessEntity` and `publisherAssertion` of UDDI v2 in one element.
    UddiXml,
}

impl Format {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::NQuads, Self::TriG, Self::UddiXml];

    /// The name on the command line and in the REST interface.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NQuads => "nquads",
            Self::TriG => "trig",
            Self::UddiXml => "uddi",
        }
    }

    /// The format of this name.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == word)
    }

    /// The media type.
    #[must_use]
    pub const fn media_type(self) -> &'static str {
        match self {
            Self::NQuads => "application/n-quads",
            Self::TriG => "application/trig",
            Self::UddiXml => "application/xml",
        }
    }

    /// The format of a media type, without its parameters.
    #[must_use]
    pub fn from_media_type(media_type: &str) -> Option<Self> {
        if media_type == "text/xml" {
            return Some(Self::UddiXml);
        }
        Self::ALL
            .into_iter()
            .find(|format| format.media_type().eq_ignore_ascii_case(media_type))
    }
}

/// The reason why a file was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The writer failed, or ended the export.
    #[error("cannot write the export: {0}")]
    Io(#[from] io::Error),
}

/// The reason why a file was not imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file cannot be read.
    #[error("cannot read the file: {0}")]
    Io(#[from] io::Error),
    /// A line of the file is refused; nothing was changed.
    #[error("line {line}: {reason}")]
    Refused {
        /// The line, counted from 1.
        line: u64,
        /// The reason.
        reason: String,
    },
    /// The registry refused a change after the file had been found correct. `entities` were imported
    /// before; the same import continues there.
    #[error("line {line}: {reason}; {entities} entities before it are imported")]
    Stopped {
        /// The line.
        line: u64,
        /// The reason.
        reason: Error,
        /// How many entities were imported before it.
        entities: u64,
    },
}
