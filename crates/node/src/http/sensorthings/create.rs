//! Creates entities other than observations, with those that they come with (18-088, clause 10.2).
//!
//! The streams of new datastreams are defined first, then all documents are stored as one change. When that
//! fails, the new streams are removed again.

use std::collections::BTreeSet;

use axum::response::Response;
use chappe_identity::Role;
use chappe_sensorthings::body::{Linked, NewEntity, new_entity};
use chappe_sensorthings::{Entity, EntityType, Fault, Link, ResourcePath, Source as _};
use chappe_stream::{Field, FieldType, StreamSchema, name_part};
use serde_json::{Map, Value as Json, json};

use super::super::create::define_stream;
use super::super::problem::Problem;
use super::documents::Document;
use super::reading::Reading;
use super::store::{check_role, check_thing, check_times, created, new_id, publish};
use super::streams::{FURTHER, RESULT, datastream_id, result_type, unit_code};
use super::{entities_of, problem, with_entities};
use crate::accounts::Caller;
use crate::catalogue;
use crate::clock;
use crate::shared::App;
use crate::written::Definition;

/// The start of the names of the streams of created datastreams.
const STREAMS: &str = "sensorthings";
/// Characters of a random id in the name of a stream.
const SUFFIX: usize = 8;

/// What a request creates.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) documents: Vec<Document>,
    /// The things that existed before and get a history or a datastream: the caller must have the right to
    /// change them.
    things: BTreeSet<String>,
    /// The streams of the new datastreams.
    streams: Vec<(String, Definition)>,
}

/// Creates an entity in the set at the end of a path.
pub(super) async fn create(
    app: &App,
    caller: &Caller,
    root: &str,
    path: &ResourcePath,
    body: &Json,
) -> Result<Response, Problem> {
    check_role(caller, Role::Write)?;
    let kind = path.target().unwrap_or(EntityType::Thing);
    let new = new_entity(kind, body).map_err(problem)?;
    let path = path.clone();
    let planned = with_entities(app, caller, None, move |reading| {
        let (parent, _) = entities_of(reading, &path)?;
        let mut plan = Plan::default();
        let link = path.steps.last().map(|step| step.link);
        let id = match (parent, link) {
            (Some(parent), Some(link)) => plan.add_below(reading, &parent, link, new)?,
            _ => plan.add(reading, new, None)?,
        };
        Ok::<_, Fault>((plan, id))
    });
    let (plan, id) = planned.await?.map_err(problem)?;
    let (app, caller) = (app.clone(), caller.clone());
    // What has begun runs to its end, even if the client disconnects.
    let storing = tokio::spawn(async move { plan.store(&app, &caller).await });
    let failed = |_| Problem::internal("creating entities failed");
    storing.await.map_err(failed)??;
    Ok(created(root, kind, &id))
}

impl Plan {
    /// Stores what it has.
    pub(super) async fn store(self, app: &App, caller: &Caller) -> Result<(), Problem> {
        for thing in &self.things {
            check_thing(app, caller, thing)?;
        }
        check_times(app, &self.documents)?;
        let mut defined = Vec::new();
        let mut outcome = Ok(());
        for (name, definition) in self.streams {
            match define_stream(app, &name, definition, caller).await {
                Ok(_) => defined.push(name),
                Err(problem) => {
                    outcome = Err(problem);
                    break;
                }
            }
        }
        if outcome.is_ok() {
            outcome = publish(app, caller, &self.documents).await;
        }
        if outcome.is_err() {
            for name in defined {
                if let Err(error) = catalogue::remove(app, &name, true).await {
                    tracing::warn!(%error, stream = name, "a stream without its datastream remains");
                }
            }
        }
        outcome
    }

