//! An edge node of Sparkplug B (Eclipse Sparkplug 3.0, 5.1 to 5.6): streams are its devices, fields their metrics. It
//! has no input or output and no clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use chappe_format::units::{Vocabulary, from_ucum};
use chappe_stream::{Field, StreamElement, Timestamp, Value};

use super::host::{BD_SEQ, OBSERVED_PROPERTY, REBIRTH};
use super::payload::{Metric, MetricValue, Payload, PropertySet, Topic, is_identifier};
use super::value::{self, BOOLEAN, INT64};
use crate::kinds::mqtt::session::Publication;
use crate::{Part, StreamDefinition};

/// Most devices; reason: the values of each are kept for the next birth certificate.
const DEVICES_MAX: usize = 10_000;
/// Metrics of one message of data; reason: a message stays far below what brokers take.
const METRICS_AT_ONCE: usize = 256;
/// Bytes of values of one message of data.
const BYTES_AT_ONCE: usize = 64 << 10;

/// A stream, and one key of it if it has keys.
type Subject = (Arc<str>, Option<String>);

/// A stream, or one key of it.
struct Device {
    id: String,
    definition: Arc<StreamDefinition>,
    /// The alias of its first metric; those of the others follow.
    first_alias: u64,
    /// The newest values.
    values: Vec<Value>,
    time: Option<Timestamp>,
}

/// The machine.
pub(super) struct Edge {
    group: String,
    node: String,
    bd_seq: u8,
    seq: u8,
    /// When the first birth certificate of the connection was made; older elements are historical.
    born: Option<Timestamp>,
    devices: BTreeMap<Subject, Device>,
    next_alias: u64,
}

impl Edge {
    /// An edge node in a new connection.
    pub(super) fn new(group: &str, node: &str, bd_seq: u8) -> Self {
        Self {
            group: group.to_owned(),
            node: node.to_owned(),
            bd_seq,
            seq: 0,
            born: None,
            devices: BTreeMap::new(),
            next_alias: 1,
        }
    }

    fn topic(&self, verb: &str, device: Option<&str>) -> String {
        let (group, node) = (&self.group, &self.node);
        Topic {
            group,
            verb,
            node,
            device,
        }
        .text()
    }

    /// The topic of commands.
    pub(super) fn commands(&self) -> String {
        self.topic("NCMD", None)
    }

    /// The filter of commands to its devices.
    pub(super) fn device_commands(&self) -> String {
        self.topic("DCMD", Some("+"))
    }

    /// Topic and payload of the death certificate.
    pub(super) fn death(&self, now: Timestamp) -> (String, Vec<u8>) {
        let payload = Payload {
            timestamp: Some(value::milliseconds(now)),
            metrics: vec![self.bd_seq_metric(now)],
            seq: None,
        };
        (self.topic("NDEATH", None), payload.to_bytes())
    }

    fn bd_seq_metric(&self, now: Timestamp) -> Metric {
        Metric {
            name: Some(BD_SEQ.to_owned()),
            timestamp: Some(value::milliseconds(now)),
            datatype: Some(INT64),
            value: Some(MetricValue::Long(self.bd_seq.into())),
            ..Metric::default()
        }
    }

    /// Whether birth certificates were made.
    pub(super) fn is_born(&self) -> bool {
        self.born.is_some()
    }

    /// The birth certificates of the edge node and its devices.
    pub(super) fn births(&mut self, now: Timestamp) -> Vec<Publication> {
        self.born.get_or_insert(now);
        self.seq = 0;
        let metrics = vec![
            self.bd_seq_metric(now),
            Metric {
                name: Some(REBIRTH.to_owned()),
                timestamp: Some(value::milliseconds(now)),
                datatype: Some(BOOLEAN),
                value: Some(MetricValue::Boolean(false)),
                ..Metric::default()
            },
        ];
        let mut births = vec![self.message("NBIRTH", None, metrics, now)];
        let devices: Vec<_> = self
            .devices
            .values()
            .map(|it| (it.id.clone(), it.birth(now)))
            .collect();
        for (id, metrics) in devices {
            births.push(self.message("DBIRTH", Some(&id), metrics, now));
        }
        births
    }

    /// Whether a message on the topic of commands asks for birth certificates.
    pub(super) fn asks_for_birth(payload: &[u8]) -> bool {
        let Ok(payload) = Payload::parse(payload) else {
            return false;
        };
        let mut metrics = payload.metrics.iter();
        metrics.any(|metric| {
            let is_true = metric.value == Some(MetricValue::Boolean(true));
            metric.name.as_deref() == Some(REBIRTH) && is_true
        })
    }

    /// The messages of elements of a stream, each with the indices of its elements. `Err`: the elements from this
    /// index on cannot be sent.
    pub(super) fn elements(
        &mut self,
        part: &Part,
        now: Timestamp,
        messages: &mut Vec<(Publication, std::ops::Range<usize>)>,
    ) -> Vec<(usize, String)> {
        let (mut refused, mut start) = (Vec::new(), 0);
        while start < part.elements.len() {
            let first = &part.elements[start];
            if first.source_time.0 < 0 {
                let reason = "its time is before 1970, which Sparkplug cannot tell";
                refused.push((start, reason.to_owned()));
                start += 1;
                continue;
            }
            let (device, birth) = match self.device(part, first, now) {
                Ok(found) => found,
                Err(reason) => {
                    refused.push((start, reason));
                    start += 1;
                    continue;
                }
            };
            messages.extend(birth.map(|birth| (birth, start..start)));
            let is_historical =
                |element: &StreamElement| self.born.is_some_and(|born| element.receive_time < born);
            let (mut end, mut metrics, mut bytes) = (start, Vec::new(), 0);
            let Some(known) = self.devices.get_mut(&device) else {
                break;
            };
            while let Some(element) = part.elements.get(end) {
                let follows = element.key == first.key
                    && is_historical(element) == is_historical(first)
                    && (end == start || element.source_time >= part.elements[end - 1].source_time);
                let is_full = metrics.len() >= METRICS_AT_ONCE || bytes >= BYTES_AT_ONCE;
                if !follows || (is_full && end > start) {
                    break;
                }
                bytes += crate::element_weight(element);
                metrics.extend(known.data(element, is_historical(element)));
                known.values.clone_from(&element.values);
                known.time = Some(element.source_time);
                end += 1;
            }
            let id = known.id.clone();
            let message = self.message("DDATA", Some(&id), metrics, now);
            messages.push((message, start..end));
            start = end;
        }
        refused
    }

