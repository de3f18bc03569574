//! Answers to requests that read.

use std::cell::Cell;
use std::sync::Arc;

use chappe_stream::Timestamp;
use serde_json::{Map, Value as Json, json};

use crate::evaluate::is_true;
use crate::model::{EntityType, Link, is_id};
use crate::options::Options;
use crate::order::Order;
use crate::path::{ResourcePath, Step, Tail};
use crate::source::{Entity, EntityScope, ObservationsOf, Resume, Source, Wanted};
use crate::{Fault, encode_percent, quoted};

/// The limits of an answer.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Entities of a page without `$top`.
    pub page: usize,
    /// Most entities of a page.
    pub page_max: usize,
    /// Most bytes of an answer, about.
    pub bytes_max: usize,
}

/// A request that reads.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// What is wanted.
    pub path: &'a ResourcePath,
    /// In which form.
    pub options: &'a Options,
    /// The URL of the service root, without a slash at its end.
    pub root: &'a str,
    /// The time of the request.
    pub now: Timestamp,
    /// The limits of the answer.
    pub limits: Limits,
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A document.
    Json(Json),
    /// The text of a property.
    Text(String),
    /// The property has no value.
    Empty,
}

/// Answers a request for entities.
///
/// # Errors
/// [`Fault::Missing`] where the path leads nowhere; those of the options and the source.
pub fn answer(source: &dyn Source, request: &Request<'_>) -> Result<Answer, Fault> {
    let writer = Writer {
        source,
        root: request.root,
        now: request.now,
        limits: request.limits,
        bytes: Cell::new(0),
    };
    let options = request.options;
    let place = writer.find(request.path)?;
    if options.data_array {
        return match (&place, &request.path.tail) {
            (Place::Observations(of), Tail::Whole) => {
                writer.data_array(of, &place_of(request.path), options)
            }
            _ => Err(Fault::invalid(
                "$resultFormat=dataArray is for sets of Observations",
            )),
        };
    }
    let entity = match place {
        Place::Set(entities) => {
            let list = writer.list(entities, options)?;
            return writer.set(list, request);
        }
        Place::Observations(of) => {
            let list = writer.observations(&of, options)?;
            return writer.set(list, request);
        }
        Place::Entity(entity) => entity,
    };
    check_single(options)?;
    match &request.path.tail {
        Tail::Whole => {
            let entity = writer.entity(&entity, options)?;
            Ok(Answer::Json(Json::Object(entity)))
        }
        Tail::Ref => Ok(Answer::Json(writer.reference(&entity))),
        Tail::Property(path) => property(&entity, path).map(|value| match value {
            Json::Null => Answer::Empty,
            value => {
                let name = path.last().cloned().unwrap_or_default();
                Answer::Json(json!({ name: value }))
            }
        }),
        Tail::Value(path) => property(&entity, path).map(|value| match value {
            Json::Null => Answer::Empty,
            Json::String(text) => Answer::Text(text),
            value => Answer::Text(value.to_string()),
        }),
    }
}

/// Refuses the options of sets.
fn check_single(options: &Options) -> Result<(), Fault> {
    let allowed = ["$select", "$expand"];
    let other = options
        .texts
        .iter()
        .find(|(name, _)| !allowed.contains(&name.as_str()));
    match other {
        Some((name, _)) => Err(Fault::Invalid(format!(
            "{name} is for sets, not for one entity"
        ))),
        None => Ok(()),
    }
}

fn property(entity: &Entity, path: &[String]) -> Result<Json, Fault> {
    let Some((name, members)) = path.split_first() else {
        return Ok(Json::Null);
    };
    if is_id(name) {
        return Ok(json!(entity.id));
    }
    let Some(mut value) = entity.properties.get(name) else {
        return match members.is_empty() {
            true => Ok(Json::Null),
            false => Err(Fault::Missing(format!("{name} has no value"))),
        };
    };
    for member in members {
        let found = match value {
            Json::Array(list) => member.parse::<usize>().ok().and_then(|at| list.get(at)),
            value => value.get(member),
        };
        value =
            found.ok_or_else(|| Fault::Missing(format!("{:?} has no value", path.join("/"))))?;
    }
    Ok(value.clone())
}

/// What a path leads to.
enum Place {
    Set(Vec<Arc<Entity>>),
    Observations(ObservationsOf),
    Entity(Arc<Entity>),
}

