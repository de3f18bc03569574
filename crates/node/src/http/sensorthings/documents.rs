//! Entities that clients created, as entities of the registry: each keeps a JSON document, in parts, because a
//! term of the registry is short.
//!
//! The observations of a created datastream are elements of a stream; its document has the rest.

use chappe_registry::oxrdf::{Literal, NamedNode, Term, Triple};
use chappe_registry::{Entity, EntityKind, Search};
use chappe_sensorthings::{EntityType, Fault};
use serde_json::{Map, Value as Json, json};

use crate::registrar::OWN_KEYS;

/// The namespace of the types of these entities.
const TYPES: &str = "http://www.opengis.net/spec/iot_sensing/1.1#";
/// The predicate of the parts of a document, before the number of the part.
const PART: &str = "https://chappe.example/ns/sensorthings#document_";
/// Bytes of a part; reason: the longest term of an entity has 16 KiB.
const PART_BYTES: usize = 15 << 10;
/// Bytes of a document; reason: the terms of an entity have 512 KiB, and geometries are in it.
pub(super) const DOCUMENT_BYTES_MAX: usize = 256 << 10;
/// Characters of a name that become the entity's name.
const NAME_CHARACTERS: usize = 200;

/// A created entity.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Document {
    pub(super) kind: EntityType,
    pub(super) id: String,
    pub(super) properties: Map<String, Json>,
    /// The ids at the ends of its links, by the names of the links.
    pub(super) links: Map<String, Json>,
}

/// The key in the registry of a created entity.
pub(super) fn key(kind: EntityType, id: &str) -> String {
    let id = chappe_sensorthings::encode_percent(id);
    format!("{OWN_KEYS}sensorthings:{}:{id}", kind.name())
}

/// The search for all created entities of a type.
pub(super) fn search(kind: EntityType) -> Search {
    Search {
        kind: Some(EntityKind::Other),
        entity_type: Some(type_name(kind)),
        ..Search::default()
    }
}

fn type_name(kind: EntityType) -> String {
    format!("{{{TYPES}}}{}", kind.name())
}

impl Document {
    /// The first end of a link.
    pub(super) fn link(&self, name: &str) -> Option<&str> {
        self.ids(name).next()
    }

    /// The ends of a link.
    pub(super) fn ids(&self, name: &str) -> impl Iterator<Item = &str> {
        let ids = self.links.get(name).and_then(Json::as_array);
        ids.into_iter().flatten().filter_map(Json::as_str)
    }

    /// Sets the ends of a link.
    pub(super) fn set_link(&mut self, name: &str, ids: &[String]) {
        self.links.insert(name.to_owned(), json!(ids));
    }

    /// Its entity in the registry.
    ///
    /// # Errors
    /// It is too long.
    pub(super) fn entity(&self, owner: &str) -> Result<Entity, Fault> {
        let text = json!({"id": self.id, "properties": self.properties, "links": self.links});
        let text = text.to_string();
        if text.len() > DOCUMENT_BYTES_MAX {
            let detail = format!(
                "the {} has {} bytes; the limit is {DOCUMENT_BYTES_MAX}",
                self.kind.name(),
                text.len()
            );
            return Err(Fault::Invalid(detail));
        }
        let key = key(self.kind, &self.id);
        let name = self.properties.get("name").and_then(Json::as_str);
        let name: String = name
            .unwrap_or(&self.id)
            .chars()
            .take(NAME_CHARACTERS)
            .collect();
        let mut entity = Entity::new(key.clone(), EntityKind::Other, name);
        entity.owner = owner.to_owned();
        entity.types = vec![type_name(self.kind)];
        let (mut rest, mut number) = (text.as_str(), 0);
        while !rest.is_empty() {
            let mut end = rest.len().min(PART_BYTES);
            while !rest.is_char_boundary(end) {
                end -= 1;
            }
            let (part, after) = rest.split_at(end);
            entity.triples.push(Triple::new(
                NamedNode::new_unchecked(key.clone()),
                NamedNode::new_unchecked(format!("{PART}{number}")),
                Literal::new_simple_literal(part),
            ));
            (rest, number) = (after, number + 1);
        }
        Ok(entity)
    }

    /// The document of an entity of the registry, if it is one.
    pub(super) fn of(kind: EntityType, entity: &Entity) -> Option<Self> {
        let parts = entity.triples.iter().filter_map(|triple| {
            let number = triple.predicate.as_str().strip_prefix(PART)?;
            match &triple.object {
                Term::Literal(part) => Some((number.parse::<usize>().ok()?, part.value())),
                _ => None,
            }
        });
        let mut parts: Vec<(usize, &str)> = parts.collect();
        parts.sort_unstable();
        let text: String = parts.into_iter().map(|(_, part)| part).collect();
        let mut json: Json = serde_json::from_str(&text).ok()?;
        let mut members = |name: &str| match json.get_mut(name).map(Json::take) {
            Some(Json::Object(members)) => members,
            _ => Map::new(),
        };
        let (properties, links) = (members("properties"), members("links"));
        let id = json.get("id")?.as_str()?.to_owned();
        Some(Self {
            kind,
            id,
            properties,
            links,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_of_many_parts_is_the_same_when_it_is_read() {
        let text = "ä'\"\\ ".repeat(10_000);
        let properties = json!({"name": text, "location": {"coordinates": [1.5, 2]}});
        let mut document = Document {
            kind: EntityType::Location,
            id: "a".to_owned(),
            properties: properties.as_object().cloned().unwrap(),
            links: Map::new(),
        };
        document.set_link("Things", &["t".to_owned()]);
        let entity = document.entity("ada").unwrap();
        assert!(entity.triples.len() > 3);
        assert!(entity.validate().is_ok());
        assert_eq!(Document::of(EntityType::Location, &entity), Some(document));
    }
}
