//! Streams that messages describe as they come: a name, texts that tell one series from another (tags, labels), and
//! fields. InfluxDB's line protocol and Prometheus remote write have these in common.
//!
//! A stream is made for each name, with a column for each tag and each field that has occurred, and the series is
//! the key of its elements. So the number of streams is that of names, and a query selects series by the values of
//! columns. A column is added when it occurs first; its type never changes.

mod columns;
mod intake;
mod options;
mod tables;

pub(crate) use columns::{Column, FieldKind};
pub(crate) use intake::{
    ELEMENTS_BYTES, Intake, KNOWN_BYTES_MAX, Malformed, PIECE_BYTES, POINTS_MAX, Protocol, Refused,
    SERIES_BYTES_MAX, source_time,
};
pub(crate) use options::Options;
pub(crate) use tables::{COLUMNS_MAX, Series, Tables};
