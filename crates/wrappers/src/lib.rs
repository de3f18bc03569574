//! Wrappers and exporters: how stream elements come from peers outside the node, and go to them.
//!
//! Every protocol implements one trait for each direction: [`Wrapper`] is the source, [`Exporter`] the
//! sink. Neither knows the log. The node is their host: it stores each [`Batch`] of a wrapper together
//! with its [`Mark`], and reads streams for an exporter by a cursor.
//!
//! [`dpws`] attaches a described device, without these traits: its events become elements by the
//! mappings of [`chappe_device::mapping`] that fit it.

#![forbid(unsafe_code)]

mod batch;
mod clock;
mod decode;
mod descriptor;
pub mod dpws;
mod exporter;
mod kind;
mod kinds;
mod schema;
mod wrapper;

pub use batch::{
    BATCH_BYTES_MAX, Batch, Lost, MARK_BYTES_MAX, Mark, MarkTooLong, Part, StreamDefinition,
    Undecodable, element_weight,
};
pub use descriptor::{
    CommandTable, CommonKeys, ExporterFile, ExporterKeys, FILE_BYTES_MAX, FieldTable, FormatKey,
    PeerFile, StartKey, StreamTable, WrapperFile, WrapperKeys, WrapperLimits,
};
pub use exporter::{Exporter, Refused, Written};
pub use kind::{
    Browse, Condition, Delivery, ExporterKind, ExporterOpening, WrapperKind, WrapperOpening,
    exporter_kinds, wrapper_kinds,
};
pub use schema::{exporter_schema, wrapper_schema};
pub use wrapper::{Command, Step, Wrapper, WrapperError};

#[cfg(test)]
mod tests {
    use chappe_stream::{StreamElement, Timestamp, Value};

    /// An element with one number.
    pub(crate) fn element(value: f64) -> StreamElement {
        StreamElement {
            position: Default::default(),
            source_time: Timestamp(1),
            receive_time: Timestamp(2),
            key: None,
            values: vec![Value::Double(value)],
            quality: Default::default(),
            origin: None,
        }
    }
}
