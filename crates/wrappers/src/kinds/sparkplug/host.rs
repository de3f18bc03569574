//! A host application of Sparkplug B (Eclipse Sparkplug 3.0, 5.4 to 5.9): what edge nodes and their devices publish, as
//! elements. It has no input or output and no clock.
//!
//! Birth certificates say which metrics there are, with names, aliases, types and units; data messages only refer to
//! them. Without a birth certificate, or after a gap of sequence numbers, the edge node is asked for a new one. Messages
//! of an edge node arrive in their order, because it publishes over one connection, so that a gap is not waited for
//! (5.7 allows a time of zero).

mod devices;
mod names;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use chappe_format::units::{Vocabulary, to_ucum};
use chappe_stream::{Field, Quality, StreamElement, StreamSchema, Timestamp, Value};

pub(super) use self::devices::refused;
use self::devices::{About, Control};
use self::requests::{Requests, request};
use super::payload::{Metric, MetricValue, Payload, Topic, is_identifier};
use super::value::{self, DataType};
use crate::kinds::mqtt::broker::Order;
use crate::kinds::mqtt::follow::{Output, other_meaning};
use crate::{Lost, NodeParts, StreamDefinition, Undecodable};

/// Edge nodes and devices together, as far as their birth certificates are known, are at most so many times the metrics;
/// reason: a metric needs a device and its edge node, and the metrics of streams that exist find room beyond the limit of
/// metrics, which others may have used up.
const BRANCHES_PER_METRIC: usize = 4;
/// Edge nodes that are dropped together for new ones; reason: finding the oldest takes a look at all.
const DROPPED_AT_ONCE: usize = 256;
/// Longest name of a metric in bytes; reason: it becomes the name of a stream, which has at most 128.
const NAME_BYTES_MAX: usize = 512;
/// Characters of a topic in a reason, if one of its levels is longer than those of Sparkplug.
const SHOWN_CHARACTERS: usize = 80;
/// Bytes of a message that are kept if it cannot be decoded.
const KEPT_BYTES: usize = 64 << 10;
/// The metric that asks an edge node for its birth certificate.
pub(super) const REBIRTH: &str = "Node Control/Rebirth";
/// The metric that binds a death certificate to a birth certificate.
pub(super) const BD_SEQ: &str = "bdSeq";
/// Folders of metrics that are commands.
const CONTROL: [&str; 2] = ["Node Control/", "Device Control/"];
/// Properties that hold the unit of a metric.
const UNIT_KEYS: [&str; 4] = ["engUnit", "engUnits", "Engineering Units", "unit"];
/// Properties that describe a metric.
const TEXT_KEYS: [&str; 2] = ["documentation", "description"];

/// Properties that hold the URI of the observed property of a metric.
const PROPERTY_KEYS: [&str; 1] = [OBSERVED_PROPERTY];
/// The property by which this exporter tells the observed property of a metric.
pub(super) const OBSERVED_PROPERTY: &str = "observedProperty";

/// A metric that a birth certificate defined.
struct Known {
    data_type: DataType,
    /// The number of its data type.
    type_number: u32,
    alias: Option<u64>,
    /// Its birth certificate says that commands do not change it.
    is_read_only: bool,
    stream: Arc<str>,
    definition: Arc<StreamDefinition>,
    /// The newest value: its time, and a hash of it.
    last: Option<(Timestamp, u64)>,
    /// Whether its last element has a value.
    has_value: bool,
}

/// The metrics of an edge node itself, or of one of its devices.
#[derive(Default)]
struct Branch {
    is_online: bool,
    /// Since when it is online, or is not.
    since: Timestamp,
    /// Metrics that are commands.
    controls: Vec<Control>,
    about: About,
    metrics: BTreeMap<String, Known>,
}

/// The metric of an alias.
struct Alias {
    device: String,
    /// Its name; `None`: it is not stored.
    metric: Option<String>,
}

