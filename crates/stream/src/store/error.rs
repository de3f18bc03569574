//! Errors of stored streams.

use super::RenameError;
use crate::{CodecError, NameError, SCHEMA_VERSIONS_MAX, SchemaError};

/// An error of a stored stream.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The schema is invalid.
    #[error(transparent)]
    Schema(SchemaError),
    /// An element does not fit the schema.
    #[error("element {index}: {error}")]
    Element {
        /// Its index in the batch.
        index: usize,
        /// The mismatch.
        error: SchemaError,
    },
    /// An element cannot be encoded, or a stored one cannot be decoded.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// The schema changed more often than is remembered.
    #[error("the schema has had {SCHEMA_VERSIONS_MAX} versions, which is the limit")]
    Versions,
    /// The stored schema does not decode.
    #[error("the stored schema of {0} cannot be decoded")]
    Metadata(String),
    /// A stored element names a version of the schema that is not stored.
    #[error("the stored element has schema version {0}, which is not stored")]
    UnknownVersion(u32),
    /// Data received from another node does not fit.
    #[error(transparent)]
    Intake(#[from] IntakeError),
    /// The stream cannot have this name, or cannot lose it.
    #[error(transparent)]
    Rename(#[from] RenameError),
    /// The log refused or failed.
    #[error(transparent)]
    Log(#[from] chappe_log::Error),
}

/// A record that was rejected, with its entire batch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record {index}: {error}")]
pub struct IntakeError {
    /// Its index in the batch.
    pub index: usize,
    /// The reason.
    pub error: CodecError,
}
