//! Errors of changing or opening the registry.

use crate::entity::EntityKind;
use crate::journal::JournalError;
use crate::rights::Right;

/// The reason why an entity was not published, removed or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A field of the caller's entity is invalid.
    #[error("{field} {reason}")]
    InvalidEntity {
        /// The field.
        field: &'static str,
        /// The reason.
        reason: String,
    },
    /// The key belongs to another owner.
    #[error("{key} is owned by {owner}")]
    NotOwner {
        /// The key.
        key: String,
        /// Its owner.
        owner: String,
    },
    /// The caller does not have a right that the change needs.
    #[error("{key} is owned by {owner}, and only those with the right to {right} it may do this")]
    NoRight {
        /// The key.
        key: String,
        /// Its owner.
        owner: String,
        /// The right.
        right: Right,
    },
    /// The key is that of an entity which the caller may not see.
    #[error("the key {0} is not available")]
    KeyTaken(String),
    /// The key is that of an entity of another kind, which is changed in its own way.
    #[error("{key} is a {}, which an entity of another kind does not replace", .kind.as_str())]
    OtherKind {
        /// The key.
        key: String,
        /// The kind of what is there.
        kind: EntityKind,
    },
    /// No entity has this key.
    #[error("no entity has the key {0}")]
    Unknown(String),
    /// The entity has no lease that could be renewed.
    #[error("{0} has no lease")]
    NoLease(String),
    /// A limit of the registry is reached.
    #[error("the limit of {value} {limit} is reached")]
    Full {
        /// Name of the limit.
        limit: &'static str,
        /// Its value.
        value: usize,
    },
    /// The entity does not fit into the room for all entities, or for those of its owner.
    #[error("{whose} have {bytes} bytes in the registry; the limit is {limit}")]
    NoRoom {
        /// Whose entities reach the limit.
        whose: String,
        /// What they would have.
        bytes: usize,
        /// The limit.
        limit: usize,
        /// Whether the limit is that of the owner.
        is_owners: bool,
    },
    /// The owner of the entity would have too many.
    #[error("the entities of {owner:?} would be {entities} in the registry; the limit is {limit}")]
    TooManyEntities {
        /// The owner.
        owner: String,
        /// How many it would have.
        entities: usize,
        /// The limit.
        limit: usize,
    },
    /// Too many changes are in flight; the same change may be made once they are durable.
    #[error("{value} changes are in flight to the journal, as many as allowed")]
    Busy {
        /// The limit.
        value: usize,
    },
    /// A batch is larger than its limit.
    #[error("the batch has {bytes} bytes, the limit is {limit}")]
    TooLarge {
        /// Its size as a record of the journal.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The journal refused, failed, or holds a record that cannot be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A previous failure of the journal stopped all changes; reading still works.
    #[error("no changes are accepted since the journal failed: {0}")]
    Stopped(String),
}

impl Error {
    /// Whether another writer of a shared journal was faster: nothing was changed, and the same request
    /// can be made again at once.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Journal(JournalError::Moved { .. }))
    }

    /// Whether the same change may succeed later without removing anything from the registry.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Busy { .. }
                | Self::Journal(
                    JournalError::Full(_) | JournalError::Away(_) | JournalError::Moved { .. }
                )
        )
    }
}
