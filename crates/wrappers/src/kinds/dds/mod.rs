//! The kinds `dds` and `dds_any`: a topic is read into a stream, and a stream is published to a topic, over the
//! participant of the node (docs/reference/dds.md).

mod any;
mod idl;
mod publish;
mod publish_any;
mod subscribe;

use chappe_dds::DdsError;
use chappe_stream::DescriptorError;

use crate::{CommonKeys, PeerFile, WrapperError};

pub(crate) use any::WRAPPER as ANY_WRAPPER;
pub(crate) use publish::EXPORTER;
pub(crate) use publish_any::EXPORTER as ANY_EXPORTER;
pub(crate) use subscribe::WRAPPER;

/// The error while there is no node with topics.
const NO_TOPICS: &str = "there is no node whose DDS participant it could use";

/// The fault of a key.
fn fault<C: CommonKeys>(file: &PeerFile<C>, error: &DdsError) -> DescriptorError {
    let key = match error {
        DdsError::Qos { key, .. } if ["readers", "stalled_after_s"].contains(key) => key,
        DdsError::Qos { .. } => "qos",
        DdsError::Name {
            what: "type name", ..
        } => "type_name",
        _ => "topic",
    };
    file.fault(key, error.to_string(), error.hint().map(str::to_owned))
}

/// A failure of the participant or of a topic.
fn failed(error: &DdsError) -> WrapperError {
    let failed = WrapperError::peer(error.to_string());
    match error.hint() {
        Some(hint) => failed.with_hint(hint),
        None => failed,
    }
}