    /// The device of an element, and its birth certificate if it is new or has other metrics than before.
    fn device(
        &mut self,
        part: &Part,
        element: &StreamElement,
        now: Timestamp,
    ) -> Result<(Subject, Option<Publication>), String> {
        let subject = (part.stream.clone(), element.key.clone());
        let known = self.devices.get(&subject);
        let is_same = |it: &Device| {
            Arc::ptr_eq(&it.definition, &part.definition)
                || it.definition.schema == part.definition.schema
        };
        if known.is_some_and(is_same) {
            return Ok((subject, None));
        }
        if known.is_none() && self.devices.len() >= DEVICES_MAX {
            return Err(format!("there are {DEVICES_MAX} devices already"));
        }
        let id = match &element.key {
            None => part.stream.to_string(),
            Some(key) => format!("{}:{}", part.stream, crate::kinds::mqtt::level(key)),
        };
        if !is_identifier(&id) {
            return Err("the key is too long for the name of a device".to_owned());
        }
        let fields = part.definition.schema.fields.len();
        let device = Device {
            id: id.clone(),
            definition: part.definition.clone(),
            first_alias: self.next_alias,
            values: vec![Value::Null; fields],
            time: None,
        };
        self.next_alias += fields as u64;
        let birth = self.message("DBIRTH", Some(&id), device.birth(now), now);
        self.devices.insert(subject.clone(), device);
        Ok((subject, Some(birth)))
    }

    fn message(
        &mut self,
        verb: &str,
        device: Option<&str>,
        metrics: Vec<Metric>,
        now: Timestamp,
    ) -> Publication {
        let payload = Payload {
            timestamp: Some(value::milliseconds(now)),
            metrics,
            seq: Some(self.seq.into()),
        };
        self.seq = self.seq.wrapping_add(1);
        Publication {
            token: 0,
            topic: self.topic(verb, device),
            payload: payload.to_bytes(),
            qos: 0,
            is_retained: false,
            property: None,
        }
    }
}

impl Device {
    /// The metrics of its birth certificate.
    fn birth(&self, now: Timestamp) -> Vec<Metric> {
        let fields = self.definition.schema.fields.iter();
        let metrics =
            fields
                .zip(&self.values)
                .zip(self.first_alias..)
                .map(|((field, value), alias)| {
                    let value = value::metric_value(value);
                    Metric {
                        name: Some(field.name.clone()),
                        alias: Some(alias),
                        timestamp: Some(value::milliseconds(self.time.unwrap_or(now))),
                        datatype: Some(value::data_type(field.field_type)),
                        is_null: value.is_none().then_some(true),
                        properties: properties(field),
                        value,
                        ..Metric::default()
                    }
                });
        metrics.collect()
    }

    /// The metrics of an element.
    fn data(&self, element: &StreamElement, is_historical: bool) -> Vec<Metric> {
        let code = value::quality_code(element.quality);
        let metrics = element
            .values
            .iter()
            .zip(self.first_alias..)
            .map(|(value, alias)| {
                let value = value::metric_value(value);
                Metric {
                    alias: Some(alias),
                    timestamp: Some(value::milliseconds(element.source_time)),
                    is_historical: is_historical.then_some(true),
                    is_null: value.is_none().then_some(true),
                    properties: code.map(PropertySet::of_quality),
                    value,
                    ..Metric::default()
                }
            });
        metrics.collect()
    }
}

/// Unit and description of a field.
fn properties(field: &Field) -> Option<PropertySet> {
    let mut set = PropertySet::default();
    if let Some(unit) = &field.unit {
        let text = from_ucum(Vocabulary::Sparkplug, unit).unwrap_or(unit);
        set = set.with_text("engUnit", text);
    }
    if let Some(uri) = &field.observed_property {
        set = set.with_text(OBSERVED_PROPERTY, uri);
    }
    if let Some(text) = &field.description {
        set = set.with_text("documentation", text);
    }
    (!set.keys.is_empty()).then_some(set)
}

/// The state of the primary host application, which an edge node waits for.
#[derive(Debug, Default)]
pub(super) struct PrimaryHost {
    is_online: bool,
    /// Of its newest certificate, in milliseconds.
    timestamp: u64,
}

impl PrimaryHost {
    pub(super) fn is_online(&self) -> bool {
        self.is_online
    }

    /// Takes a message of its STATE topic.
    pub(super) fn receive(&mut self, payload: &[u8]) {
        let Ok(state) = serde_json::from_slice::<serde_json::Value>(payload) else {
            return;
        };
        let (online, timestamp) = (state["online"].as_bool(), state["timestamp"].as_u64());
        if let (Some(is_online), Some(timestamp)) = (online, timestamp)
            // An older one is of a connection that the broker ended late.
            && timestamp >= self.timestamp
        {
            (self.is_online, self.timestamp) = (is_online, timestamp);
        }
    }
}
