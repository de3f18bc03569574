//! Values of nodes as elements: values of one stream with the same time become one element.

use std::collections::HashMap;

use chappe_stream::{Quality, StreamElement, Timestamp, Value};
use opcua_types::{DataValue, StatusCode};

use super::settings::{Group, Node};
use super::value::{convert, describe, timestamp};
use crate::{Batch, Lost, Undecodable, element_weight};

/// Bytes of elements after which a batch is complete; reason: a batch has at most 1 MiB, and one value half of it.
const BATCH_BYTES: usize = 384 << 10;

/// Collects elements.
#[derive(Debug, Default)]
pub(super) struct Elements {
    batch: Batch,
    bytes: usize,
    /// The element of a stream and a time: its part and its place there.
    places: HashMap<(usize, Timestamp), (usize, usize)>,
}

/// What a status says of a value.
pub(super) fn quality(status: StatusCode) -> Quality {
    match () {
        () if status.is_bad() => Quality::Bad,
        () if status.is_uncertain() => Quality::Questionable,
        () => Quality::Good,
    }
}

/// The time of a value: of the source, else of the server, else of its receipt.
pub(super) fn time_of(value: &DataValue, received: Timestamp) -> Timestamp {
    let times = [&value.source_timestamp, &value.server_timestamp];
    let mut times = times.into_iter().flatten().filter_map(timestamp);
    times.next().unwrap_or(received)
}

impl Elements {
    /// Adds a value of a node.
    pub(super) fn add(
        &mut self,
        groups: &[Group],
        node: &Node,
        value: &DataValue,
        (time, received): (Timestamp, Timestamp),
    ) {
        let Some(group) = groups.get(node.group) else {
            return;
        };
        let quality = quality(value.status());
        let found = match (&value.value, quality) {
            // A value with a bad status is none (part 4, section 7.11).
            (None, _) | (_, Quality::Bad) => Ok(Value::Null),
            (Some(variant), _) => convert(variant, node.field_type, time, node.period_ns),
        };
        let found = match found {
            Ok(found) => found,
            Err(reason) => {
                let shown = value.value.as_ref().map(describe).unwrap_or_default();
                self.bytes += 128 + shown.len();
                self.batch.undecodable.push(Undecodable {
                    stream: Some(group.stream.to_string()),
                    reason: format!("{:?} ({}): {reason}", node.name, node.address),
                    message: shown.into_bytes(),
                    // A value alone is no message of a format.
                    is_cut: true,
                });
                return;
            }
        };
        let place = self.places.get(&(node.group, time)).copied();
        let place =
            place.and_then(|(part, at)| self.batch.parts.get_mut(part)?.elements.get_mut(at));
        if let Some(element) = place
            && let Some(field) = element.values.get_mut(node.field)
            && *field == Value::Null
            && found != Value::Null
        {
            self.bytes += element_weight_of(&found);
            *field = found;
            element.quality = worse(element.quality, quality);
            return;
        }
        let fields = group.definition.schema.fields.len();
        let mut values = vec![Value::Null; fields];
        if let Some(field) = values.get_mut(node.field) {
            *field = found;
        }
        let element = StreamElement {
            position: Default::default(),
            source_time: time,
            receive_time: received,
            key: group.key.clone(),
            values,
            quality,
            origin: None,
        };
        self.bytes += element_weight(&element);
        // Two tables may fill one stream, with two keys.
        self.batch.push(&group.stream, &group.definition, element);
        let last = self
            .batch
            .parts
            .iter()
            .rposition(|part| part.stream == group.stream);
        if let Some(part) = last {
            let at = self.batch.parts[part].elements.len() - 1;
            self.places.insert((node.group, time), (part, at));
        }
    }

    /// Adds a loss.
    pub(super) fn lose(&mut self, group: &Group, reason: &'static str) {
        let stream = group.stream.to_string();
        let mut same = self.batch.lost.iter();
        if same.any(|it| it.reason == reason && it.stream.as_deref() == Some(&*stream)) {
            return;
        }
        self.batch.lost.push(Lost {
            stream: Some(stream),
            reason,
            // How many is not known.
            messages: 0,
        });
    }

    /// Whether the batch is as large as one may be.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES
    }

    /// The batch, if there is anything in it.
    pub(super) fn take(&mut self) -> Option<Batch> {
        let batch = std::mem::take(self).batch;
        let is_empty =
            batch.parts.is_empty() && batch.undecodable.is_empty() && batch.lost.is_empty();
        (!is_empty).then_some(batch)
    }
}

fn element_weight_of(value: &Value) -> usize {
    match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Samples(samples) => 8 * samples.values.len(),
        _ => 0,
    }
}

fn worse(one: Quality, other: Quality) -> Quality {
    match (one, other) {
        (Quality::Bad, _) | (_, Quality::Bad) => Quality::Bad,
        (Quality::Questionable, _) | (_, Quality::Questionable) => Quality::Questionable,
        _ => Quality::Good,
    }
}
