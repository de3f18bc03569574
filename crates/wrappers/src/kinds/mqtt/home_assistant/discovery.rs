//! The entities that devices announce, and what their messages say. It has no input or output and no clock.
//!
//! A device announces an entity by a retained message on `PREFIX/COMPONENT/[NODE/]OBJECT/config`, or all its entities
//! on `PREFIX/device/[NODE/]OBJECT/config`; an empty message ends them. The topic identifies an entity, whatever its
//! configuration says, so that its stream stays the same when a device or an entity is renamed.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use chappe_stream::{Quality, StreamElement, Timestamp, Value as Element, check_name, name_part};
use serde_json::{Map, Value};

use super::config::{Entity, Keys, Mode, written_out};
use super::template::{Payload, beginning};
use crate::kinds::mqtt::follow::{Output, other_meaning};
use crate::{Batch, NodeParts, StreamDefinition, Undecodable};

/// Longest message that announces one entity; reason: devices with little memory write it.
const CONFIG_BYTES_MAX: usize = 64 << 10;
/// Bytes of a refused message that are kept.
const KEPT_BYTES: usize = 64 << 10;
/// Topics of which the entities of a wrapper have at most so many times their number.
const TOPICS_PER_ENTITY: usize = 4;
/// Entities that read the same topic at most; reason: each message is read once for each.
const READERS_MAX: usize = 1_000;

/// An entity that is announced.
struct Known {
    entity: Entity,
    stream: Arc<str>,
    definition: Arc<StreamDefinition>,
    /// What the topics of its availability said last.
    available: Vec<Option<bool>>,
    is_available: bool,
    /// Whether its last element has a value.
    has_value: bool,
}

/// Its topic of configuration, and for a device with several the name of the component.
type Id = (String, String);

/// The machine.
pub(super) struct Discovery {
    prefix: String,
    /// What the names of its streams begin with.
    name: String,
    entities_max: usize,
    entities: BTreeMap<Id, Known>,
    /// The entities that use a topic.
    readers: HashMap<String, BTreeSet<Id>>,
    /// The streams of the entities.
    streams: HashSet<Arc<str>>,
    node: NodeParts,
}

/// Topics that entities use from now on, and those that none uses any more.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) new: BTreeSet<String>,
    pub(super) gone: BTreeSet<String>,
}

impl Discovery {
    pub(super) fn new(prefix: &str, name: &str, entities_max: usize) -> Self {
        Self {
            prefix: prefix.to_owned(),
            name: name.to_owned(),
            entities_max,
            entities: BTreeMap::new(),
            readers: HashMap::new(),
            streams: HashSet::new(),
            node: NodeParts::default(),
        }
    }

    pub(super) fn attach(&mut self, node: &NodeParts) {
        self.node = node.clone();
    }

    /// The topics on which devices announce entities.
    pub(super) fn filters(prefix: &str) -> Vec<String> {
        vec![
            format!("{prefix}/+/+/config"),
            format!("{prefix}/+/+/+/config"),
        ]
    }

    /// The number of entities.
    pub(super) fn len(&self) -> usize {
        self.entities.len()
    }

    /// Whether a topic is one on which devices announce entities.
    pub(super) fn announces(&self, topic: &str) -> bool {
        self.levels(topic).is_some()
    }

