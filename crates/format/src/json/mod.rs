//! Queries of JSON documents.

pub(crate) mod path;