    /// Adds an entity in a set of another entity; returns its id.
    fn add_below(
        &mut self,
        reading: &Reading,
        parent: &Entity,
        link: Link,
        mut new: NewEntity,
    ) -> Result<String, Fault> {
        let back = new.kind.links().iter().copied();
        let mut back = back.filter(|back| back.target == parent.kind);
        match (parent.kind, link.target, back.next()) {
            (EntityType::Thing, EntityType::Location, _) => {
                let id = self.add(reading, new, None)?;
                self.things.insert(parent.id.clone());
                self.add_history(&parent.id, std::slice::from_ref(&id))?;
                Ok(id)
            }
            (
                EntityType::Thing | EntityType::Sensor | EntityType::ObservedProperty,
                EntityType::Datastream | EntityType::HistoricalLocation,
                Some(back),
            ) => {
                new.links.retain(|(link, _)| *link != back);
                let parent = Linked::Existing(parent.id.clone());
                new.links.push((back, vec![parent]));
                self.add(reading, new, None)
            }
            _ => Err(Fault::Unsupported(format!(
                "{} cannot be created below a {}: create it in its own set",
                link.target.set_name(),
                parent.kind.name()
            ))),
        }
    }

    /// Adds an entity with those that it comes with; returns its id. A datastream of a new thing gets its id.
    pub(super) fn add(
        &mut self,
        reading: &Reading,
        new: NewEntity,
        thing: Option<&str>,
    ) -> Result<String, Fault> {
        if new.kind == EntityType::Datastream {
            return self.add_datastream(reading, new, thing);
        }
        let id = id()?;
        let mut document = Document {
            kind: new.kind,
            id: id.clone(),
            properties: new.properties,
            links: Map::new(),
        };
        document
            .properties
            .entry("properties")
            .or_insert_with(|| json!({}));
        if new.kind == EntityType::HistoricalLocation {
            document.properties.remove("properties");
        }
        let kind = new.kind;
        self.documents.push(document);
        let at = self.documents.len() - 1;
        for (link, linked) in new.links {
            match (kind, link.target) {
                (EntityType::Thing, EntityType::Location) => {
                    let ids = self.ends(reading, link, linked, None)?;
                    if !ids.is_empty() {
                        self.add_history(&id, &ids)?;
                    }
                }
                (EntityType::Thing, EntityType::Datastream) => {
                    only_new(&linked, link)?;
                    self.ends(reading, link, linked, Some(&id))?;
                }
                (EntityType::Location, EntityType::Thing) => {
                    for thing in self.ends(reading, link, linked, None)? {
                        self.add_history(&thing, std::slice::from_ref(&id))?;
                    }
                }
                (EntityType::HistoricalLocation, _) => {
                    let ids = self.ends(reading, link, linked, None)?;
                    self.documents[at].set_link(link.name, &ids);
                }
                _ => {
                    return Err(Fault::Unsupported(format!(
                        "a {} cannot be created with {}: create them with a link to it",
                        kind.name(),
                        link.name
                    )));
                }
            }
        }
        if kind == EntityType::HistoricalLocation {
            let document = &self.documents[at];
            if document.link("Thing").is_none() || document.link("Locations").is_none() {
                let detail = "HistoricalLocation: it needs a Thing and Locations";
                return Err(Fault::invalid(detail));
            }
        }
        Ok(id)
    }

    /// The ids at the ends of a link, whose entities exist or are added.
    fn ends(
        &mut self,
        reading: &Reading,
        link: Link,
        linked: Vec<Linked>,
        thing: Option<&str>,
    ) -> Result<Vec<String>, Fault> {
        let mut ids = Vec::new();
        for end in linked {
            ids.push(match end {
                Linked::New(new) => self.add(reading, *new, thing)?,
                Linked::Existing(id) => match reading.get(link.target, &id)? {
                    Some(_) => {
                        if link.target == EntityType::Thing {
                            self.things.insert(id.clone());
                        }
                        id
                    }
                    None => {
                        let id: String = id.chars().take(80).collect();
                        let name = link.target.name();
                        return Err(Fault::Invalid(format!("there is no {name} {id:?}")));
                    }
                },
            });
        }
        Ok(ids)
    }

    /// Notes where a thing is from now on.
    pub(super) fn add_history(&mut self, thing: &str, locations: &[String]) -> Result<(), Fault> {
        let mut properties = Map::new();
        let time = clock::now().to_string();
        properties.insert("time".to_owned(), json!(time));
        let mut document = Document {
            kind: EntityType::HistoricalLocation,
            id: id()?,
            properties,
            links: Map::new(),
        };
        document.set_link("Thing", &[thing.to_owned()]);
        document.set_link("Locations", locations);
        self.documents.push(document);
        Ok(())
    }