/// An edge node. Its own metrics are those of the device with no name.
#[derive(Default)]
struct Node {
    is_online: bool,
    bd_seq: Option<u64>,
    next_seq: u8,
    aliases: HashMap<u64, Alias>,
    branches: BTreeMap<String, Branch>,
    asked: Option<Timestamp>,
    /// When its last birth certificate arrived.
    born: Timestamp,
}

/// Group and name of an edge node.
type NodeId = (String, String);

/// The machine.
pub(super) struct Host {
    /// What the names of its streams begin with.
    name: String,
    metrics_max: usize,
    /// The parts of the Chappe node.
    parts: NodeParts,
    nodes: BTreeMap<NodeId, Node>,
    requests: Requests,
    /// The streams of the metrics.
    streams: HashSet<Arc<str>>,
    /// Edge nodes and devices of which something was not reported yet.
    changed: BTreeSet<(NodeId, String)>,
    branches: usize,
    /// Aliases of metrics that are not stored.
    unstored: usize,
}

/// A message that is worked on, and what it leads to.
struct Turn<'t> {
    topic: Topic<'t>,
    payload: &'t Payload,
    now: Timestamp,
    faults: Faults,
    /// Whether the edge node must publish its birth certificates again.
    needs_birth: bool,
    output: &'t mut Output,
}

impl Host {
    pub(super) fn new(name: &str, metrics_max: usize) -> Self {
        Self {
            name: name.to_owned(),
            metrics_max,
            parts: NodeParts::default(),
            nodes: BTreeMap::new(),
            requests: Requests::default(),
            streams: HashSet::new(),
            changed: BTreeSet::new(),
            branches: 0,
            unstored: 0,
        }
    }

    pub(super) fn attach(&mut self, node: &NodeParts) {
        self.parts = node.clone();
    }

    /// Whether an edge node is there.
    pub(super) fn has_nodes(&self) -> bool {
        self.nodes.values().any(|node| node.is_online)
    }

    /// Takes a message that arrived at `now`.
    pub(super) fn receive(
        &mut self,
        topic: &str,
        bytes: &[u8],
        now: Timestamp,
        output: &mut Output,
    ) {
        let Some(topic) = Topic::parse(topic) else {
            return;
        };
        let device = match (topic.verb, topic.device) {
            ("NBIRTH" | "NDATA" | "NDEATH", None) => "",
            ("DBIRTH" | "DDATA" | "DDEATH", Some(device)) if !device.is_empty() => device,
            _ => return,
        };
        let ids = [topic.group, topic.node].into_iter().chain(topic.device);
        if !ids.clone().all(is_identifier) {
            return unnamed(topic, bytes, output);
        }
        let payload = match Payload::parse(bytes) {
            Ok(payload) => payload,
            Err(reason) => return undecodable(topic, bytes, &reason, output),
        };
        let id = (topic.group.to_owned(), topic.node.to_owned());
        // The node is taken out while it is worked on, so that the streams of all can be.
        let known = self.nodes.remove(&id);
        let is_new = known.is_none();
        let mut node = known.unwrap_or_default();
        let mut turn = Turn {
            topic,
            payload: &payload,
            now,
            faults: Faults::default(),
            needs_birth: false,
            output,
        };
        match topic.verb {
            "NDEATH" => node.died(&mut turn),
            "NBIRTH" if is_new && !self.has_room() => turn.faults.add(self.too_many()),
            "NBIRTH" => self.born(&mut node, &mut turn),
            _ if !node.is_online => {
                turn.lost("no_birth", 1);
                turn.needs_birth = true;
            }
            _ => {
                node.follow(&mut turn);
                match topic.verb {
                    "DBIRTH" => self.define(&mut node, device, &mut turn),
                    "DDEATH" => node.stale(device, &mut turn),
                    _ => node.data(device, &mut turn),
                }
            }
        }
        let needs_birth = turn.needs_birth;
        if let Some(reason) = turn.faults.reason() {
            undecodable(topic, bytes, &reason, output);
        }
        // Only a birth certificate makes an edge node known: anybody can name one that is not there.
        let is_known = !is_new || node.is_online;
        if needs_birth {
            let is_due = match is_known {
                true => self.requests.is_due_for(&mut node.asked, now),
                false => self.requests.is_due_for_unborn(&id, now),
            };
            if is_due {
                output.orders.push(Order::Publish(request(topic, now)));
            }
        }
        if is_known {
            self.branches += usize::from(is_new);
            match topic.verb {
                // Those of all its devices are void, too.
                "NBIRTH" | "NDEATH" => self.note_all(&id, &node),
                "DBIRTH" | "DDEATH" => self.note(&id, device),
                _ => {}
            }
            self.nodes.insert(id, node);
        }
    }