/// The path of a request, in its normal form.
fn place_of(path: &ResourcePath) -> String {
    let steps = path.steps.iter().map(|step| match &step.id {
        Some(id) => format!("{}({})", step.link.name, quoted(id)),
        None => step.link.name.to_owned(),
    });
    let mut steps: Vec<String> = steps.collect();
    if path.tail == Tail::Ref {
        steps.push("$ref".to_owned());
    }
    steps.join("/")
}

/// The path of an entity.
pub(crate) fn entity_path(entity: &Entity) -> String {
    format!("{}({})", entity.kind.set_name(), quoted(&entity.id))
}

/// A page of a set.
struct List {
    entities: Vec<Arc<Entity>>,
    count: Option<u64>,
    next: Option<Resume>,
}

struct Writer<'a> {
    source: &'a dyn Source,
    root: &'a str,
    now: Timestamp,
    limits: Limits,
    /// Bytes of the answer so far, about.
    bytes: Cell<usize>,
}

impl Writer<'_> {
    fn find(&self, path: &ResourcePath) -> Result<Place, Fault> {
        let mut here: Option<Arc<Entity>> = None;
        for (at, step) in path.steps.iter().enumerate() {
            let is_last = at + 1 == path.steps.len();
            let target = step.link.target;
            if is_last && step.link.is_many && step.id.is_none() {
                return Ok(match (&here, target) {
                    (None, EntityType::Observation) => Place::Observations(ObservationsOf::All),
                    (None, kind) => Place::Set(self.source.all(kind)?),
                    (Some(from), EntityType::Observation) => {
                        Place::Observations(observations_of(from))
                    }
                    (Some(from), _) => Place::Set(self.source.related(from, step.link)?),
                });
            }
            here = Some(self.step(here.as_deref(), step)?);
        }
        here.map(Place::Entity)
            .ok_or_else(|| Fault::missing("the path names no entity"))
    }

    fn step(&self, from: Option<&Entity>, step: &Step) -> Result<Arc<Entity>, Fault> {
        let target = step.link.target;
        let missing = || match &step.id {
            Some(id) => Fault::Missing(format!(
                "there is no {} {:?} here",
                target.name(),
                crate::fault::shown(id)
            )),
            None => Fault::Missing(format!("it has no {}", step.link.name)),
        };
        let Some(from) = from else {
            let id = step.id.as_deref().unwrap_or_default();
            return self.source.get(target, id)?.ok_or_else(missing);
        };
        if target == EntityType::Observation {
            let id = step.id.as_deref().unwrap_or_default();
            let found = self.source.get(target, id)?.ok_or_else(missing)?;
            let back = target.links().iter().find(|link| link.target == from.kind);
            let back = back.copied().ok_or_else(missing)?;
            let owners = self.source.related(&found, back)?;
            let is_here = owners.iter().any(|owner| owner.id == from.id);
            return is_here.then_some(found).ok_or_else(missing);
        }
        let related = self.source.related(from, step.link)?;
        let mut related = related.into_iter();
        let found = match &step.id {
            Some(id) => related.find(|entity| entity.id == *id),
            None => related.next(),
        };
        found.ok_or_else(missing)
    }

    /// The entities of a page, and how to get the next one.
    fn list(&self, mut entities: Vec<Arc<Entity>>, options: &Options) -> Result<List, Fault> {
        if options.skip_token.is_some() {
            return Err(Fault::invalid("$skiptoken is for Observations"));
        }
        if let Some(filter) = &options.filter {
            let mut passed = Vec::new();
            for entity in entities {
                if is_true(filter, &self.scope(&entity), self.now)? {
                    passed.push(entity);
                }
            }
            entities = passed;
        }
        if !options.order.is_empty() {
            let mut keyed = Vec::with_capacity(entities.len());
            for entity in entities {
                keyed.push((Order::of(&options.order, &self.scope(&entity))?, entity));
            }
            // Stable, so that equal ones stay in the order of their ids.
            keyed.sort_by(|(one, _), (other, _)| one.cmp(other));
            entities = keyed.into_iter().map(|(_, entity)| entity).collect();
        }
        let count = options.count.then_some(entities.len() as u64);
        let top = self.top(options);
        let left = entities.len().saturating_sub(options.skip);
        let page = entities.into_iter().skip(options.skip).take(top).collect();
        Ok(List {
            entities: page,
            count,
            next: (left > top && top > 0).then_some(Resume::Skip),
        })
    }

    fn scope<'b>(&'b self, entity: &'b Entity) -> EntityScope<'b> {
        EntityScope {
            source: self.source,
            entity,
        }
    }

    fn top(&self, options: &Options) -> usize {
        let wanted = options.top.unwrap_or(self.limits.page);
        wanted.min(self.limits.page_max)
    }

    fn observations(&self, of: &ObservationsOf, options: &Options) -> Result<List, Fault> {
        let wanted = Wanted {
            filter: options.filter.as_ref(),
            order: &options.order,
            skip: options.skip,
            top: self.top(options),
            count: options.count,
            token: options.skip_token.as_deref(),
            now: self.now,
        };
        let page = self.source.observations(of, &wanted)?;
        Ok(List {
            entities: page.entities,
            count: page.count,
            next: page.next.filter(|_| wanted.top > 0),
        })
    }

    /// The answer with a page of a set.
    fn set(&self, list: List, request: &Request<'_>) -> Result<Answer, Fault> {
        let options = request.options;
        let mut answer = Map::new();
        if let Some(count) = list.count {
            answer.insert("@iot.count".to_owned(), json!(count));
        }
        let path = place_of(request.path);
        if let Some(next) = self.next_link(&path, options, &list) {
            answer.insert("@iot.nextLink".to_owned(), json!(next));
        }
        let is_ref = request.path.tail == Tail::Ref;
        let entities = list.entities.iter().map(|entity| match is_ref {
            true => Ok(self.reference(entity)),
            false => self.entity(entity, options).map(Json::Object),
        });
        let entities = entities.collect::<Result<Vec<_>, _>>()?;
        answer.insert("value".to_owned(), Json::Array(entities));
        Ok(Answer::Json(Json::Object(answer)))
    }

    /// The address of the page after this one.
    fn next_link(&self, path: &str, options: &Options, list: &List) -> Option<String> {
        let (name, value) = match list.next.as_ref()? {
            Resume::Token(token) => ("$skiptoken", token.clone()),
            Resume::Skip => ("$skip", (options.skip + list.entities.len()).to_string()),
        };
        let kept = options.texts.iter();
        let kept = kept.filter(|(name, _)| !matches!(name.as_str(), "$skip" | "$skiptoken"));
        let mut query: Vec<String> = kept
            .map(|(name, value)| format!("{name}={}", encode_percent(value)))
            .collect();
        query.push(format!("{name}={}", encode_percent(&value)));
        Some(format!("{}/{path}?{}", self.root, query.join("&")))
    }

    fn self_link(&self, entity: &Entity) -> String {
        format!("{}/{}", self.root, entity_path(entity))
    }

    fn reference(&self, entity: &Entity) -> Json {
        json!({"@iot.selfLink": self.self_link(entity)})
    }

    /// An entity with its links, some of them expanded.
    fn entity(&self, entity: &Entity, options: &Options) -> Result<Map<String, Json>, Fault> {
        let mut json = Map::new();
        let own = self.self_link(entity);
        if options.selects("@iot.id") {
            json.insert("@iot.id".to_owned(), json!(entity.id));
            json.insert("@iot.selfLink".to_owned(), json!(own));
        }
        for name in entity.kind.properties() {
            if let Some(value) = entity.properties.get(*name)
                && options.selects(name)
            {
                json.insert((*name).to_owned(), value.clone());
            }
        }
        self.count_bytes(json.values().map(size).sum::<usize>() + own.len() * 3)?;
        for link in entity.kind.links() {
            match options.expanded(link.name) {
                Some(inner) => self.expand(entity, *link, inner, &mut json)?,
                None if options.selects(link.name) => {
                    let name = format!("{}@iot.navigationLink", link.name);
                    json.insert(name, json!(format!("{own}/{}", link.name)));
                }
                None => {}
            }
        }
        Ok(json)
    }

    fn expand(
        &self,
        entity: &Entity,
        link: Link,
        options: &Options,
        json: &mut Map<String, Json>,
    ) -> Result<(), Fault> {
        let list = match link.target {
            EntityType::Observation => self.observations(&observations_of(entity), options)?,
            _ if link.is_many => self.list(self.source.related(entity, link)?, options)?,
            _ => {
                check_single(options)?;
                let found = self.source.related(entity, link)?.into_iter().next();
                let found = found.map(|found| self.entity(&found, options).map(Json::Object));
                let found = found.transpose()?.unwrap_or(Json::Null);
                json.insert(link.name.to_owned(), found);
                return Ok(());
            }
        };
        if let Some(count) = list.count {
            json.insert(format!("{}@iot.count", link.name), json!(count));
        }
        let path = format!("{}/{}", entity_path(entity), link.name);
        if let Some(next) = self.next_link(&path, options, &list) {
            json.insert(format!("{}@iot.nextLink", link.name), json!(next));
        }
        let entities = list.entities.iter();
        let entities = entities.map(|entity| self.entity(entity, options).map(Json::Object));
        let entities = entities.collect::<Result<Vec<_>, _>>()?;
        json.insert(link.name.to_owned(), Json::Array(entities));
        Ok(())
    }

    /// Observations as rows of each datastream (18-088, clause 12.1).
    fn data_array(
        &self,
        of: &ObservationsOf,
        path: &str,
        options: &Options,
    ) -> Result<Answer, Fault> {
        if !options.expand.is_empty() {
            let detail = "$expand is not supported with $resultFormat=dataArray";
            return Err(Fault::unsupported(detail));
        }
        let usual = ["id", "phenomenonTime", "result", "resultTime"].map(str::to_owned);
        let names = options.select.clone().unwrap_or_else(|| usual.to_vec());
        let list = self.observations(of, options)?;
        let datastream = EntityType::Observation.link("Datastream");
        let mut groups: Vec<(String, Vec<Json>)> = Vec::new();
        for observation in &list.entities {
            let owner = datastream.map(|link| self.source.related(observation, link));
            let owner = owner.transpose()?.unwrap_or_default();
            let owner = owner.first().map(|owner| self.self_link(owner));
            let owner = owner.unwrap_or_default();
            let row = names.iter().map(|name| match is_id(name) {
                true => json!(observation.id),
                false => observation
                    .properties
                    .get(name)
                    .cloned()
                    .unwrap_or(Json::Null),
            });
            let row: Vec<Json> = row.collect();
            self.count_bytes(row.iter().map(size).sum())?;
            match groups.iter_mut().find(|(known, _)| *known == owner) {
                Some((_, rows)) => rows.push(Json::Array(row)),
                None => groups.push((owner, vec![Json::Array(row)])),
            }
        }
        let mut answer = Map::new();
        if let Some(count) = list.count {
            answer.insert("@iot.count".to_owned(), json!(count));
        }
        if let Some(next) = self.next_link(path, options, &list) {
            answer.insert("@iot.nextLink".to_owned(), json!(next));
        }
        let groups = groups.into_iter().map(|(owner, rows)| {
            json!({
                "Datastream@iot.navigationLink": owner,
                "components": names,
                "dataArray@iot.count": rows.len(),
                "dataArray": rows,
            })
        });
        answer.insert("value".to_owned(), groups.collect());
        Ok(Answer::Json(Json::Object(answer)))
    }

    fn count_bytes(&self, bytes: usize) -> Result<(), Fault> {
        let total = self.bytes.get() + bytes;
        self.bytes.set(total);
        match total > self.limits.bytes_max {
            true => Err(Fault::too_large(self.limits.bytes_max)),
            false => Ok(()),
        }
    }
}

fn observations_of(entity: &Entity) -> ObservationsOf {
    let entity = Arc::new(entity.clone());
    match entity.kind {
        EntityType::FeatureOfInterest => ObservationsOf::Feature(entity),
        _ => ObservationsOf::Datastream(entity),
    }
}

/// Bytes of a value in an answer, about.
pub(crate) fn size(json: &Json) -> usize {
    /// Of a number, a name's quotes or a comma.
    const SMALL: usize = 16;
    match json {
        Json::String(text) => SMALL + text.len(),
        Json::Array(list) => SMALL + list.iter().map(size).sum::<usize>(),
        Json::Object(members) => members
            .iter()
            .map(|(name, value)| SMALL + name.len() + size(value))
            .sum(),
        _ => SMALL,
    }
}
