//! The parts of the node that some kinds use beyond their file.

use std::fmt;
use std::sync::Arc;

use chappe_log::Level;
use chappe_stream::StreamSchema;
use chappe_transport::signatures::Signing;

/// A stream of the node as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamNow {
    /// The name under which it was defined, which parts of batches carry.
    pub name: String,
    /// The schema of its newest elements.
    pub schema: StreamSchema,
    /// The level of its elements.
    pub level: Level,
    /// The number of its newest element.
    pub last: u64,
    /// The key of the device that fills it, or the name of the virtual sensor.
    pub source: String,
    /// Bytes of its metadata in the log, which has all versions of its schema.
    pub metadata_bytes: usize,
}

/// Looks up a stream by any of its names.
type LookUp = dyn Fn(&str) -> Option<StreamNow> + Send + Sync;

/// The parts of a node that some kinds use beyond their file. Clones share them.
#[derive(Clone)]
pub struct NodeParts {
    /// Its DDS topics.
    #[cfg(feature = "dds")]
    pub topics: Option<Arc<chappe_dds::topics::Topics>>,
    /// Looks up a stream by any of its names.
    pub stream: Arc<LookUp>,
    /// What devices that it hosts do with signatures, unless their files say otherwise; `None` if the node has no
    /// authorities of signers.
    pub signing: Option<Signing>,
    /// What distinguishes it from other nodes.
    pub id: Arc<str>,
}

impl Default for NodeParts {
    /// No topics, no streams, no signatures and no identity.
    fn default() -> Self {
        Self {
            #[cfg(feature = "dds")]
            topics: None,
            stream: Arc::new(|_| None),
            signing: None,
            id: Arc::from(""),
        }
    }
}

impl fmt::Debug for NodeParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeParts").finish_non_exhaustive()
    }
}
