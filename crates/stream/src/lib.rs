//! Stream elements, schemas, windows, queries and virtual sensors.

#![forbid(unsafe_code)]

mod element;
mod schema;

pub use element::{
    Epoch, Position, PositionError, Quality, Samples, StreamElement, Timestamp, Value,
};
pub use schema::{Field, FieldType, SchemaError, StreamSchema};