    /// Whether there is room for one more edge node or device; the oldest edge nodes without metrics make it,
    /// then the devices without metrics.
    fn has_room(&mut self) -> bool {
        let most = self.branches_max();
        if self.branches < most {
            return true;
        }
        let nodes = self.nodes.iter();
        let without = nodes.filter(|(_, node)| !node.has_metrics());
        // One that is online and dropped is asked for its birth certificates when it publishes again.
        let mut oldest: Vec<_> = without
            .map(|(id, node)| (node.is_online, node.born, id.clone()))
            .collect();
        oldest.sort();
        for (_, _, id) in oldest.into_iter().take(DROPPED_AT_ONCE) {
            let Some(node) = self.nodes.remove(&id) else {
                continue;
            };
            self.note_all(&id, &node);
            let devices = node.branches.keys().filter(|device| !device.is_empty());
            self.branches -= 1 + devices.count();
            let aliases = node.aliases.values();
            self.unstored -= aliases.filter(|alias| alias.metric.is_none()).count();
        }
        if self.branches >= most {
            self.drop_empty_devices();
        }
        self.branches < most
    }

    /// Drops the devices without metrics. Those that publish again are asked for their birth certificates.
    fn drop_empty_devices(&mut self) {
        for (id, node) in &mut self.nodes {
            let (changed, aliases) = (&mut self.changed, &mut node.aliases);
            let before = node.branches.len();
            node.branches.retain(|device, branch| {
                let is_kept = device.is_empty() || !branch.metrics.is_empty();
                if !is_kept {
                    changed.insert((id.clone(), device.clone()));
                }
                is_kept
            });
            let dropped = before - node.branches.len();
            if dropped > 0 {
                self.branches -= dropped;
                let branches = &node.branches;
                aliases.retain(|_, alias| {
                    let is_kept = branches.contains_key(&alias.device);
                    self.unstored -= usize::from(!is_kept && alias.metric.is_none());
                    is_kept
                });
            }
        }
    }

    fn too_many(&self) -> String {
        let most = self.branches_max();
        format!("there are {most} edge nodes and devices already")
    }

    fn branches_max(&self) -> usize {
        self.metrics_max.saturating_mul(BRANCHES_PER_METRIC)
    }

    /// The birth certificate of an edge node.
    fn born(&mut self, node: &mut Node, turn: &mut Turn<'_>) {
        let Some(seq) = turn.payload.seq.and_then(|seq| u8::try_from(seq).ok()) else {
            return turn
                .faults
                .add("the birth certificate has no sequence number up to 255".to_owned());
        };
        node.is_online = true;
        node.born = turn.now;
        node.next_seq = seq.wrapping_add(1);
        node.bd_seq = bd_seq(turn.payload);
        let aliases = node.aliases.drain();
        self.unstored -= aliases.filter(|(_, alias)| alias.metric.is_none()).count();
        for branch in node.branches.values_mut() {
            branch.set_online(false, turn.now);
        }
        self.define(node, "", turn);
    }

