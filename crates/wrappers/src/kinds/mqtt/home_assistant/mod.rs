//! Home Assistant's discovery over MQTT: announced entities as streams, and fields of streams as announced entities.

mod announce;
mod classes;
mod config;
mod discovery;
mod operation;
mod template;
mod wrapper;

use chappe_stream::Timestamp;

use super::follow::Output;
use crate::Batch;

pub(super) use announce::{Announcer, Settings as AnnounceSettings};
pub(crate) use wrapper::WRAPPER;

/// The first level of topics of discovery, unless a file sets another.
const PREFIX: &str = "homeassistant";

fn prefix() -> String {
    PREFIX.to_owned()
}

/// The elements of messages, topics with payloads that arrived at `now`, of which some announce entities, at most
/// `entities_max`. `name` is the wrapper's.
#[must_use]
pub fn read<'m>(
    name: &str,
    entities_max: usize,
    now: Timestamp,
    messages: impl IntoIterator<Item = (&'m str, &'m [u8])>,
) -> Batch {
    let mut discovery = discovery::Discovery::new(PREFIX, name, entities_max);
    let mut output = Output::default();
    for (topic, payload) in messages {
        discovery.receive(topic, payload, now, &mut output);
    }
    output.batch.devices = discovery.devices();
    output.batch
}
