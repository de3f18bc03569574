//! The entities that a caller may see, without observations.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chappe_registry::Principal;
use chappe_sensorthings::{Entity, EntityType, Fault, Link};
use chappe_stream::Timestamp;
use serde_json::{Map, Value as Json, json};

use super::documents::{Document, search};
use super::streams::{Datastream, RESULT, datastream_id};
use crate::accounts::{Caller, View};
use crate::catalogue::Entry;
use crate::devices::DEVICE_KEYS;
use crate::links::link_name;
use crate::shared::App;
use crate::things::device::encoded;
use crate::wrappers::wrapper_name;
use crate::written;

/// The start of the ids of the features of locations.
const OF_LOCATION: &str = "location:";

/// The entities of one request.
pub(super) struct Snapshot {
    entities: BTreeMap<(EntityType, String), Arc<Entity>>,
    pub(super) datastreams: BTreeMap<String, Arc<Datastream>>,
    /// The datastreams of things, sensors and observed properties.
    owned: HashMap<(EntityType, String), Vec<String>>,
    /// Newest first, of each thing.
    histories: HashMap<String, Vec<Arc<Document>>>,
    historical: BTreeMap<String, Arc<Document>>,
}

/// The feature of the observations made at a location.
pub(super) fn feature_of_location(location: &str) -> String {
    format!("{OF_LOCATION}{location}")
}

/// The documents of a type that the caller may see.
fn documents(app: &App, view: &View<'_>, reader: &Principal, kind: EntityType) -> Vec<Document> {
    let keys = app.registry.search_keys(&search(kind), reader);
    let entities = keys.iter().filter_map(|key| app.registry.get(key, reader));
    let seen = entities.filter(|entity| view.has_entity(entity));
    seen.filter_map(|entity| Document::of(kind, &entity))
        .collect()
}

/// The documents of datastreams that `reader` may see, by their ids. Of a stream that the reader may see and
/// whose document is hidden, the stream alone is shown.
fn datastream_documents(app: &App, reader: &Principal) -> HashMap<String, Arc<Document>> {
    let keys = app
        .registry
        .search_keys(&search(EntityType::Datastream), reader);
    let entities = keys.iter().filter_map(|key| app.registry.get(key, reader));
    let documents = entities.filter_map(|it| Document::of(EntityType::Datastream, &it));
    documents
        .map(|document| (document.id.clone(), Arc::new(document)))
        .collect()
}

impl Snapshot {
    /// The entities that `caller` may see; of the streams that defined as `stream` alone if it is given.
    pub(super) fn new(app: &App, caller: &Caller, stream: Option<&str>) -> Self {
        let view = View::of_reader(app, caller);
        let mut snapshot = Self {
            entities: BTreeMap::new(),
            datastreams: BTreeMap::new(),
            owned: HashMap::new(),
            histories: HashMap::new(),
            historical: BTreeMap::new(),
        };
        let reader = caller.reader();
        for kind in [
            EntityType::Thing,
            EntityType::Location,
            EntityType::Sensor,
            EntityType::ObservedProperty,
            EntityType::FeatureOfInterest,
        ] {
            for document in documents(app, &view, &reader, kind) {
                snapshot.add(kind, &document.id, document.properties);
            }
        }
        let known = datastream_documents(app, &reader);
        let entries = match stream {
            Some(stream) => app.catalogue.defined_as(stream).into_iter().collect(),
            None => app.catalogue.entries(),
        };
        for entry in entries.iter().filter(|entry| view.has(entry)) {
            let own = known.get(&datastream_id(&entry.name, RESULT));
            snapshot.add_stream(app, entry, own);
        }
        for document in documents(app, &view, &reader, EntityType::HistoricalLocation) {
            snapshot.add_history(document);
        }
        snapshot.add_features();
        snapshot
    }

    fn add(&mut self, kind: EntityType, id: &str, properties: Map<String, Json>) {
        let entity = Entity {
            kind,
            id: id.to_owned(),
            properties,
        };
        self.entities
            .insert((kind, id.to_owned()), Arc::new(entity));
    }

    fn add_json(&mut self, kind: EntityType, id: &str, properties: Json) {
        if let Json::Object(properties) = properties
            && !self.entities.contains_key(&(kind, id.to_owned()))
        {
            self.add(kind, id, properties);
        }
    }