    /// Defines the metrics of a birth certificate, and takes their values.
    fn define(&mut self, node: &mut Node, device: &str, turn: &mut Turn<'_>) {
        if !device.is_empty() && !node.branches.contains_key(device) {
            if !self.has_room() {
                return turn.faults.add(self.too_many());
            }
            self.branches += 1;
        }
        let mut branch = node.branches.remove(device).unwrap_or_default();
        let mut former = std::mem::take(&mut branch.metrics);
        for known in former.values() {
            self.streams.remove(&known.stream);
        }
        node.aliases.retain(|_, alias| {
            let is_of_other = alias.device != device;
            self.unstored -= usize::from(!is_of_other && alias.metric.is_none());
            is_of_other
        });
        branch.set_online(true, turn.now);
        branch.about = About::of(turn.payload);
        branch.controls = devices::controls(turn.payload);
        let mut has_unstored = false;
        for metric in &turn.payload.metrics {
            let Some(name) = metric.named() else {
                turn.faults
                    .add("a metric of the birth certificate has no name".to_owned());
                continue;
            };
            // Commands, and values that are not to be stored (6.4.6).
            let is_command = name == BD_SEQ || CONTROL.iter().any(|it| name.starts_with(it));
            let is_command = is_command || metric.is_transient == Some(true);
            let is_repeated = branch.metrics.contains_key(name);
            if is_command || is_repeated {
                has_unstored |= !is_command && metric.has_value();
                self.add_alias(node, device, metric.alias, None, turn);
                continue;
            }
            let mut known = match self.known(name, metric, former.get(name), turn) {
                Ok(known) => known,
                Err(reason) => {
                    has_unstored |= metric.has_value();
                    let topic = turn.topic.text();
                    turn.output
                        .notes
                        .push(format!("{topic}: {name:?} is not stored: {reason}"));
                    self.add_alias(node, device, metric.alias, None, turn);
                    continue;
                }
            };
            self.add_alias(node, device, metric.alias, Some(name), turn);
            if let Some(former) = former.remove(name).filter(|it| it.stream == known.stream) {
                (known.last, known.has_value) = (former.last, former.has_value);
            }
            let element = known.element(metric, turn.payload, turn.now);
            match element {
                // After a rebirth most values are those of before.
                Ok((element, hash)) if known.last != Some((element.source_time, hash)) => {
                    // The newest one, even if the clock of the device was set back.
                    known.last = None;
                    known.push(element, hash, turn.output);
                }
                Ok(_) => {}
                Err(reason) => turn.faults.add(format!("{name:?}: {reason}")),
            }
            branch.metrics.insert(name.to_owned(), known);
        }
        if has_unstored {
            turn.lost("metric_not_stored", 1);
        }
        node.branches.insert(device.to_owned(), branch);
    }

    /// Notes the alias of a metric, with its name if it is stored.
    fn add_alias(
        &mut self,
        node: &mut Node,
        device: &str,
        number: Option<u64>,
        metric: Option<&str>,
        turn: &mut Turn<'_>,
    ) {
        let Some(number) = number else {
            return;
        };
        // Those of stored metrics are as many as the metrics.
        if metric.is_none() && self.unstored >= self.metrics_max {
            return;
        }
        let alias = Alias {
            device: device.to_owned(),
            metric: metric.map(str::to_owned),
        };
        self.unstored += usize::from(metric.is_none());
        if let Some(former) = node.aliases.insert(number, alias) {
            self.unstored -= usize::from(former.metric.is_none());
            turn.faults
                .add(format!("two metrics have the alias {number}"));
        }
    }