    /// Component, node and object of a topic.
    fn levels<'t>(&self, topic: &'t str) -> Option<(&'t str, Option<&'t str>, &'t str)> {
        let rest = topic.strip_prefix(&self.prefix)?.strip_prefix('/')?;
        let mut levels = rest.strip_suffix("/config")?.split('/');
        let found = match (levels.next(), levels.next(), levels.next()) {
            (Some(component), Some(object), None) => (component, None, object),
            (Some(component), node @ Some(_), Some(object)) => (component, node, object),
            _ => return None,
        };
        levels.next().is_none().then_some(found)
    }

    /// Takes a message that arrived at `now`.
    pub(super) fn receive(
        &mut self,
        topic: &str,
        payload: &[u8],
        now: Timestamp,
        output: &mut Output,
    ) -> Changes {
        let mut changes = Changes::default();
        let Some((component, node, object)) = self.levels(topic) else {
            self.state(topic, payload, now, output);
            return changes;
        };
        let path = [Some(component), node, Some(object)];
        let path: Vec<&str> = path.into_iter().flatten().collect();
        let configured = self.configure(topic, component, &path, payload, &mut changes, output);
        if let Err(reason) = configured {
            refuse(topic, payload, &reason, None, output);
        }
        // A topic that was given up and is used again stays subscribed.
        let Changes { new, gone } = changes;
        Changes {
            new: new.difference(&gone).cloned().collect(),
            gone: gone.difference(&new).cloned().collect(),
        }
    }

    fn configure(
        &mut self,
        topic: &str,
        component: &str,
        path: &[&str],
        payload: &[u8],
        changes: &mut Changes,
        output: &mut Output,
    ) -> Result<(), String> {
        let former = self.remove(topic, changes);
        if payload.is_empty() {
            return Ok(());
        }
        let is_device = component == "device";
        if payload.len() > CONFIG_BYTES_MAX && !is_device {
            return Err(format!("it is longer than {CONFIG_BYTES_MAX} bytes"));
        }
        let table: Map<String, Value> =
            serde_json::from_slice(payload).map_err(|error| error.to_string())?;
        let config = written_out(&table, None);
        if !is_device {
            let id = (topic.to_owned(), String::new());
            let keys = Keys {
                own: &config,
                shared: None,
            };
            let note = self.add(id, component, path, keys, &former, changes)?;
            output.notes.extend(note);
            return Ok(());
        }
        let components = config.get("components").and_then(Value::as_object);
        let components = components.ok_or("the device has no components")?;
        for (name, own) in components {
            let Some(own) = own.as_object() else {
                refuse(topic, &[], "a component is no table", Some(name), output);
                continue;
            };
            // A component without anything but its platform is one that the device does not have any more.
            if own.keys().all(|key| key == "platform") {
                continue;
            }
            let platform = own
                .get("platform")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let path: Vec<&str> = [platform]
                .iter()
                .chain(&path[1..])
                .copied()
                .chain([&**name])
                .collect();
            let id = (topic.to_owned(), name.clone());
            let keys = Keys {
                own,
                shared: Some(&config),
            };
            match self.add(id, platform, &path, keys, &former, changes) {
                Ok(note) => output.notes.extend(note),
                Err(reason) => {
                    let own = serde_json::to_vec(own).unwrap_or_default();
                    refuse(topic, &own, &reason, Some(name), output);
                }
            }
        }
        Ok(())
    }

    /// Adds an entity; returns a note about its unit.
    fn add(
        &mut self,
        id: Id,
        component: &str,
        path: &[&str],
        keys: Keys<'_>,
        former: &BTreeMap<Id, Known>,
        changes: &mut Changes,
    ) -> Result<Option<String>, String> {
        if self.entities.len() >= self.entities_max {
            return Err(format!("there are {} entities already", self.entities_max));
        }
        let entity = Entity::of(component, keys)?;
        let parts = path.iter().map(|part| name_part(part));
        let stream = [self.name.clone()].into_iter().chain(parts);
        let stream = stream.collect::<Vec<_>>().join(".");
        check_name(&stream).map_err(|error| error.to_string())?;
        // Different topics can give the same name.
        if self.streams.contains(&*stream) {
            return Err(format!("another entity has the stream {stream:?}"));
        }
        let recent = former.get(&id).filter(|known| known.has_value);
        let recent = recent.map(|known| &known.definition.schema);
        let schema = &entity.definition.schema;
        if let Some(reason) = other_meaning(&self.node, &stream, recent, schema) {
            return Err(reason);
        }
        let topics = [&entity.state_topic].into_iter();
        let topics = topics.chain(entity.availability.iter().map(|one| &one.topic));
        for topic in topics.clone() {
            let readers = self.readers.get(topic);
            if readers.is_some_and(|readers| readers.len() >= READERS_MAX) {
                return Err(format!(
                    "{READERS_MAX} entities read {:?} already",
                    beginning(topic)
                ));
            }
            if readers.is_none() && self.readers.len() >= TOPICS_PER_ENTITY * self.entities_max {
                return Err("the entities have too many topics".to_owned());
            }
        }
        for topic in topics {
            let readers = self.readers.entry(topic.clone()).or_default();
            if readers.is_empty() {
                changes.new.insert(topic.clone());
            }
            readers.insert(id.clone());
        }
        let stream: Arc<str> = stream.into();
        self.streams.insert(stream.clone());
        let same = former.get(&id).filter(|known| known.entity == entity);
        let count = entity.availability.len();
        let known = Known {
            definition: Arc::new(entity.definition.clone()),
            stream,
            available: same.map_or_else(|| vec![None; count], |known| known.available.clone()),
            is_available: same.is_none_or(|known| known.is_available),
            has_value: former.get(&id).is_some_and(|known| known.has_value),
            entity,
        };
        let unit = known.entity.unknown_unit.as_deref().map(beginning);
        let note =
            unit.map(|unit| format!("the unit {unit:?} of {} has no UCUM code", known.stream));
        self.entities.insert(id, known);
        Ok(note)
    }

    /// Removes the entities of a topic of configuration.
    fn remove(&mut self, topic: &str, changes: &mut Changes) -> BTreeMap<Id, Known> {
        let first = (topic.to_owned(), String::new());
        let ids = self.entities.range(first..).map(|(id, _)| id);
        let ids: Vec<Id> = ids.take_while(|id| id.0 == topic).cloned().collect();
        let mut removed = BTreeMap::new();
        for id in ids {
            let Some(known) = self.entities.remove(&id) else {
                continue;
            };
            self.streams.remove(&known.stream);
            let topics = [&known.entity.state_topic].into_iter();
            for topic in topics.chain(known.entity.availability.iter().map(|one| &one.topic)) {
                if let Some(readers) = self.readers.get_mut(topic) {
                    readers.remove(&id);
                    if readers.is_empty() {
                        self.readers.remove(topic);
                        // One that is new in the same message was not subscribed to yet.
                        if !changes.new.remove(topic) {
                            changes.gone.insert(topic.clone());
                        }
                    }
                }
            }
            removed.insert(id, known);
        }
        removed
    }

    /// Takes a message of a topic that entities use.
    fn state(&mut self, topic: &str, payload: &[u8], now: Timestamp, output: &mut Output) {
        let Some(readers) = self.readers.get(topic) else {
            return;
        };
        let mut message = Payload::new(payload);
        // A message is kept once, however many entities cannot read it.
        let (mut fault, mut others) = (None, 0_usize);
        for id in readers {
            let Some(known) = self.entities.get_mut(id) else {
                continue;
            };
            if known.changes_availability(topic, &mut message) && !known.is_available {
                known.push(Element::Null, Quality::Bad, now, &mut output.batch);
            }
            if known.entity.state_topic != topic {
                continue;
            }
            match known.entity.value(&mut message) {
                Ok(Some((value, quality))) => known.push(value, quality, now, &mut output.batch),
                Ok(None) => {}
                Err(reason) => {
                    others += usize::from(fault.is_some());
                    fault.get_or_insert_with(|| (known.stream.clone(), reason));
                }
            }
        }
        if let Some((stream, mut reason)) = fault {
            if others > 0 {
                reason = format!("{reason}; and {others} more entities");
            }
            refuse(topic, payload, &reason, Some(&stream), output);
        }
    }
}

