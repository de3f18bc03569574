//! The registry's journal in PostgreSQL: several nodes, one registry.
//!
//! Each change is a row of one table, in one order for all nodes. A node appends in one transaction, which
//! fails if another node was first, and hears of the others' changes through LISTEN and NOTIFY. Nodes keep the
//! registry in memory, so reads never wait for PostgreSQL.
//!
//! A connection that is cut while a transaction commits leaves its outcome unknown. Each transaction has a
//! number of its writer in the same database: after reconnecting, the writer fences itself, so that a transaction
//! still in the server cannot commit any more, and reads the number of its last one.
//!
//! This crate opens connections and has a thread of its own with a clock. It stores records as they are and does not
//! read them.

#![forbid(unsafe_code)]

mod error;
mod journal;
mod link;
mod schema;
mod session;
mod shared;

pub use chappe_postgres::Options;
pub use error::OpenError;
pub use journal::{PostgresJournal, Status};
