//! The registry's state in its plainest form: a map from key to entity.

use std::collections::BTreeMap;
use std::sync::Arc;

use chappe_identity::Principal;
use oxrdf::{Dataset, GraphName, Literal, NamedNode, Quad, Term};

use crate::access::Access;
use crate::entity::{Entity, EntityKind};
use crate::error::Error;
use crate::search::{DEFAULT_SEARCH_LIMIT, Found, MAX_SEARCH_LIMIT, Search};
use crate::{scope, vocabulary};

#[derive(Clone, Default)]
pub(crate) struct State {
    entities: BTreeMap<String, Arc<Entity>>,
}

impl State {
    pub(crate) fn new() -> Self {
        Self::default()
    }
    pub(crate) fn admits(&self, _entity: &Entity) -> Result<(), Error> {
        Ok(())
    }
    pub(crate) fn insert(&mut self, entity: &Entity) {
        self.entities
            .insert(entity.key.clone(), Arc::new(entity.clone()));
    }
    pub(crate) fn remove(&mut self, key: &str) {
        self.entities.remove(key);
    }
    pub(crate) fn get(&self, key: &str) -> Option<Entity> {
        self.entities.get(key).map(|entity| Entity::clone(entity))
    }
    pub(crate) fn rule_of(&self, key: &str) -> Option<(String, Access, EntityKind)> {
        let entity = self.entities.get(key)?;
        Some((entity.owner.clone(), entity.access.clone(), entity.kind))
    }
    pub(crate) fn entities(&self) -> impl Iterator<Item = Entity> + '_ {
        self.entities.values().map(|entity| Entity::clone(entity))
    }
    pub(crate) fn len(&self) -> usize {
        self.entities.len()
    }
    pub(crate) fn triples(&self) -> usize {
        self.entities
            .values()
            .map(|entity| entity.triples.len())
            .sum()
    }
    pub(crate) fn terms(&self) -> usize {
        0
    }
    pub(crate) fn access_groups(&self) -> usize {
        0
    }
    pub(crate) fn memory_bytes(&self) -> usize {
        0
    }
    pub(crate) fn dataset(&self, principal: &Principal) -> Dataset {
        let mut dataset = Dataset::new();
        for entity in self.entities.values() {
            if !entity.access.allows(&entity.owner, principal) {
                continue;
            }
            let Ok(key) = NamedNode::new(entity.key.as_str()) else {
                continue;
            };
            let mut say = |predicate: oxrdf::NamedNodeRef<'_>, object: Term| {
                dataset.insert(&Quad::new(
                    key.clone(),
                    predicate.into_owned(),
                    object,
                    GraphName::DefaultGraph,
                ));
            };
            let literal = |text: &str| Term::from(Literal::new_simple_literal(text));
            say(
                vocabulary::RDF_TYPE,
                vocabulary::class(entity.kind).into_owned().into(),
            );
            say(vocabulary::RDFS_LABEL, literal(&entity.name));
            say(vocabulary::OWNER, literal(&entity.owner));
            entity
                .types
                .iter()
                .for_each(|name| say(vocabulary::TYPE, literal(name)));
            entity
                .scopes
                .iter()
                .for_each(|name| say(vocabulary::SCOPE, literal(name)));
            for triple in &entity.triples {
                dataset.insert(&triple.clone().in_graph(GraphName::DefaultGraph));
            }
        }
        dataset
    }
    pub(crate) fn naive_search(&self, search: &Search, principal: &Principal) -> Found {
        let limit = search
            .limit
            .unwrap_or(DEFAULT_SEARCH_LIMIT)
            .min(MAX_SEARCH_LIMIT);
        let mut entities: Vec<Entity> = self
            .entities
            .values()
            .filter(|entity| entity.access.allows(&entity.owner, principal))
            .filter(|entity| matches(entity, search))
            .map(|entity| Entity::clone(entity))
            .collect();
        entities.sort_by_key(|entity| (entity.name.to_lowercase(), entity.key.clone()));
        let truncated = entities.len() > limit;
        entities.truncate(limit);
        Found {
            entities,
            truncated,
        }
    }
}

fn matches(entity: &Entity, search: &Search) -> bool {
    let name = search.name_prefix.as_ref().is_none_or(|prefix| {
        entity
            .name
            .to_lowercase()
            .starts_with(&prefix.to_lowercase())
    });
    let kind = search.kind.is_none_or(|kind| kind == entity.kind);
    let entity_type = search
        .entity_type
        .as_ref()
        .is_none_or(|name| entity.types.contains(name));
    let in_scope = search.scope.as_ref().is_none_or(|asked| {
        scope::normalize(asked).is_some_and(|asked| {
            let mut scopes = entity
                .scopes
                .iter()
                .filter_map(|scope| scope::normalize(scope));
            scopes.any(|scope| scope::covers(&asked, &scope))
        })
    });
    let observed = search.observed_property.as_ref().is_none_or(|property| {
        entity.triples.iter().any(|triple| {
            (triple.predicate == vocabulary::OBSERVES
                || triple.predicate == vocabulary::OBSERVED_PROPERTY)
                && matches!(&triple.object, Term::NamedNode(node) if node.as_str() == property)
        })
    });
    let about = search.about.as_ref().is_none_or(|about| {
        entity.key != *about
            && entity.triples.iter().any(|triple| {
                matches!(&triple.subject, oxrdf::NamedOrBlankNode::NamedNode(node) if node.as_str() == about)
            })
    });
    name && kind && entity_type && in_scope && observed && about
}