    fn add_datastream(
        &mut self,
        reading: &Reading,
        new: NewEntity,
        thing: Option<&str>,
    ) -> Result<String, Fault> {
        let mut links = Map::new();
        if let Some(thing) = thing {
            links.insert("Thing".to_owned(), json!([thing]));
        }
        for (link, linked) in new.links {
            if link.target == EntityType::Observation {
                let detail = "a Datastream cannot be created with Observations: POST them to it";
                return Err(Fault::unsupported(detail));
            }
            let ids = self.ends(reading, link, linked, None)?;
            links.insert(link.name.to_owned(), json!(ids));
        }
        for name in ["Thing", "Sensor", "ObservedProperty"] {
            if !links.contains_key(name) {
                return Err(Fault::Invalid(format!("Datastream: {name:?} is missing")));
            }
        }
        let text = |name: &str| new.properties.get(name).and_then(Json::as_str);
        let field_type = result_type(text("observationType").unwrap_or_default())?;
        let is_number = matches!(field_type, FieldType::Double | FieldType::Integer);
        let unit = new.properties.get("unitOfMeasurement").and_then(unit_code);
        let property = links["ObservedProperty"][0].as_str().unwrap_or_default();
        let result = Field {
            name: RESULT.to_owned(),
            field_type,
            unit: unit.filter(|_| is_number),
            observed_property: self.definition_of(reading, property)?,
            description: text("description")
                .filter(|it| !it.is_empty())
                .map(shortened),
        };
        let further = FURTHER.map(|(name, description)| Field {
            name: name.to_owned(),
            field_type: FieldType::Text,
            unit: None,
            observed_property: None,
            description: Some(description.to_owned()),
        });
        let mut fields = vec![result];
        fields.extend(further);
        let suffix = id()?;
        let part = name_part(text("name").unwrap_or_default());
        let stream = format!("{STREAMS}.{part}-{}", &suffix[..SUFFIX]);
        let definition = Definition {
            schema: StreamSchema { fields, key: None },
            title: text("name").filter(|name| !name.is_empty()).map(shortened),
            level: None,
        };
        let id = datastream_id(&stream, RESULT);
        self.streams.push((stream, definition));
        self.documents.push(Document {
            kind: EntityType::Datastream,
            id: id.clone(),
            properties: new.properties,
            links,
        });
        Ok(id)
    }

    /// The definition of an observed property, if it is an IRI.
    fn definition_of(&self, reading: &Reading, id: &str) -> Result<Option<String>, Fault> {
        let kind = EntityType::ObservedProperty;
        let new = self.documents.iter();
        let mut new = new.filter(|document| document.kind == kind && document.id == id);
        let definition = match new.next() {
            Some(document) => document.properties.get("definition").cloned(),
            None => {
                let known = reading.get(kind, id)?;
                known.and_then(|known| known.properties.get("definition").cloned())
            }
        };
        let definition = definition.as_ref().and_then(Json::as_str);
        let is_iri = |text: &&str| chappe_registry::oxrdf::NamedNode::new(*text).is_ok();
        let is_short = |text: &&str| text.len() <= TEXT_BYTES;
        let definition = definition.filter(is_iri).filter(is_short);
        Ok(definition.map(str::to_owned))
    }
}

/// Refuses datastreams that exist already.
fn only_new(linked: &[Linked], link: Link) -> Result<(), Fault> {
    match linked.iter().any(|end| matches!(end, Linked::Existing(_))) {
        true => Err(Fault::Unsupported(format!(
            "{} that exist cannot get another Thing",
            link.name
        ))),
        false => Ok(()),
    }
}

/// Bytes of a text in the definition of a stream.
const TEXT_BYTES: usize = 1_000;

/// The start of a text, as long as the definition of a stream may have it; the document has all of it.
fn shortened(text: &str) -> String {
    let mut end = text.len().min(TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

fn id() -> Result<String, Fault> {
    new_id().map_err(|problem| Fault::Failed(problem.detail))
}