    fn add_stream(&mut self, app: &App, entry: &Arc<Entry>, document: Option<&Arc<Document>>) {
        let schema = entry.log.schema();
        for field in schema.fields {
            if document.is_some() && field.name != RESULT {
                continue;
            }
            let link = |name: &str| document?.link(name).map(str::to_owned);
            let source = match entry.source() {
                source if source == written::SOURCE => entry.key(),
                source => source,
            };
            let id = datastream_id(&entry.name, &field.name);
            let property = match &field.observed_property {
                Some(iri) => property_id(iri),
                None => id.clone(),
            };
            let datastream = Datastream {
                thing: link("Thing").unwrap_or_else(|| source.clone()),
                sensor: link("Sensor").unwrap_or_else(|| source.clone()),
                property: link("ObservedProperty").unwrap_or(property),
                document: document.cloned(),
                entry: entry.clone(),
                field,
                id,
            };
            if document.is_none() {
                self.add_source(app, &datastream, &source);
            }
            for (kind, owner) in [
                (EntityType::Thing, &datastream.thing),
                (EntityType::Sensor, &datastream.sensor),
                (EntityType::ObservedProperty, &datastream.property),
            ] {
                let owned = self.owned.entry((kind, owner.clone())).or_default();
                owned.push(datastream.id.clone());
            }
            let entity = Arc::new(datastream.entity());
            let key = (EntityType::Datastream, datastream.id.clone());
            self.entities.insert(key, entity);
            self.datastreams
                .insert(datastream.id.clone(), Arc::new(datastream));
        }
    }

    /// The thing, the sensor and the observed property of a stream that this interface did not create.
    fn add_source(&mut self, app: &App, datastream: &Datastream, source: &str) {
        let has = |kind| self.entities.contains_key(&(kind, source.to_owned()));
        if !has(EntityType::Thing) || !has(EntityType::Sensor) {
            let (name, description, properties) = describe(app, source, &datastream.entry);
            let model = properties.get("model").and_then(Json::as_str);
            let sensor = model.unwrap_or(&name).to_owned();
            let metadata = match source.starts_with(DEVICE_KEYS) {
                true => format!("/api/v1/devices/{}", encoded(source)),
                false => format!(
                    "/api/v1/streams/{}",
                    encoded(&datastream.entry.current_name())
                ),
            };
            self.add_json(
                EntityType::Sensor,
                source,
                json!({"name": sensor, "description": description,
                    "encodingType": "application/json", "metadata": metadata,
                    "properties": properties}),
            );
            self.add_json(
                EntityType::Thing,
                source,
                json!({"name": name, "description": description, "properties": properties}),
            );
        }
        let field = &datastream.field;
        let definition = match &field.observed_property {
            Some(iri) => iri.clone(),
            None => format!("{}#{}", datastream.entry.key(), field.name),
        };
        let description = field.description.as_deref().unwrap_or(&field.name);
        self.add_json(
            EntityType::ObservedProperty,
            &datastream.property,
            json!({"name": field.name, "definition": definition, "description": description,
                "properties": {}}),
        );
    }

    fn add_history(&mut self, document: Document) {
        let document = Arc::new(document);
        let Some(thing) = document.link("Thing") else {
            return;
        };
        let history = self.histories.entry(thing.to_owned()).or_default();
        let at = history.partition_point(|known| time_of(known) > time_of(&document));
        history.insert(at, document.clone());
        self.add(
            EntityType::HistoricalLocation,
            &document.id,
            document.properties.clone(),
        );
        self.historical.insert(document.id.clone(), document);
    }

    /// Each location is a feature, and each thing with datastreams, for observations that name no other.
    fn add_features(&mut self) {
        let mut features = Vec::new();
        for ((kind, id), entity) in &self.entities {
            let member = |name: &str| entity.properties.get(name).cloned().unwrap_or_default();
            match kind {
                EntityType::Location => features.push((
                    feature_of_location(id),
                    json!({"name": member("name"), "description": member("description"),
                        "encodingType": member("encodingType"), "feature": member("location"),
                        "properties": {}}),
                )),
                EntityType::Thing => features.push((
                    id.clone(),
                    json!({"name": member("name"),
                        "description": "the thing itself; its place is not known",
                        "encodingType": "application/geo+json",
                        "feature": {"type": "Feature", "geometry": null, "properties": {}},
                        "properties": {}}),
                )),
                _ => {}
            }
        }
        for (id, properties) in features {
            self.add_json(EntityType::FeatureOfInterest, &id, properties);
        }
    }

    pub(super) fn all(&self, kind: EntityType) -> Vec<Arc<Entity>> {
        let from = (kind, String::new());
        let of_kind = self.entities.range(from..);
        let of_kind = of_kind.take_while(|((it, _), _)| *it == kind);
        of_kind.map(|(_, entity)| entity.clone()).collect()
    }