impl Known {
    /// Whether a message changed whether it is available.
    fn changes_availability(&mut self, topic: &str, message: &mut Payload<'_>) -> bool {
        let mut latest = None;
        for (one, state) in self.entity.availability.iter().zip(&mut self.available) {
            if one.topic == topic
                && let Some(is_available) = one.is_available(message)
            {
                *state = Some(is_available);
                latest = Some(is_available);
            }
        }
        let Some(latest) = latest else {
            return false;
        };
        let mut states = self.available.iter();
        let is_available = match self.entity.mode {
            Mode::Latest => latest,
            Mode::All => states.all(|state| *state == Some(true)),
            Mode::Any => states.any(|state| *state == Some(true)),
        };
        std::mem::replace(&mut self.is_available, is_available) != is_available
    }

    /// Adds an element. A value that is missing is said once.
    fn push(&mut self, value: Element, quality: Quality, now: Timestamp, batch: &mut Batch) {
        let has_value = value != Element::Null;
        if !has_value && !self.has_value {
            return;
        }
        self.has_value = has_value;
        let element = StreamElement {
            position: Default::default(),
            source_time: now,
            receive_time: now,
            key: None,
            values: vec![value],
            quality,
            origin: None,
        };
        batch.push(&self.stream, &self.definition, element);
    }
}

