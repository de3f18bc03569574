//! Bodies of requests that create and change entities (18-088, clauses 10 and 12.2).

use chappe_stream::Timestamp;
use serde_json::{Map, Value as Json};

use crate::fault::shown;
use crate::model::{EntityType, Link};
use crate::value::parse_time;
use crate::{Fault, Value};

/// Levels of entities in one body.
const DEPTH_MAX: usize = 5;
/// Entities in one body; reason: they are stored as one change.
pub const ENTITIES_MAX: usize = 256;
/// Observations in one body.
pub const OBSERVATIONS_MAX: usize = 10_000;

/// An entity to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewEntity {
    /// Its type.
    pub kind: EntityType,
    /// Its properties.
    pub properties: Map<String, Json>,
    /// Its links.
    pub links: Vec<(Link, Vec<Linked>)>,
}

/// The end of a link in a body.
#[derive(Debug, Clone, PartialEq)]
pub enum Linked {
    /// An entity that exists, by its id.
    Existing(String),
    /// An entity to create with it.
    New(Box<NewEntity>),
}

/// An observation to create.
#[derive(Debug, Clone, PartialEq)]
pub struct NewObservation {
    /// Start and end; for a moment both are the same.
    pub phenomenon_time: Option<(Timestamp, Timestamp)>,
    /// The result.
    pub result: Json,
    /// When the result was made.
    pub result_time: Option<Timestamp>,
    /// Statements about the quality.
    pub result_quality: Option<Json>,
    /// Start and end.
    pub valid_time: Option<(Timestamp, Timestamp)>,
    /// Further statements.
    pub parameters: Option<Map<String, Json>>,
    /// The datastream.
    pub datastream: Option<Linked>,
    /// The feature.
    pub feature: Option<Linked>,
}

/// Observations of one datastream in a body for `CreateObservations`.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// The id of the datastream.
    pub datastream: String,
    /// Its observations, or why one is none.
    pub observations: Vec<Result<NewObservation, Fault>>,
}

/// Reads the members that an entity of type `kind` is created with.
///
/// # Errors
/// A member that is missing, unknown or of another type; too many entities.
pub fn new_entity(kind: EntityType, json: &Json) -> Result<NewEntity, Fault> {
    let mut entities = 0;
    entity(kind, json, 0, &mut entities)
}

fn entity(
    kind: EntityType,
    json: &Json,
    depth: usize,
    entities: &mut usize,
) -> Result<NewEntity, Fault> {
    *entities += 1;
    if depth > DEPTH_MAX || *entities > ENTITIES_MAX {
        let detail = format!("a body has at most {ENTITIES_MAX} entities in {DEPTH_MAX} levels");
        return Err(Fault::Invalid(detail));
    }
    let name = kind.name();
    let members = object(json, name)?;
    let mut new = NewEntity {
        kind,
        properties: Map::new(),
        links: Vec::new(),
    };
    for (member, value) in members {
        if is_control(member) {
            continue;
        }
        if let Some(link) = kind.link(member) {
            let linked = linked(link, value, depth, entities)?;
            new.links.push((link, linked));
        } else if is_writable(kind, member) {
            check_property(kind, member, value)?;
            new.properties.insert(member.clone(), value.clone());
        } else if !is_computed(kind, member) {
            return Err(unknown(kind, member));
        }
    }
    for required in required(kind) {
        if !new.properties.contains_key(*required) {
            let detail = format!("{name}: {required:?} is missing");
            return Err(Fault::Invalid(detail));
        }
    }
    Ok(new)
}

/// Reads the members that change an entity of type `kind`; null removes a member.
///
/// # Errors
/// A member that is unknown, or of another type.
pub fn changes(kind: EntityType, json: &Json) -> Result<NewEntity, Fault> {
    let mut new = NewEntity {
        kind,
        properties: Map::new(),
        links: Vec::new(),
    };
    for (member, value) in object(json, kind.name())? {
        if is_control(member) {
            continue;
        }
        if let Some(link) = kind.link(member) {
            let linked = linked(link, value, DEPTH_MAX - 1, &mut 0)?;
            new.links.push((link, linked));
        } else if is_writable(kind, member) {
            match value.is_null() && !required(kind).contains(&member.as_str()) {
                true => {}
                false => check_property(kind, member, value)?,
            }
            new.properties.insert(member.clone(), value.clone());
        } else if !is_computed(kind, member) {
            return Err(unknown(kind, member));
        }
    }
    Ok(new)
}