    pub(super) fn get(&self, kind: EntityType, id: &str) -> Option<Arc<Entity>> {
        self.entities.get(&(kind, id.to_owned())).cloned()
    }

    /// The ids of the current locations of a thing.
    pub(super) fn locations(&self, thing: &str) -> Vec<String> {
        let newest = self
            .histories
            .get(thing)
            .and_then(|history| history.first());
        let ids = newest.map(|newest| newest.ids("Locations").map(str::to_owned).collect());
        ids.unwrap_or_default()
    }

    /// The entities that a link of another entity than an observation leads to.
    pub(super) fn related(&self, from: &Entity, link: Link) -> Result<Vec<Arc<Entity>>, Fault> {
        use EntityType as E;
        let mut ids: Vec<String> = match (from.kind, link.target) {
            (E::Thing | E::Sensor | E::ObservedProperty, E::Datastream) => {
                let owned = self.owned.get(&(from.kind, from.id.clone()));
                owned.cloned().unwrap_or_default()
            }
            (E::Thing, E::Location) => self.locations(&from.id),
            (E::Thing, _) => {
                let history = self.histories.get(&from.id).into_iter().flatten();
                history.map(|document| document.id.clone()).collect()
            }
            (E::Location, E::Thing) => {
                let things = self.histories.iter().filter(|(_, history)| {
                    let newest = history.first();
                    newest.is_some_and(|newest| newest.ids("Locations").any(|id| id == from.id))
                });
                things.map(|(thing, _)| thing.clone()).collect()
            }
            (E::Location, _) => {
                let there = self
                    .historical
                    .values()
                    .filter(|document| document.ids("Locations").any(|id| id == from.id));
                there.map(|document| document.id.clone()).collect()
            }
            (E::HistoricalLocation, _) => {
                let document = self.historical.get(&from.id);
                let ids = document.map(|document| document.ids(link.name).map(str::to_owned));
                ids.map(|ids| ids.collect()).unwrap_or_default()
            }
            (E::Datastream, target) => {
                let Some(datastream) = self.datastreams.get(&from.id) else {
                    return Ok(Vec::new());
                };
                vec![match target {
                    E::Thing => datastream.thing.clone(),
                    E::Sensor => datastream.sensor.clone(),
                    _ => datastream.property.clone(),
                }]
            }
            _ => return Err(Fault::unsupported("this link is not supported")),
        };
        ids.sort_unstable();
        let found = ids.iter().filter_map(|id| self.get(link.target, id));
        Ok(found.collect())
    }
}

fn time_of(document: &Document) -> Option<Timestamp> {
    let time = document.properties.get("time")?.as_str()?;
    Timestamp::parse(time)
}

/// The id of the observed property with an IRI: part of its digest, because an IRI in a path must be
/// encoded, which some clients do not do.
fn property_id(iri: &str) -> String {
    /// Bytes of the digest; reason: two of a thousand IRIs have the same ones with a chance of 10 to the power of -14.
    const BYTES: usize = 8;
    let digest = ring::digest::digest(&ring::digest::SHA256, iri.as_bytes());
    let bytes = digest.as_ref().iter().take(BYTES);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

/// Name, description and properties of the source of a stream.
fn describe(app: &App, source: &str, entry: &Entry) -> (String, String, Json) {
    if let Some(device) = app.devices.get(source) {
        let name = match device.name.as_str() {
            "" => source,
            name => name,
        };
        let mut properties = Map::new();
        for (member, text) in [
            ("manufacturer", &device.manufacturer),
            ("model", &device.model),
            ("firmware", &device.firmware),
            ("serialNumber", &device.serial_number),
        ] {
            if let Some(text) = text {
                properties.insert(member.to_owned(), json!(text));
            }
        }
        let description = "a device that the node found".to_owned();
        return (name.to_owned(), description, Json::Object(properties));
    }
    let stream = entry.current_name();
    let (name, description) = if let Some(name) = wrapper_name(source) {
        (name.to_owned(), format!("the wrapper {name}"))
    } else if let Some(name) = link_name(source) {
        (name.to_owned(), format!("the link {name} to another node"))
    } else if app.sensors.get(source).is_some() {
        (source.to_owned(), format!("the virtual sensor {source}"))
    } else if source == entry.key() {
        let title = written::title(app, &entry.name);
        let description = title.unwrap_or_else(|| format!("the stream {stream}"));
        (stream, description)
    } else {
        (
            source.to_owned(),
            format!("the source of the stream {stream}"),
        )
    };
    (name, description, json!({}))
}
