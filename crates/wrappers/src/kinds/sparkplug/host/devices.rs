//! Edge nodes and their devices as devices of the Chappe node, and commands to their metrics (Eclipse Sparkplug 3.0,
//! 6.4.20 and 6.4.21).

use chappe_stream::{Timestamp, Value};
use serde_json::json;

use super::super::payload::{Metric, MetricValue, Payload, Topic};
use super::super::value::{self, DataType};
use super::{BD_SEQ, Branch, CONTROL, Host, Known, NAME_BYTES_MAX, Node, NodeId, REBIRTH};
use crate::kinds::mqtt::follow::Call;
use crate::kinds::mqtt::session::{Message, Publication};
use crate::{AnnouncedDevice, Argument, Command, DeviceReport, Operation};

/// Most metrics of an edge node or device that are commands and not stored; reason: the specification names five.
const CONTROLS_MAX: usize = 32;
/// Most characters of a text about a device.
const TEXT_CHARACTERS_MAX: usize = 120;
/// Metrics by which edge nodes tell what they are, as the specification's examples name them.
const MAKER: &str = "Properties/Hardware Make";
const MODEL: &str = "Properties/Hardware Model";
const FIRMWARE: [&str; 2] = ["Properties/FW", "Properties/Firmware Version"];
const SERIAL_NUMBER: &str = "Properties/Serial Number";
/// The folder under which mqtt-spb-wrapper announces commands, which it then takes without it.
const COMMAND_FOLDER: &str = "CMD/";

/// A metric that is a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Control {
    name: String,
    type_number: u32,
    alias: Option<u64>,
}

/// What a birth certificate says about the thing itself.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct About {
    manufacturer: Option<String>,
    model: Option<String>,
    firmware: Option<String>,
    serial_number: Option<String>,
}

impl About {
    pub(super) fn of(payload: &Payload) -> Self {
        let mut about = Self::default();
        for metric in &payload.metrics {
            let (Some(name), Some(MetricValue::String(text))) = (metric.named(), &metric.value)
            else {
                continue;
            };
            let place = match name {
                MAKER => &mut about.manufacturer,
                MODEL => &mut about.model,
                SERIAL_NUMBER => &mut about.serial_number,
                name if FIRMWARE.contains(&name) => &mut about.firmware,
                _ => continue,
            };
            let text: String = text
                .chars()
                .filter(|c| !c.is_control())
                .take(TEXT_CHARACTERS_MAX)
                .collect();
            *place = Some(text).filter(|text| !text.is_empty());
        }
        about
    }
}

/// The metrics of a birth certificate that are commands.
pub(super) fn controls(payload: &Payload) -> Vec<Control> {
    let control = |metric: &Metric| {
        let name = metric.named().filter(|name| name.len() <= NAME_BYTES_MAX)?;
        let type_number = metric.datatype.unwrap_or_default();
        let is_control = CONTROL.iter().any(|folder| name.starts_with(folder));
        let is_called = is_control && value::argument(type_number).is_some();
        is_called.then(|| Control {
            name: name.to_owned(),
            type_number,
            alias: metric.alias,
        })
    };
    let mut found: Vec<Control> = payload
        .metrics
        .iter()
        .filter_map(control)
        .take(CONTROLS_MAX)
        .collect();
    let mut seen = std::collections::HashSet::new();
    found.retain(|one| seen.insert(one.name.clone()));
    found
}

impl Branch {
    pub(super) fn set_online(&mut self, is_online: bool, now: Timestamp) {
        if self.is_online != is_online || self.since == Timestamp::default() {
            self.since = now;
        }
        self.is_online = is_online;
    }

    /// Data type and alias of what a command sets.
    fn settable(&self, name: &str) -> Option<(u32, Option<u64>)> {
        let control = self.controls.iter().find(|one| one.name == name);
        let of_control = control.map(|one| (one.type_number, one.alias));
        let of_metric = || {
            let known = self.metrics.get(name).filter(|known| known.is_settable())?;
            Some((known.type_number, known.alias))
        };
        of_control.or_else(of_metric)
    }
}

impl Known {
    fn is_settable(&self) -> bool {
        !self.is_read_only && value::argument(self.type_number).is_some()
    }
}