    /// A metric of a birth certificate.
    fn known(
        &mut self,
        name: &str,
        metric: &Metric,
        former: Option<&Known>,
        turn: &mut Turn<'_>,
    ) -> Result<Known, String> {
        if name.len() > NAME_BYTES_MAX {
            return Err(format!("its name is longer than {NAME_BYTES_MAX} bytes"));
        }
        let type_number = metric.datatype.unwrap_or_default();
        let data_type = DataType::of(type_number)?;
        let topic = turn.topic;
        let stream = self.stream_name(topic, name, former.map(|former| &former.stream))?;
        if !self.has_room_for(&stream) {
            return Err(format!("there are {} metrics already", self.metrics_max));
        }
        self.streams.insert(stream.clone());
        let unit = metric.text(&UNIT_KEYS).filter(|unit| !unit.is_empty());
        let code = unit.and_then(|unit| to_ucum(Vocabulary::Sparkplug, unit));
        if let Some(unit) = unit.filter(|_| code.is_none()) {
            let unit: String = unit.chars().take(40).collect();
            turn.output
                .notes
                .push(format!("the unit {unit:?} of {stream} has no UCUM code"));
        }
        let field = Field {
            name: "value".to_owned(),
            field_type: data_type.field_type(),
            unit: code.or_else(|| unit.map(str::to_owned)),
            observed_property: names::observed_property(metric.text(&PROPERTY_KEYS)),
            description: Some(names::label(name, metric.text(&TEXT_KEYS))),
        };
        let device = topic
            .device
            .map_or_else(String::new, |device| format!("/{device}"));
        let definition = StreamDefinition {
            schema: StreamSchema {
                fields: vec![field],
                key: None,
            },
            level: None,
            description: Some(format!("{name} of {}/{}{device}", topic.group, topic.node)),
        };
        let recent: Option<&StreamSchema> = former
            .filter(|former| former.last.is_some())
            .map(|former| &former.definition.schema);
        if let Some(reason) = other_meaning(&self.parts, &stream, recent, &definition.schema) {
            self.streams.remove(&stream);
            turn.faults.add(format!("{name:?}: {reason}"));
            return Err(reason);
        }
        Ok(Known {
            data_type,
            type_number,
            alias: metric.alias,
            is_read_only: metric.is_read_only(),
            stream,
            definition: Arc::new(definition),
            last: None,
            has_value: false,
        })
    }
}

impl Node {
    /// Follows the sequence numbers of messages after a birth certificate.
    fn follow(&mut self, turn: &mut Turn<'_>) {
        let seq = turn.payload.seq.and_then(|seq| u8::try_from(seq).ok());
        let Some(missing) = seq.map(|seq| seq.wrapping_sub(self.next_seq)) else {
            return turn.needs_birth = true;
        };
        self.next_seq = self.next_seq.wrapping_add(missing).wrapping_add(1);
        if missing != 0 {
            turn.lost("sequence_gap", u64::from(missing));
            turn.needs_birth = true;
        }
    }

    /// Whether it, or one of its devices, has a metric.
    fn has_metrics(&self) -> bool {
        let mut branches = self.branches.values();
        branches.any(|branch| !branch.metrics.is_empty())
    }

    /// The death certificate of the edge node.
    fn died(&mut self, turn: &mut Turn<'_>) {
        // That of an earlier connection, which the broker noticed late (6.4.23).
        if bd_seq(turn.payload) != self.bd_seq {
            return;
        }
        self.is_online = false;
        let devices: Vec<String> = self.branches.keys().cloned().collect();
        for device in devices {
            self.stale(&device, turn);
        }
    }

    /// The values of a device are not known any more.
    fn stale(&mut self, device: &str, turn: &mut Turn<'_>) {
        let Some(branch) = self.branches.get_mut(device) else {
            return;
        };
        branch.set_online(false, turn.now);
        for known in branch.metrics.values_mut() {
            let element = StreamElement {
                position: Default::default(),
                source_time: turn.now,
                receive_time: turn.now,
                key: None,
                values: vec![Value::Null],
                quality: Quality::Bad,
                origin: None,
            };
            known.push(element, 0, turn.output);
            known.last = None;
        }
    }

    /// The values of a data message.
    fn data(&mut self, device: &str, turn: &mut Turn<'_>) {
        if !self
            .branches
            .get(device)
            .is_some_and(|branch| branch.is_online)
        {
            turn.lost("no_birth", 1);
            return turn.needs_birth = true;
        }
        let (mut has_unknown, mut has_unstored) = (false, false);
        for metric in &turn.payload.metrics {
            if metric.is_transient == Some(true) {
                continue;
            }
            let by_alias = metric.alias.and_then(|alias| self.aliases.get(&alias));
            let name = match (metric.named(), by_alias) {
                (Some(name), _) => name,
                (None, Some(alias)) if alias.device == device => match &alias.metric {
                    Some(name) => name,
                    None => {
                        has_unstored = true;
                        continue;
                    }
                },
                _ => {
                    has_unknown = true;
                    continue;
                }
            };
            let Some(branch) = self.branches.get_mut(device) else {
                continue;
            };
            // mqtt-spb-wrapper names this folder in birth certificates only.
            let key = match branch.metrics.contains_key(name) {
                true => name.to_owned(),
                false => format!("DATA/{name}"),
            };
            let Some(known) = branch.metrics.get_mut(&key) else {
                has_unstored = true;
                continue;
            };
            match known.element(metric, turn.payload, turn.now) {
                Ok((element, hash)) => known.push(element, hash, turn.output),
                Err(reason) => turn.faults.add(format!("{name:?}: {reason}")),
            }
        }
        if has_unstored {
            turn.lost("metric_not_stored", 1);
        }
        if has_unknown {
            turn.needs_birth = true;
        }
    }
}

