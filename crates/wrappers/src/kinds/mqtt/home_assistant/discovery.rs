//! The entities that devices announce, and what their messages say. It has no input or output and no clock.
//!
//! A device announces an entity by a retained message on `PREFIX/COMPONENT/[NODE/]OBJECT/config`, or all its entities
//! on `PREFIX/device/[NODE/]OBJECT/config`; an empty message ends them. The topic identifies an entity, whatever its
//! configuration says, so that its stream stays the same when a device or an entity is renamed.

mod devices;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use chappe_stream::{Quality, StreamElement, Timestamp, Value as Element, check_name, name_part};
use serde_json::{Map, Value};

use self::devices::{About, Group};
use super::config::{Entity, Keys, Mode, shortened, written_out};
use super::operation::EntityOperation;
use super::template::{Payload, beginning};
use crate::kinds::mqtt::follow::{Output, other_meaning};
use crate::{Batch, NodeParts, StreamDefinition, Undecodable};

/// Longest message that announces one entity; reason: devices with little memory write it.
const CONFIG_BYTES_MAX: usize = 64 << 10;
/// Bytes of a refused message that are kept.
const KEPT_BYTES: usize = 64 << 10;
/// Longest name of an operation in bytes; reason: the whole name identifies it in each call, also in a URL.
const OPERATION_NAME_BYTES_MAX: usize = 512;
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

/// Devices of which something was not reported yet, and when it changed.
type Changed = BTreeMap<String, Timestamp>;

/// The machine.
pub(super) struct Discovery {
    prefix: String,
    /// What the names of its streams begin with.
    name: String,
    entities_max: usize,
    entities: BTreeMap<Id, Known>,
    /// What entities can be told to do; some have nothing else.
    operations: BTreeMap<Id, EntityOperation>,
    /// The entities whose operations a device and a name identify.
    called: HashMap<(String, String), Id>,
    /// The devices of the entities.
    groups: BTreeMap<String, Group>,
    device_of: BTreeMap<Id, String>,
    changed: Changed,
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

/// A message that announces entities, and what it leads to.
struct Turn<'t> {
    topic: &'t str,
    now: Timestamp,
    changes: &'t mut Changes,
}