/// What identifies an edge node or device. None of the names has a slash.
fn device_id((group, node): &NodeId, device: &str) -> String {
    match device {
        "" => format!("{group}/{node}"),
        device => format!("{group}/{node}/{device}"),
    }
}

impl Host {
    /// An edge node or device has changed.
    pub(super) fn note(&mut self, id: &NodeId, device: &str) {
        self.changed.insert((id.clone(), device.to_owned()));
    }

    /// An edge node and all its devices have changed.
    pub(super) fn note_all(&mut self, id: &NodeId, node: &Node) {
        let devices = node.branches.keys().cloned();
        self.changed
            .extend(devices.map(|device| (id.clone(), device)));
    }

    /// What is new about edge nodes and devices since the last call.
    pub(in super::super) fn devices(&mut self) -> Vec<DeviceReport> {
        let changed = std::mem::take(&mut self.changed).into_iter();
        let report = |(id, device): (NodeId, String)| {
            let branch = self
                .nodes
                .get(&id)
                .and_then(|node| node.branches.get(&device));
            DeviceReport {
                id: device_id(&id, &device),
                device: branch.map(|branch| announced(&id, &device, branch)),
            }
        };
        changed.map(report).collect()
    }

    /// The message that sets a metric.
    ///
    /// # Errors
    /// There is no such device or metric, it is offline, or the value does not fit.
    pub(in super::super) fn operate(
        &self,
        device: &str,
        command: &Command,
        now: Timestamp,
    ) -> Result<Call, String> {
        let mut ids = device.split('/');
        let (Some(group), Some(node), child, None) =
            (ids.next(), ids.next(), ids.next(), ids.next())
        else {
            return Err(format!("there is no device {device:?}"));
        };
        let known = self.nodes.get(&(group.to_owned(), node.to_owned()));
        let branch = known.and_then(|node| node.branches.get(child.unwrap_or_default()));
        let branch = branch.ok_or_else(|| format!("there is no device {device:?}"))?;
        let name = &*command.name;
        let settable = branch.settable(name);
        let (type_number, alias) =
            settable.ok_or_else(|| format!("{device} has no metric {name:?} that can be set"))?;
        if !branch.is_online {
            return Err(format!("{device} is offline"));
        }
        let operation = operation(name, type_number, None);
        let given = operation.argument_of(&command.arguments)?;
        let given = given.ok_or("the argument \"value\" is missing")?;
        let metric_value = value::of_json(type_number, given)?;
        let data_type = DataType::of(type_number)?;
        let wanted = data_type.read(&metric_value)?;
        let timestamp = value::milliseconds(now);
        let metric = |name: Option<&str>| Metric {
            name: name.map(str::to_owned),
            alias: alias.filter(|_| name.is_none()),
            timestamp: Some(timestamp),
            datatype: Some(type_number),
            value: Some(metric_value.clone()),
            ..Metric::default()
        };
        let bare = name.strip_prefix(COMMAND_FOLDER);
        let metrics = match (alias, bare) {
            // A metric is named by its alias if it has one (6.4.6).
            (Some(_), None) => vec![metric(None)],
            (_, Some(bare)) if !branch.metrics.contains_key(bare) => {
                vec![metric(Some(name)), metric(Some(bare))]
            }
            _ => vec![metric(Some(name))],
        };
        let payload = Payload {
            timestamp: Some(timestamp),
            metrics,
            seq: None,
        };
        let topic = Topic {
            group,
            verb: if child.is_none() { "NCMD" } else { "DCMD" },
            node,
            device: child,
        };
        let shows = Shows {
            group: group.to_owned(),
            node: node.to_owned(),
            device: child.map(str::to_owned),
            names: [Some(name), bare]
                .into_iter()
                .flatten()
                .map(str::to_owned)
                .collect(),
            alias,
            data_type,
            wanted,
        };
        Ok(Call {
            publication: Publication {
                token: 0,
                topic: topic.text(),
                payload: payload.to_bytes(),
                // 6.4.20 and 6.4.21: commands have quality of service 0.
                qos: 0,
                is_retained: false,
                property: None,
            },
            confirms: Some(Box::new(move |message| shows.is_shown_by(message))),
        })
    }
}

