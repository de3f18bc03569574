//! Why a journal was not opened.

use chappe_postgres::ConnectError;

/// The reason why the journal was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// There is no connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// PostgreSQL refuses a statement, or the connection was lost meanwhile.
    #[error("cannot use PostgreSQL: {0}")]
    Statement(String),
    /// The tables were made by another version of this program.
    #[error(
        "the registry in PostgreSQL has version {found}; this program reads version {known} (hint: use the \
         program that made it, or a newer one)"
    )]
    Version {
        /// The version found.
        found: i32,
        /// The version that this program reads.
        known: i32,
    },
    /// The thread was not started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}
