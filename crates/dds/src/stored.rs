//! Stored: a reader's confirmation that its log has the received elements.
//!
//! An acknowledgement of DDS means that the library of a reader has a sample in memory. This is stronger, on a
//! separate topic for each topic.

use chappe_stream::{Epoch, Position};

use crate::cdr::{Decoder, Encoder};
use crate::{CdrError, Payload};

/// All elements up to this one are stored at the reader's level.
///
/// ```idl
/// module chappe {
///   @final struct Stored {
///     @key string stream;
///     @key string reader;
///     unsigned long long epoch;
///     unsigned long long number;
///   };
/// };
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The stream, by its name at its source.
    pub stream: String,
    /// The reader: the key of a node, hexadecimal.
    pub reader: String,
    /// The newest stored element; all earlier ones are stored, too.
    pub through: Position,
}

impl Stored {
    /// The name of the type.
    pub const TYPE_NAME: &str = "chappe::Stored";
    /// Its IDL.
    pub const IDL: &str = "module chappe {\n  @final struct Stored {\n    @key string stream;\n    @key string reader;\n    unsigned long long epoch;\n    unsigned long long number;\n  };\n};\n";

    /// The topic for the confirmations of another topic.
    #[must_use]
    pub fn topic(of: &str) -> String {
        format!("{of}/stored")
    }

    /// Encodes it in CDR.
    #[must_use]
    pub fn payload(&self) -> Payload {
        let mut cdr = Encoder::default();
        cdr.text(&self.stream);
        cdr.text(&self.reader);
        cdr.u64(self.through.epoch.0);
        cdr.u64(self.through.sequence);
        cdr.finish()
    }

    /// Decodes it from CDR.
    ///
    /// # Errors
    /// The payload is not of this type.
    pub fn read(payload: &Payload) -> Result<Self, CdrError> {
        let mut cdr = Decoder::new(payload);
        let stored = Self {
            stream: cdr.text()?.to_owned(),
            reader: cdr.text()?.to_owned(),
            through: Position {
                epoch: Epoch(cdr.u64()?),
                sequence: cdr.u64()?,
            },
        };
        cdr.finish()?;
        Ok(stored)
    }
}
