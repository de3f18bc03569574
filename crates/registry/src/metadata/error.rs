//! Errors of requests about metadata.

use crate::error::Error as RegistryError;
use crate::rights::Right;

/// The reason why a request was refused; nothing of it was done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No piece with this key exists for the caller.
    #[error("no piece of metadata has the key {0}")]
    UnknownPiece(String),
    /// The caller sees no entity with this key.
    #[error("no entity has the key {0}")]
    UnknownSubject(String),
    /// The caller sees the entity, but lacks the right.
    #[error("{key} is owned by {owner}, and you do not have the right {right} to it")]
    Refused {
        /// Its key.
        key: String,
        /// Its owner: of a piece, the author.
        owner: String,
        /// The right.
        right: Right,
    },
    /// A part of the request is invalid.
    #[error("{field} {reason}")]
    Invalid {
        /// The part.
        field: &'static str,
        /// The reason.
        reason: String,
    },
    /// The registry refused the change.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl Error {
    pub(crate) fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self::Invalid { field, reason }
    }
}
