//! Sparkplug B (Eclipse Sparkplug 3.0): what edge nodes publish as elements, elements as what an edge node publishes.

mod edge;
mod exporter;
mod host;
mod payload;
#[cfg(test)]
mod tests;
mod value;
mod wrapper;

use chappe_stream::Timestamp;

use crate::Batch;
use crate::kinds::mqtt::follow::Output;

pub(crate) use exporter::EXPORTER;
pub(crate) use wrapper::WRAPPER;

/// The elements of messages, topics with payloads that arrived at `now`, with at most `metrics_max` metrics. `name` is the
/// wrapper's.
#[must_use]
pub fn read<'m>(
    name: &str,
    metrics_max: usize,
    now: Timestamp,
    messages: impl IntoIterator<Item = (&'m str, &'m [u8])>,
) -> Batch {
    let mut host = host::Host::new(name, metrics_max);
    let mut output = Output::default();
    for (topic, payload) in messages {
        host.receive(topic, payload, now, &mut output);
    }
    output.batch.devices = host.devices();
    output.batch
}
