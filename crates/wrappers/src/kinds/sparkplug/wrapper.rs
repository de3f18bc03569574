//! The wrapper of kind `sparkplug`: a host application.

use chappe_stream::{DescriptorError, Timestamp};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::host::Host;
use super::payload::{NAMESPACE, is_identifier};
use super::value::milliseconds;
use crate::clock::now;
use crate::kinds::mqtt::broker::{Broker, Order};
use crate::kinds::mqtt::follow::{Call, Follower, Machine, Output};
use crate::kinds::mqtt::session::{Message, Publication, Will};
use crate::{
    Command, Delivery, DeviceReport, Mark, NodeParts, Undecodable, Wrapper, WrapperError,
    WrapperFile, WrapperKind, WrapperOpening,
};

/// Most groups of a file.
const GROUPS_MAX: usize = 64;

/// The kind.
pub(crate) const WRAPPER: WrapperKind = WrapperKind {
    name: "sparkplug",
    about: "metrics of Sparkplug B edge nodes and their devices, as a host application",
    delivery: Delivery {
        acknowledges: "nothing: edge nodes publish with quality of service 0",
        resumes: "new birth certificates, for which edge nodes are asked",
        may_double: "values of birth certificates after a restart; others never",
        may_miss: "messages that were published while there was no connection or no birth certificate; gaps of sequence numbers are counted",
        back_pressure: "the socket is not read",
    },
    check: |file| settings(file).map(drop),
    open,
    schema: || schemars::schema_for!(Settings),
    browse: None,
};

/// The keys of a wrapper of kind `sparkplug`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(flatten)]
    broker: Broker,
    /// The name of this host application, under which it announces its presence on
    /// `spBv1.0/STATE/NAME`. Without a name it only listens.
    host_id: Option<String>,
    /// The groups of edge nodes to follow. Default: all.
    #[serde(default)]
    groups: Vec<String>,
}

fn settings(file: &WrapperFile) -> Result<Settings, DescriptorError> {
    let settings: Settings = file.settings()?;
    settings.broker.check(file)?;
    let wrong = |key: &str, text: String| Err(file.fault(key, text, None));
    let form = "it is one level of a topic, without / + #".to_owned();
    if settings
        .host_id
        .as_deref()
        .is_some_and(|id| !is_identifier(id))
    {
        return wrong("host_id", form);
    }
    if settings.host_id.is_some() && settings.broker.has_availability() {
        let text = "the STATE topic of host_id says whether this client is there".to_owned();
        return wrong("availability", text);
    }
    if settings.groups.len() > GROUPS_MAX {
        return wrong("groups", format!("it has at most {GROUPS_MAX} groups"));
    }
    if !settings.groups.iter().all(|group| is_identifier(group)) {
        return wrong("groups", form);
    }
    for (key, is_set) in [
        ("format", file.keys.format.is_some()),
        ("stream", !file.keys.streams.is_empty()),
        ("command", !file.keys.commands.is_empty()),
    ] {
        if is_set {
            let text = "birth certificates say which streams this kind has".to_owned();
            return wrong(key, text);
        }
    }
    Ok(settings)
}

fn open(opening: WrapperOpening<'_>) -> Result<Box<dyn Wrapper>, WrapperError> {
    let file = opening.file;
    let settings = settings(file).map_err(|error| WrapperError::settings(error.to_string()))?;
    let mut connector = settings.broker.resolve(file)?;
    let mut filters: Vec<String> = match &*settings.groups {
        [] => vec![format!("{NAMESPACE}/#")],
        groups => groups
            .iter()
            .map(|group| format!("{NAMESPACE}/{group}/#"))
            .collect(),
    };
    let state = settings.host_id.map(|host_id| State {
        topic: format!("{NAMESPACE}/STATE/{host_id}"),
        // The host opens a wrapper anew for each connection.
        timestamp: milliseconds(now()),
    });
    if let Some(state) = &state {
        if !settings.groups.is_empty() {
            filters.push(state.topic.clone());
        }
        connector.opening.will = Some(Will {
            topic: state.topic.clone(),
            payload: state.payload(false),
            is_retained: true,
        });
        connector.opening.birth = Some(state.payload(true));
    }
    let machine = Sparkplug {
        host: Host::new(&file.name, file.keys.limits.streams as usize),
        state,
        batches: opening.mark.as_ref().map_or(0, number),
    };
    Ok(Box::new(Follower::new(
        &file.name,
        connector,
        filters,
        machine,
        opening.condition,
        opening.notes,
    )))
}

/// The state of this host application (Eclipse Sparkplug 3.0, 5.8).
struct State {
    topic: String,
    /// Of its certificates of birth and death, in milliseconds.
    timestamp: u64,
}

impl State {
    fn payload(&self, is_online: bool) -> Vec<u8> {
        let state = json!({ "online": is_online, "timestamp": self.timestamp });
        state.to_string().into_bytes()
    }

    /// The birth certificate again, if a death certificate of an earlier connection came after it.
    fn answer(&self, message: &Message) -> Option<Publication> {
        let state: serde_json::Value = serde_json::from_slice(&message.payload).ok()?;
        let is_death = message.topic == self.topic && state["online"] == false;
        is_death.then(|| Publication {
            token: 0,
            topic: self.topic.clone(),
            payload: self.payload(true),
            qos: 1,
            is_retained: true,
            property: None,
        })
    }
}

struct Sparkplug {
    host: Host,
    state: Option<State>,
    batches: u64,
}

impl Machine for Sparkplug {
    fn attach(&mut self, node: &NodeParts) {
        self.host.attach(node);
    }

    fn receive(&mut self, message: &Message, now: Timestamp, output: &mut Output) {
        if let Some(bytes) = message.cut_of {
            let topic = &message.topic;
            output.batch.undecodable.push(Undecodable {
                stream: None,
                reason: format!("{topic}: a packet of {bytes} bytes exceeds the limit"),
                message: message.payload.clone(),
                is_cut: true,
            });
            return;
        }
        // The retained death certificate of before comes with the subscription, ahead of the birth certificate.
        let state = self.state.as_ref().filter(|_| !message.is_retained);
        if let Some(answer) = state.and_then(|state| state.answer(message)) {
            output.orders.push(Order::Publish(answer));
        }
        self.host
            .receive(&message.topic, &message.payload, now, output);
    }

    fn devices(&mut self) -> Vec<DeviceReport> {
        self.host.devices()
    }

    fn operate(&self, device: &str, command: &Command, now: Timestamp) -> Result<Call, String> {
        self.host.operate(device, command, now)
    }

    fn waits_for(&self) -> Option<&'static str> {
        (!self.host.has_nodes()).then_some("no edge node has published a birth certificate")
    }

    fn mark(&mut self) -> Mark {
        self.batches = self.batches.wrapping_add(1);
        Mark::new(self.batches.to_le_bytes().to_vec()).unwrap_or_default()
    }
}

/// The number of the batch of a mark.
fn number(mark: &Mark) -> u64 {
    mark.bytes().try_into().map_or(0, u64::from_le_bytes)
}
