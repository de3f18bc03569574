//! Recordings of real devices: what a device said, in files that people read, and a device that says it again.
//!
//! [`record`] stores a device's description, its documents, its answers to operations that read, and its events;
//! [`Recorded`] reads them and puts a device with the same endpoint, metadata and services on the network, in either
//! dialect. It answers each recorded operation with the recorded answer, and repeats the events at their times.
//!
//! ```text
//! device.toml                 endpoint, dialect, types, scopes, services
//! metadata.xml                the answer to Get
//! 1-thermometer/              one folder a service
//!   documents.tsv             file and location of each document
//!   1-service.wsdl            the documents as received
//!   answers.tsv, 1-Get.xml    file and action of each answer, and the answers
//!   events.tsv, 00001-*.xml   milliseconds, file and action of each event, and the events
//! ```
//!
//! Not recorded: answers that depend on their arguments (one answer is stored for each operation), attachments,
//! signatures, and port types outside the target namespace of their document.

mod error;
mod play;
mod pretty;
mod take;
mod text;

pub use error::RecordingError;
pub use play::Recorded;
pub use take::{RecordOptions, Summary, record};

/// The name of the description in the folder of a recording.
pub const DESCRIPTION: &str = "device.toml";

/// Bytes of all files of a recording. Reason: an hour of ten events of 2 KiB a second; a recording is held in
/// memory while it is replayed.
const BYTES_MAX: u64 = 64 << 20;
/// Events of a recording. Reason: each is a file, and folders of more files are slow to list.
const EVENTS_MAX: usize = 20_000;
