//! Where entities come from.

use std::collections::HashSet;
use std::sync::Arc;

use chappe_stream::Timestamp;
use serde_json::{Map, Value as Json};

use crate::answer::size;
use crate::model::{EntityType, Link, is_id, is_time};
use crate::order::{Key, is_by_time};
use crate::{Expression, Fault, Scope, Value};

/// Entities on a path through sets; reason: a filter visits them for each entity that it tests.
const PATH_ENTITIES_MAX: usize = 10_000;

/// An entity.
#[derive(Debug, Clone, PartialEq)]
pub struct Entity {
    /// Its type.
    pub kind: EntityType,
    /// Its id.
    pub id: String,
    /// Its properties; those without a value may be missing.
    pub properties: Map<String, Json>,
}

/// Which observations.
#[derive(Debug, Clone, PartialEq)]
pub enum ObservationsOf {
    /// All.
    All,
    /// Those of a datastream.
    Datastream(Arc<Entity>),
    /// Those of a feature.
    Feature(Arc<Entity>),
}

/// The wanted observations.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The test that they pass.
    pub filter: Option<&'a Expression>,
    /// Their order; without keys, the source's own.
    pub order: &'a [Key],
    /// How many of them are left out first.
    pub skip: usize,
    /// At most this many.
    pub top: usize,
    /// Whether all that pass the test are counted.
    pub count: bool,
    /// The end of the page before.
    pub token: Option<&'a str>,
    /// The time of the request.
    pub now: Timestamp,
}

impl Wanted<'_> {
    /// Whether they are wanted in the order of one of these properties alone, and whether the latest come first.
    #[must_use]
    pub fn is_by_time(&self, names: &[&str]) -> Option<bool> {
        is_by_time(self.order, names)
    }
}

/// A page of observations.
#[derive(Debug, Default)]
pub struct Observations {
    /// The observations.
    pub entities: Vec<Arc<Entity>>,
    /// The number of all that pass the test, if it was wanted.
    pub count: Option<u64>,
    /// How to get the next page, if there are more.
    pub next: Option<Resume>,
}

/// How to continue after a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resume {
    /// After this token.
    Token(String),
    /// By skipping what was there.
    Skip,
}

/// The entities that a caller may see.
pub trait Source {
    /// All entities of a type other than Observation, in the order of their ids.
    ///
    /// # Errors
    /// They cannot be read.
    fn all(&self, kind: EntityType) -> Result<Vec<Arc<Entity>>, Fault>;

    /// The entity with this id.
    ///
    /// # Errors
    /// It cannot be read.
    fn get(&self, kind: EntityType, id: &str) -> Result<Option<Arc<Entity>>, Fault>;

    /// The entities that a link leads to, in the order of their ids; not for links to Observations.
    ///
    /// # Errors
    /// They cannot be read.
    fn related(&self, from: &Entity, link: Link) -> Result<Vec<Arc<Entity>>, Fault>;

    /// A page of observations.
    ///
    /// # Errors
    /// They cannot be read, or not within the limits.
    fn observations(&self, of: &ObservationsOf, wanted: &Wanted<'_>)
    -> Result<Observations, Fault>;
}

/// An entity with its links, for expressions.
pub struct EntityScope<'a> {
    /// Where its links lead.
    pub source: &'a dyn Source,
    /// The entity.
    pub entity: &'a Entity,
}

impl Entity {
    /// Bytes of its properties in an answer, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.id.len() + self.properties.values().map(size).sum::<usize>()
    }

    /// A property and its members, for an expression.
    #[must_use]
    pub fn value(&self, path: &[String]) -> Value {
        let Some((name, members)) = path.split_first() else {
            return Value::Null;
        };
        if is_id(name) {
            return Value::Text(self.id.clone());
        }
        let mut json = self.properties.get(name);
        if let Some(json) = json.filter(|_| members.is_empty() && is_time(name)) {
            return Value::time_of_json(json);
        }
        for member in members {
            json = json.and_then(|json| json.get(member));
        }
        json.map_or(Value::Null, Value::of_json)
    }
}

impl Scope for EntityScope<'_> {
    fn value(&self, path: &[String]) -> Result<Value, Fault> {
        let mut entities: Vec<Arc<Entity>> = Vec::new();
        let (mut is_first, mut is_many) = (true, false);
        let mut kind = self.entity.kind;
        for (at, part) in path.iter().enumerate() {
            let Some(link) = kind.link(part) else {
                let rest = &path[at..];
                if is_first {
                    return Ok(self.entity.value(rest));
                }
                let mut values = entities.iter().map(|entity| entity.value(rest));
                return Ok(match is_many {
                    true => Value::Many(values.collect()),
                    false => values.next().unwrap_or(Value::Null),
                });
            };
            let next = match is_first {
                true => self.source.related(self.entity, link)?,
                false => {
                    let mut next = Vec::new();
                    // Many entities lead to the same one: without this the next link is followed for each of them.
                    let mut known = HashSet::new();
                    for entity in &entities {
                        let related = self.source.related(entity, link)?.into_iter();
                        next.extend(related.filter(|it| known.insert(it.id.clone())));
                        if next.len() > PATH_ENTITIES_MAX {
                            let detail = format!(
                                "the path {:?} leads to more than {PATH_ENTITIES_MAX} entities",
                                path.join("/")
                            );
                            return Err(Fault::Invalid(detail));
                        }
                    }
                    next
                }
            };
            (entities, is_first, kind) = (next, false, link.target);
            is_many |= link.is_many;
        }
        Ok(Value::Null)
    }
}