fn linked(
    link: Link,
    json: &Json,
    depth: usize,
    entities: &mut usize,
) -> Result<Vec<Linked>, Fault> {
    let one = |json: &Json, entities: &mut usize| match existing(json)? {
        Some(id) => Ok(Linked::Existing(id)),
        None => {
            let new = entity(link.target, json, depth + 1, entities)?;
            Ok(Linked::New(Box::new(new)))
        }
    };
    match (json, link.is_many) {
        (Json::Array(list), true) => list.iter().map(|json| one(json, entities)).collect(),
        (Json::Array(_), false) | (Json::Object(_), true) => Err(Fault::Invalid(format!(
            "{:?} is {}",
            link.name,
            if link.is_many {
                "an array"
            } else {
                "one entity"
            }
        ))),
        (json, _) => Ok(vec![one(json, entities)?]),
    }
}

/// The id of `{"@iot.id": ...}`. Clients send the other members of an entity that they read along with it.
fn existing(json: &Json) -> Result<Option<String>, Fault> {
    let Some(id) = json.get("@iot.id") else {
        return Ok(None);
    };
    match id {
        Json::String(id) => Ok(Some(id.clone())),
        Json::Number(id) => Ok(Some(id.to_string())),
        _ => Err(Fault::invalid("@iot.id is a text")),
    }
}

fn object<'a>(json: &'a Json, name: &str) -> Result<&'a Map<String, Json>, Fault> {
    json.as_object()
        .ok_or_else(|| Fault::Invalid(format!("{name}: not a JSON object")))
}

/// Members that services write into answers; clients send them back.
fn is_control(name: &str) -> bool {
    matches!(name, "@iot.selfLink" | "@iot.count")
        || name.ends_with("@iot.navigationLink")
        || name.ends_with("@iot.count")
        || name.ends_with("@iot.nextLink")
}

fn unknown(kind: EntityType, member: &str) -> Fault {
    let name = kind.name();
    match member {
        "@iot.id" => Fault::Invalid(format!("{name}: the service gives new entities their ids")),
        member => Fault::Invalid(format!("{name} has no {:?}", shown(member))),
    }
}

fn is_writable(kind: EntityType, member: &str) -> bool {
    kind.properties().contains(&member) && !is_computed(kind, member)
}

/// Properties that follow from the observations.
fn is_computed(kind: EntityType, member: &str) -> bool {
    kind == EntityType::Datastream
        && matches!(member, "phenomenonTime" | "resultTime" | "observedArea")
}

fn required(kind: EntityType) -> &'static [&'static str] {
    match kind {
        EntityType::Thing => &["name", "description"],
        EntityType::Location => &["name", "description", "encodingType", "location"],
        EntityType::HistoricalLocation => &["time"],
        EntityType::Datastream => &[
            "name",
            "description",
            "observationType",
            "unitOfMeasurement",
        ],
        EntityType::Sensor => &["name", "description", "encodingType", "metadata"],
        EntityType::ObservedProperty => &["name", "definition", "description"],
        EntityType::Observation => &["result"],
        EntityType::FeatureOfInterest => &["name", "description", "encodingType", "feature"],
    }
}

fn check_property(kind: EntityType, member: &str, value: &Json) -> Result<(), Fault> {
    let wanted = match member {
        "name" | "description" | "encodingType" | "definition" | "observationType" => {
            (!value.is_string()).then_some("a text")
        }
        "properties" | "parameters" | "unitOfMeasurement" => {
            (!value.is_object()).then_some("an object")
        }
        "time" => {
            let is_time = value
                .as_str()
                .is_some_and(|text| Timestamp::parse(text).is_some());
            (!is_time).then_some("a time as 2026-11-21T10:00:00Z")
        }
        "location" | "feature" | "metadata" => value.is_null().then_some("not null"),
        _ => None,
    };
    match wanted {
        Some(wanted) => Err(Fault::Invalid(format!(
            "{}: {member:?} must be {wanted}",
            kind.name()
        ))),
        None => Ok(()),
    }
}

