//! A reader of a stream.

use serde::Serialize;
use utoipa::ToSchema;

/// A reader of a stream, and how far it is from a loss.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Reader {
    /// The stream.
    pub(crate) stream: String,
    /// `sensor`, `link` or `exporter`.
    pub(crate) kind: &'static str,
    /// The name of the sensor or exporter; of a link, the key or address of the node that reads.
    pub(crate) reader: String,
    /// The last number that it has read.
    pub(crate) read: u64,
    /// Elements that it has not read and that are kept.
    pub(crate) lag_elements: u64,
    /// Elements that were removed before it read them.
    pub(crate) missed_elements: u64,
    /// Further elements that the stream can receive before retention by number may remove the first one
    /// that it has not read; null without such a retention.
    pub(crate) elements_left: Option<u64>,
    /// Seconds until retention may remove the first one that it has not read, by age or at the present
    /// rate; null if neither bounds it.
    pub(crate) seconds_left: Option<f64>,
    /// What removes it first: `elements` or `age`.
    pub(crate) by: Option<&'static str>,
}
