//! What can go wrong when the registry is changed or opened.

use crate::journal::JournalError;

/// Why an entity was not published, removed or read back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The caller's entity has a field that cannot be kept.
    #[error("{field} {reason}")]
    InvalidEntity {
        /// Which field.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The key belongs to another owner.
    #[error("{key} is owned by {owner}")]
    NotOwner {
        /// The key asked for.
        key: String,
        /// Whose it is.
        owner: String,
    },
    /// Nothing has this key.
    #[error("nothing is registered as {0}")]
    Unknown(String),
    /// A limit of the registry is reached.
    #[error("{limit} is at its limit of {value}")]
    Full {
        /// Name of the limit.
        limit: &'static str,
        /// Its value.
        value: usize,
    },
    /// Too many changes are on their way; the same change may be made when they are safe.
    #[error("{value} changes are on their way to the journal, as many as are allowed")]
    Busy {
        /// How many may be.
        value: usize,
    },
    /// The journal refused, failed, or holds what cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// An earlier failure of the journal stopped all changes; reading still works.
    #[error("changes stopped after a failure of the journal: {0}")]
    Stopped(String),
}

impl Error {
    /// Whether the same change may succeed later without anything being removed from the registry.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. } | Self::Journal(JournalError::Full(_))
        )
    }
}