/// What a message must say to show that a command was carried out.
struct Shows {
    group: String,
    node: String,
    device: Option<String>,
    names: Vec<String>,
    alias: Option<u64>,
    data_type: DataType,
    wanted: Value,
}

impl Shows {
    fn is_shown_by(&self, message: &Message) -> bool {
        let Some(topic) = Topic::parse(&message.topic) else {
            return false;
        };
        if (topic.group, topic.node) != (&*self.group, &*self.node) {
            return false;
        }
        let is_control = self
            .names
            .iter()
            .any(|name| CONTROL.iter().any(|it| name.starts_with(it)));
        match topic.verb {
            // What a control does is not the value of a metric: most begin with new birth certificates.
            "NBIRTH" if is_control => return true,
            "DBIRTH" if is_control && topic.device == self.device.as_deref() => return true,
            "NBIRTH" | "NDATA" if self.device.is_none() => {}
            "DBIRTH" | "DDATA" if topic.device == self.device.as_deref() => {}
            _ => return false,
        }
        let Ok(payload) = Payload::parse(&message.payload) else {
            return false;
        };
        payload.metrics.iter().any(|metric| {
            let is_it = match metric.named() {
                Some(name) => self.names.iter().any(|one| one == name),
                None => self.alias.is_some() && metric.alias == self.alias,
            };
            let value = metric
                .value
                .as_ref()
                .filter(|_| is_it && metric.has_value());
            value.is_some_and(|value| self.data_type.read(value).as_ref() == Ok(&self.wanted))
        })
    }
}

/// An edge node or device, as it is reported.
fn announced(id: &NodeId, device: &str, branch: &Branch) -> AnnouncedDevice {
    let name = if device.is_empty() { &id.1 } else { device };
    let of_controls = branch
        .controls
        .iter()
        .map(|one| operation(&one.name, one.type_number, None));
    let settable = branch
        .metrics
        .iter()
        .filter(|(_, known)| known.is_settable());
    let of_metrics = settable.map(|(name, known)| {
        let field = known.definition.schema.fields.first();
        operation(
            name,
            known.type_number,
            field.and_then(|field| field.unit.clone()),
        )
    });
    let about = branch.about.clone();
    AnnouncedDevice {
        name: name.to_owned(),
        manufacturer: about.manufacturer,
        model: about.model,
        firmware: about.firmware,
        serial_number: about.serial_number,
        offline: (!branch.is_online)
            .then(|| "its death certificate, or that of its edge node, was the last".to_owned()),
        since: branch.since,
        streams: branch
            .metrics
            .values()
            .map(|known| (known.stream.clone(), known.definition.clone()))
            .collect(),
        operations: of_controls.chain(of_metrics).collect(),
    }
}

fn operation(name: &str, type_number: u32, unit: Option<String>) -> Operation {
    let text = match name {
        REBIRTH => "asks for its birth certificates".to_owned(),
        name => format!("sets the metric {name}"),
    };
    Operation {
        name: name.to_owned(),
        description: Some(text),
        argument: value::argument(type_number).map(|argument| Argument { unit, ..argument }),
    }
}

/// The metrics of a message of commands that an edge node which only publishes does not set. It has one command, for the
/// edge node itself.
pub(in super::super) fn refused(payload: &[u8], is_of_node: bool) -> Vec<String> {
    let Ok(payload) = Payload::parse(payload) else {
        return vec!["a payload that is none of Sparkplug B".to_owned()];
    };
    let is_refused = |metric: &&Metric| {
        let is_rebirth = metric.named() == Some(REBIRTH);
        !(is_of_node && is_rebirth) && metric.named() != Some(BD_SEQ)
    };
    let shown = |metric: &Metric| match (metric.named(), metric.alias) {
        (Some(name), _) => {
            json!(name.chars().take(TEXT_CHARACTERS_MAX).collect::<String>()).to_string()
        }
        (None, Some(alias)) => format!("alias {alias}"),
        (None, None) => "a metric without a name".to_owned(),
    };
    payload
        .metrics
        .iter()
        .filter(is_refused)
        .map(shown)
        .collect()
}
