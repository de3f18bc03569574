//! Why a request is not answered.

/// The reasons, by the status that they have in HTTP.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The request is malformed or too large (400).
    #[error("{0}")]
    Invalid(String),
    /// There is no such entity, property or link (404).
    #[error("{0}")]
    Missing(String),
    /// The standard has it, this service does not (501).
    #[error("{0}")]
    Unsupported(String),
    /// It conflicts with what there is (409).
    #[error("{0}")]
    Conflict(String),
    /// The work was stopped at its limit of time (400).
    #[error("{0}")]
    Stopped(String),
    /// Entities could not be read (500).
    #[error("{0}")]
    Failed(String),
}

impl Fault {
    /// A malformed request.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::Invalid(detail.into())
    }

    /// Something that does not exist.
    pub fn missing(detail: impl Into<String>) -> Self {
        Self::Missing(detail.into())
    }

    /// More bytes than an answer may take.
    #[must_use]
    pub fn too_large(bytes_max: usize) -> Self {
        Self::Invalid(format!(
            "the answer has more than {bytes_max} bytes: ask for fewer entities with $top, in $expand, too, or \
             for fewer properties with $select"
        ))
    }

    /// A part of the standard that this service does not have.
    pub fn unsupported(detail: impl Into<String>) -> Self {
        Self::Unsupported(detail.into())
    }
}

/// At most 80 characters of a text of the request.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(80).collect()
}