impl Discovery {
    pub(super) fn new(prefix: &str, name: &str, entities_max: usize) -> Self {
        Self {
            prefix: prefix.to_owned(),
            name: name.to_owned(),
            entities_max,
            entities: BTreeMap::new(),
            operations: BTreeMap::new(),
            called: HashMap::new(),
            groups: BTreeMap::new(),
            device_of: BTreeMap::new(),
            changed: BTreeMap::new(),
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
        self.device_of.len()
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
        let turn = Turn {
            topic,
            now,
            changes: &mut changes,
        };
        let configured = self.configure(turn, component, &path, payload, output);
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
        mut turn: Turn<'_>,
        component: &str,
        path: &[&str],
        payload: &[u8],
        output: &mut Output,
    ) -> Result<(), String> {
        let topic = turn.topic;
        let former = self.remove(&mut turn);
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
            let notes = self.add(id, component, path, keys, &former, &mut turn)?;
            output.notes.extend(notes);
            return Ok(());
        }
        let components = config.get("components").and_then(Value::as_object);
        let components = components.ok_or("the device has no components")?;
        for (name, own) in components {
            let Some(own) = own.as_object() else {
                refuse(topic, &[], "a component is not a table", Some(name), output);
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
            match self.add(id, platform, &path, keys, &former, &mut turn) {
                Ok(notes) => output.notes.extend(notes),
                Err(reason) => {
                    let own = serde_json::to_vec(own).unwrap_or_default();
                    refuse(topic, &own, &reason, Some(name), output);
                }
            }
        }
        Ok(())
    }

    /// Adds an entity with what it can be told; returns notes about it.
    fn add(
        &mut self,
        id: Id,
        component: &str,
        path: &[&str],
        keys: Keys<'_>,
        former: &BTreeMap<Id, Known>,
        turn: &mut Turn<'_>,
    ) -> Result<Vec<String>, String> {
        let about = About::of(keys, path)?;
        let name = path.join("/");
        let operation = self.operation(component, &name, &about.id, keys);
        let shown = shortened(&name);
        let has_state = component != "button" && keys.get("state_topic").is_some();
        let mut notes = Vec::new();
        // An entity without a state may have an operation only.
        if has_state || !matches!(operation, Ok(Some(_)) | Err(_)) {
            notes.extend(self.add_entity(&id, component, path, keys, former, turn)?);
        }
        match operation {
            Ok(Some(_)) if self.operations.len() >= self.entities_max => {
                let text = format!(
                    "{shown} is not called: there are {} operations already",
                    self.entities_max
                );
                if !has_state {
                    return Err(text);
                }
                notes.push(text);
            }
            Ok(Some(operation)) => {
                self.called.insert((about.id.clone(), name), id.clone());
                self.operations.insert(id.clone(), operation);
            }
            Ok(None) => {}
            Err(reason) if has_state => notes.push(format!("{shown} is not called: {reason}")),
            Err(reason) => return Err(reason),
        }
        self.join(&id, about, turn.now);
        Ok(notes)
    }

    /// The operation of an entity of a device. The first with a name keeps it.
    fn operation(
        &self,
        component: &str,
        name: &str,
        device: &str,
        keys: Keys<'_>,
    ) -> Result<Option<EntityOperation>, String> {
        let Some(operation) = EntityOperation::of(component, name.to_owned(), keys)? else {
            return Ok(None);
        };
        if name.len() > OPERATION_NAME_BYTES_MAX {
            return Err(format!(
                "the name of its operation, {:?}…, is longer than {OPERATION_NAME_BYTES_MAX} bytes",
                beginning(name)
            ));
        }
        if name.chars().any(char::is_control) {
            return Err("the name of its operation has a control character".to_owned());
        }
        if let Some((topic, _)) = self.called.get(&(device.to_owned(), name.to_owned())) {
            return Err(format!(
                "its device has an operation {:?} already, which {} announced",
                beginning(name),
                beginning(topic)
            ));
        }
        Ok(Some(operation))
    }

    /// Adds an entity that has a state; returns a note about its unit.
    fn add_entity(
        &mut self,
        id: &Id,
        component: &str,
        path: &[&str],
        keys: Keys<'_>,
        former: &BTreeMap<Id, Known>,
        turn: &mut Turn<'_>,
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
        let recent = former.get(id).filter(|known| known.has_value);
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
                turn.changes.new.insert(topic.clone());
            }
            readers.insert(id.clone());
        }
        let stream: Arc<str> = stream.into();
        self.streams.insert(stream.clone());
        let same = former.get(id).filter(|known| known.entity == entity);
        let count = entity.availability.len();
        let known = Known {
            definition: Arc::new(entity.definition.clone()),
            stream,
            available: same.map_or_else(|| vec![None; count], |known| known.available.clone()),
            is_available: same.is_none_or(|known| known.is_available),
            has_value: former.get(id).is_some_and(|known| known.has_value),
            entity,
        };
        let unit = known.entity.unknown_unit.as_deref().map(beginning);
        let note =
            unit.map(|unit| format!("the unit {unit:?} of {} has no UCUM code", known.stream));
        self.entities.insert(id.clone(), known);
        Ok(note)
    }

    /// Removes the entities of a topic of configuration.
    fn remove(&mut self, turn: &mut Turn<'_>) -> BTreeMap<Id, Known> {
        let (topic, changes) = (turn.topic, &mut *turn.changes);
        let first = (topic.to_owned(), String::new());
        let ids = self.device_of.range(first..).map(|(id, _)| id);
        let ids: Vec<Id> = ids.take_while(|id| id.0 == topic).cloned().collect();
        let mut removed = BTreeMap::new();
        for id in ids {
            let device = self.device_of.get(&id).cloned().unwrap_or_default();
            self.leave(&id, turn.now);
            if let Some(operation) = self.operations.remove(&id) {
                self.called.remove(&(device, operation.shown.name));
            }
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
            let is_changed = known.changes_availability(topic, &mut message);
            if is_changed {
                Self::note(&mut self.changed, self.device_of.get(id), now);
            }
            if is_changed && !known.is_available {
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