/// Reads an observation to create.
///
/// # Errors
/// A member that is missing, unknown or of another type.
pub fn new_observation(json: &Json) -> Result<NewObservation, Fault> {
    let new = new_entity(EntityType::Observation, json)?;
    observation(new)
}

fn observation(new: NewEntity) -> Result<NewObservation, Fault> {
    let NewEntity {
        mut properties,
        links,
        ..
    } = new;
    let mut take = |name: &str| properties.remove(name).filter(|value| !value.is_null());
    let (mut datastream, mut feature) = (None, None);
    for (link, linked) in links {
        let end = linked.into_iter().next();
        match link.target {
            EntityType::Datastream => datastream = end,
            _ => feature = end,
        }
    }
    let parameters = match take("parameters") {
        Some(Json::Object(members)) => Some(members),
        _ => None,
    };
    let phenomenon_time = period("phenomenonTime", take("phenomenonTime"))?;
    let valid_time = period("validTime", take("validTime"))?;
    let result_time = match period("resultTime", take("resultTime"))? {
        Some((from, to)) if from != to => {
            return Err(Fault::invalid("resultTime is a moment, not a period"));
        }
        time => time.map(|(from, _)| from),
    };
    let result_quality = take("resultQuality");
    Ok(NewObservation {
        phenomenon_time,
        result: take("result").unwrap_or(Json::Null),
        result_time,
        result_quality,
        valid_time,
        parameters,
        datastream,
        feature,
    })
}

fn period(name: &str, json: Option<Json>) -> Result<Option<(Timestamp, Timestamp)>, Fault> {
    let Some(json) = json else {
        return Ok(None);
    };
    match json.as_str().and_then(parse_time) {
        Some(Value::Time(from, to)) => Ok(Some((from, to))),
        _ => Err(Fault::Invalid(format!(
            "{name}: {} is neither a time as 2026-11-21T10:00:00Z nor a period START/END",
            shown(&json.to_string())
        ))),
    }
}

/// Reads the body of `CreateObservations` (18-088, clause 12.2).
///
/// # Errors
/// A body of another form; an observation that is none is in its group.
pub fn data_arrays(json: &Json) -> Result<Vec<Group>, Fault> {
    let list = json.as_array();
    let list = list.ok_or_else(|| Fault::invalid("the body is not an array of data arrays"))?;
    let mut observations = 0;
    let groups = list
        .iter()
        .map(|group| data_array(group, &mut observations));
    groups.collect()
}