impl Known {
    /// The element of a metric, and a hash of its value.
    fn element(
        &self,
        metric: &Metric,
        payload: &Payload,
        now: Timestamp,
    ) -> Result<(StreamElement, u64), String> {
        let value = match &metric.value {
            Some(value) if metric.has_value() => self.data_type.read(value)?,
            _ => Value::Null,
        };
        let stated = metric.timestamp.or(payload.timestamp);
        let quality = value::quality(metric.quality());
        let mut hasher = DefaultHasher::new();
        format!("{value:?} {quality:?}").hash(&mut hasher);
        let element = StreamElement {
            position: Default::default(),
            source_time: stated.map_or(Ok(now), value::time)?,
            receive_time: now,
            key: None,
            values: vec![value],
            quality,
            origin: None,
        };
        Ok((element, hasher.finish()))
    }

    /// Adds an element. A value that is missing is said once.
    fn push(&mut self, element: StreamElement, hash: u64, output: &mut Output) {
        let has_value = element.values[0] != Value::Null;
        if !has_value && !self.has_value {
            return;
        }
        self.has_value = has_value;
        // A historical value is not the newest one.
        if self
            .last
            .is_none_or(|(time, _)| time <= element.source_time)
        {
            self.last = Some((element.source_time, hash));
        }
        output.batch.push(&self.stream, &self.definition, element);
    }
}

fn bd_seq(payload: &Payload) -> Option<u64> {
    let named = |metric: &&Metric| metric.named() == Some(BD_SEQ);
    match payload.metrics.iter().find(named)?.value {
        Some(MetricValue::Long(number)) => Some(number),
        Some(MetricValue::Int(number)) => Some(number.into()),
        _ => None,
    }
}

impl Turn<'_> {
    fn lost(&mut self, reason: &'static str, messages: u64) {
        self.output.batch.lost.push(Lost {
            stream: None,
            reason,
            messages,
        });
    }
}

/// Refuses a message whose group, edge node or device has no name of Sparkplug.
fn unnamed(topic: Topic<'_>, bytes: &[u8], output: &mut Output) {
    let shown: String = topic.text().chars().take(SHOWN_CHARACTERS).collect();
    output.batch.undecodable.push(Undecodable {
        stream: None,
        reason: format!("{shown}: group, edge node and device have names of 1 to 256 bytes"),
        message: bytes[..bytes.len().min(KEPT_BYTES)].to_vec(),
        is_cut: bytes.len() > KEPT_BYTES,
    });
}

fn undecodable(topic: Topic<'_>, bytes: &[u8], reason: &str, output: &mut Output) {
    output.batch.undecodable.push(Undecodable {
        stream: None,
        reason: format!("{}: {reason}", topic.text()),
        message: bytes[..bytes.len().min(KEPT_BYTES)].to_vec(),
        is_cut: bytes.len() > KEPT_BYTES,
    });
}

/// What is wrong with a message: the first fault, and how many there are.
#[derive(Debug, Default)]
struct Faults {
    first: Option<String>,
    count: usize,
}

impl Faults {
    fn add(&mut self, fault: String) {
        self.first.get_or_insert(fault);
        self.count += 1;
    }

    fn reason(self) -> Option<String> {
        let first = self.first?;
        Some(match self.count {
            1 => first,
            count => format!("{first}; and {} more", count - 1),
        })
    }
}