fn refuse(topic: &str, payload: &[u8], reason: &str, about: Option<&str>, output: &mut Output) {
    let about = about.map_or_else(String::new, |about| format!("{about}: "));
    let is_cut = payload.len() > KEPT_BYTES;
    output.batch.undecodable.push(Undecodable {
        stream: None,
        reason: format!("{}: {about}{reason}", beginning(topic)),
        message: payload[..payload.len().min(KEPT_BYTES)].to_vec(),
        is_cut,
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn discovery() -> Discovery {
        Discovery::new("homeassistant", "home", 4)
    }

    fn receive(discovery: &mut Discovery, topic: &str, payload: &str) -> Output {
        changes(discovery, topic, payload).1
    }

    fn changes(discovery: &mut Discovery, topic: &str, payload: &str) -> (Changes, Output) {
        let mut output = Output::default();
        let changes = discovery.receive(topic, payload.as_bytes(), Timestamp(7), &mut output);
        (changes, output)
    }

    fn set(topics: &[&str]) -> BTreeSet<String> {
        topics.iter().map(|&topic| topic.to_owned()).collect()
    }

    fn values(output: &Output) -> Vec<(String, Element, Quality)> {
        let parts = output.batch.parts.iter();
        let of_part = |part: &crate::Part| {
            let stream = part.stream.to_string();
            let elements = part.elements.iter();
            elements
                .map(|it| (stream.clone(), it.values[0].clone(), it.quality))
                .collect::<Vec<_>>()
        };
        parts.flat_map(of_part).collect()
    }

    const TEMPERATURE: &str = r#"{"stat_t": "z/1", "unit_of_meas": "°C", "val_tpl": "{{ value_json.t }}",
        "avty_t": "z/1/lwt", "name": "Temperature"}"#;

    #[test]
    fn an_announced_entity_has_a_stream_until_it_is_retracted() {
        let mut discovery = discovery();
        let topic = "homeassistant/sensor/0x01/temperature/config";
        let (made, _) = changes(&mut discovery, topic, TEMPERATURE);
        assert_eq!(made.new, set(&["z/1", "z/1/lwt"]));
        let output = receive(&mut discovery, "z/1", r#"{"t": 21.5}"#);
        let stream = "home.sensor.0x01.temperature".to_owned();
        assert_eq!(
            values(&output),
            [(stream.clone(), Element::Double(21.5), Quality::Good)]
        );
        assert!(values(&receive(&mut discovery, "z/1/lwt", "online")).is_empty());
        let output = receive(&mut discovery, "z/1/lwt", "offline");
        assert_eq!(values(&output), [(stream, Element::Null, Quality::Bad)]);
        assert!(values(&receive(&mut discovery, "z/1/lwt", "offline")).is_empty());
        let output = receive(&mut discovery, "z/1", "warm");
        assert!(output.batch.undecodable[0].reason.contains("no JSON"));
        let (ended, _) = changes(&mut discovery, topic, "");
        assert_eq!((ended.gone, discovery.len()), (set(&["z/1", "z/1/lwt"]), 0));
    }

    #[test]
    fn a_device_announces_several_entities_at_once() {
        let mut discovery = discovery();
        let config = r#"{"dev": {"ids": "d1", "name": "Kitchen"}, "o": {"name": "x"}, "state_topic": "k/state",
            "cmps": {"t": {"p": "sensor", "unit_of_measurement": "°C", "value_template": "{{ value_json.t }}"},
                     "door": {"p": "binary_sensor", "value_template": "{{ value_json.door }}"},
                     "old": {"p": "sensor"},
                     "lamp": {"p": "light", "command_topic": "k/set"}}}"#;
        let (made, output) = changes(&mut discovery, "homeassistant/device/d1/config", config);
        assert_eq!(made.new, set(&["k/state"]));
        assert_eq!(
            output.batch.undecodable.len(),
            1,
            "a light has no single value"
        );
        let output = receive(&mut discovery, "k/state", r#"{"t": 20, "door": "ON"}"#);
        let mut found = values(&output);
        found.sort_by(|one, other| one.0.cmp(&other.0));
        let good = Quality::Good;
        assert_eq!(
            found,
            [
                (
                    "home.binary_sensor.d1.door".to_owned(),
                    Element::Boolean(true),
                    good
                ),
                ("home.sensor.d1.t".to_owned(), Element::Double(20.0), good),
            ]
        );
    }

    #[test]
    fn entities_beyond_the_limit_and_of_one_name_are_refused() {
        let mut discovery = discovery();
        let mut reasons = Vec::new();
        for object in ["a b", "a-b", "c", "d", "e", "f"] {
            let topic = format!("homeassistant/sensor/{object}/config");
            let output = receive(&mut discovery, &topic, r#"{"state_topic": "s"}"#);
            reasons.extend(output.batch.undecodable.into_iter().map(|one| one.reason));
        }
        assert_eq!((reasons.len(), discovery.len()), (2, 4));
        assert!(reasons[0].contains("another entity") && reasons[1].contains("4 entities"));
    }

    #[test]
    fn a_long_state_is_one_dead_letter_for_all_entities_that_read_it() {
        let mut discovery = Discovery::new("homeassistant", "home", 1_000);
        let components: Vec<String> = (0..1_000)
            .map(|number| match number {
                0 => r#""c0": {"p": "sensor", "val_tpl": "{{ value_json.a }}"}"#.to_owned(),
                1 => r#""c1": {"p": "sensor", "val_tpl": "{{ value_json.b }}"}"#.to_owned(),
                number => format!(r#""c{number}": {{"p": "text", "name": "x"}}"#),
            })
            .collect();
        let config = format!(r#"{{"stat_t": "s", "cmps": {{{}}}}}"#, components.join(","));
        receive(&mut discovery, "homeassistant/device/d/config", &config);
        assert_eq!(discovery.len(), 1_000);
        let long = format!(r#"{{"a": "ok", "b": ["{}"]}}"#, "x".repeat(1 << 20));
        for (message, stored) in [
            (&*long, 1),
            (&*"ä".repeat(256), 0),
            (&*"ä".repeat(255), 998),
        ] {
            let output = receive(&mut discovery, "s", message);
            assert_eq!(output.batch.elements(), stored);
            assert_eq!(output.batch.undecodable.len(), 1);
            assert!(output.batch.weight() < 2 << 20);
        }
        let output = receive(&mut discovery, "s", &long);
        let reason = &output.batch.undecodable[0].reason;
        assert!(
            reason.contains("255 characters") && reason.ends_with("998 more entities"),
            "{reason}"
        );
    }

    #[test]
    fn an_entity_keeps_the_unit_and_type_of_its_stored_elements() {
        let topic = "homeassistant/sensor/a/config";
        let config =
            |unit: &str| format!(r#"{{"state_topic": "s", "unit_of_measurement": "{unit}"}}"#);
        let mut before = discovery();
        receive(&mut before, topic, &config("°C"));
        let output = receive(&mut before, "s", "20");
        let schema = output.batch.parts[0].definition.schema.clone();
        let mut restarted = discovery();
        restarted.attach(&NodeParts {
            stream: Arc::new(move |name| {
                (name == "home.sensor.a").then(|| crate::StreamNow {
                    name: name.to_owned(),
                    schema: schema.clone(),
                    level: chappe_log::Level::Power,
                    last: 1,
                    source: String::new(),
                    metadata_bytes: 0,
                })
            }),
            ..NodeParts::default()
        });
        for mut discovery in [before, restarted] {
            let output = receive(&mut discovery, topic, &config("°F"));
            let reason = &output.batch.undecodable[0].reason;
            assert!(
                reason.contains("Cel") && reason.contains("degF"),
                "{reason}"
            );
            assert_eq!(discovery.len(), 0);
        }
    }

    #[test]
    fn an_unknown_unit_is_noted_and_kept() {
        let config = r#"{"state_topic": "s", "unit_of_measurement": "furlongs"}"#;
        let mut discovery = discovery();
        let output = receive(&mut discovery, "homeassistant/sensor/a/config", config);
        assert!(output.notes[0].contains("furlongs"), "{:?}", output.notes);
    }

    proptest! {
        #[test]
        fn no_messages_panic_or_grow_without_limit(
            messages in prop::collection::vec(
                (
                    "homeassistant/(sensor|device|switch)/[ab]/([cd]/)?config|s|z",
                    prop_oneof![
                        Just(TEMPERATURE.to_owned()),
                        "[a-z0-9{}\":]{0,30}",
                        "\\{\"stat_t\": \"[sz]\", \"avty_t\": \"[sz]\"\\}",
                        "\\{\"cmps\": \\{\"[ab]\": \\{\"p\": \"sensor\", \"stat_t\": \"[a-z]\"\\}\\}\\}",
                    ],
                ),
                0..40,
            ),
        ) {
            let mut discovery = discovery();
            let mut subscribed = std::collections::HashSet::new();
            for (topic, payload) in messages {
                let (made, _) = changes(&mut discovery, &topic, &payload);
                for topic in made.gone {
                    prop_assert!(subscribed.remove(&topic));
                }
                for topic in made.new {
                    prop_assert!(subscribed.insert(topic));
                }
                prop_assert!(discovery.len() <= 4 && subscribed.len() <= 16);
            }
        }
    }
}