fn data_array(json: &Json, observations: &mut usize) -> Result<Group, Fault> {
    let wrong = |what: &str| Fault::Invalid(format!("a data array needs {what}"));
    let datastream = json.get("Datastream").map(existing).transpose()?.flatten();
    let datastream = datastream.ok_or_else(|| wrong("\"Datastream\" with an @iot.id"))?;
    let components = json.get("components").and_then(Json::as_array);
    let components = components.ok_or_else(|| wrong("\"components\", an array of names"))?;
    let names = components.iter().map(Json::as_str);
    let names: Vec<&str> = names
        .collect::<Option<_>>()
        .ok_or_else(|| wrong("\"components\", an array of names"))?;
    let rows = json.get("dataArray").and_then(Json::as_array);
    let rows = rows.ok_or_else(|| wrong("\"dataArray\", an array of arrays"))?;
    *observations += rows.len();
    if *observations > OBSERVATIONS_MAX {
        let detail = format!("a body has at most {OBSERVATIONS_MAX} observations");
        return Err(Fault::Invalid(detail));
    }
    let row = |row: &Json| {
        let cells = row.as_array().filter(|cells| cells.len() == names.len());
        let cells = cells.ok_or_else(|| {
            let detail = format!("a row is not an array of {} values", names.len());
            Fault::Invalid(detail)
        })?;
        let mut members = Map::new();
        for (name, cell) in names.iter().zip(cells) {
            match *name {
                "FeatureOfInterest/id" if cell.is_null() => {}
                "FeatureOfInterest/id" => {
                    let feature = serde_json::json!({ "@iot.id": cell });
                    members.insert("FeatureOfInterest".to_owned(), feature);
                }
                name if cell.is_null() && name != "result" => {}
                name => {
                    members.insert(name.to_owned(), cell.clone());
                }
            }
        }
        new_observation(&Json::Object(members))
    };
    Ok(Group {
        datastream,
        observations: rows.iter().map(row).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_thing_comes_with_what_it_is_linked_to() {
        let body = json!({
            "name": "room", "description": "a room", "properties": {"floor": 2},
            "Locations": [{"name": "here", "description": "", "encodingType": "application/geo+json",
                "location": {"type": "Point", "coordinates": [8.4, 49.0]}}],
            "Datastreams": [{
                "name": "t", "description": "temperature", "phenomenonTime": "ignored",
                "observationType": "http://www.opengis.net/def/observationType/OGC-OM/2.0/OM_Measurement",
                "unitOfMeasurement": {"name": "Celsius", "symbol": "Cel", "definition": "ucum:Cel"},
                "Sensor": {"@iot.id": "s"},
                "ObservedProperty": {"name": "t", "definition": "urn:t", "description": ""},
            }],
        });
        let thing = new_entity(EntityType::Thing, &body).unwrap();
        assert_eq!(thing.properties.len(), 3);
        let (link, datastreams) = &thing.links[0];
        assert_eq!(link.name, "Datastreams");
        let Linked::New(datastream) = &datastreams[0] else {
            panic!("{datastreams:?}")
        };
        let ends: Vec<_> = datastream.links.iter().map(|(_, linked)| linked).collect();
        assert!(matches!(&ends[1][..], [Linked::Existing(id)] if id == "s"));
        assert!(matches!(&ends[0][..], [Linked::New(_)]));
    }

    #[test]
    fn members_that_are_missing_unknown_or_of_another_type_are_named() {
        for (kind, body, reason) in [
            (EntityType::Thing, json!([]), "not a JSON object"),
            (
                EntityType::Thing,
                json!({"name": "a"}),
                "\"description\" is missing",
            ),
            (
                EntityType::Thing,
                json!({"name": 1, "description": ""}),
                "must be a text",
            ),
            (
                EntityType::Thing,
                json!({"nothing": 1}),
                "has no \"nothing\"",
            ),
            (
                EntityType::Thing,
                json!({"@iot.id": 1}),
                "gives new entities their ids",
            ),
            (
                EntityType::Thing,
                json!({"name": "", "description": "", "Locations": {}}),
                "is an array",
            ),
            (
                EntityType::HistoricalLocation,
                json!({"time": "now"}),
                "a time as",
            ),
        ] {
            let fault = new_entity(kind, &body).unwrap_err().to_string();
            assert!(fault.contains(reason), "{body}: {fault}");
        }
        let many = vec![json!({"@iot.id": "a"}); 2];
        let body = json!({"result": 1, "Datastream": many});
        assert!(new_observation(&body).is_err());
        let body = json!({"result": 1, "resultTime":
            "2026-01-01T00:00:00Z/2026-01-02T00:00:00Z"});
        assert!(new_observation(&body).is_err());
        assert!(new_observation(&json!({})).is_err());
    }

    #[test]
    fn rows_of_data_arrays_are_observations() {
        let body = json!([{
            "Datastream": {"@iot.id": "d"},
            "components": ["phenomenonTime", "result", "FeatureOfInterest/id"],
            "dataArray": [
                ["2026-01-01T00:00:00Z", 1, "f"],
                ["yesterday", 2, null],
                [3],
            ],
        }]);
        let groups = data_arrays(&body).unwrap();
        let [first, second, third] = &groups[0].observations[..] else {
            panic!("{groups:?}")
        };
        let first = first.as_ref().unwrap();
        assert_eq!(first.feature, Some(Linked::Existing("f".to_owned())));
        assert!(second.is_err() && third.is_err());
        for body in [
            json!({}),
            json!([{}]),
            json!([{"Datastream": {"@iot.id": 1}}]),
        ] {
            assert!(data_arrays(&body).is_err());
        }
    }
}
