//! Goal: requests are answered as OGC SensorThings 1.1 says, and filters hold exactly where a plain reading of
//! them does.
//! Method: a source in memory with two things, three datastreams and their observations; random filters are
//! compared with their plain readings, and random texts never panic.

use std::sync::Arc;

use chappe_sensorthings::{
    Answer, Entity, EntityScope, EntityType, Fault, Limits, Link, Observations, ObservationsOf,
    Options, Order, Request, ResourcePath, Resume, Source, Wanted, answer, is_true, parse_filter,
};
use chappe_stream::Timestamp;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);
const MINUTE: i64 = 60_000_000_000;

/// Entities with the ids of those that they are linked to: by type.
#[derive(Default)]
struct Memory {
    entities: Vec<Arc<Entity>>,
    links: Vec<(EntityType, String, EntityType, String)>,
}

impl Memory {
    fn add(&mut self, kind: EntityType, id: &str, properties: Json) {
        self.entities.push(Arc::new(Entity {
            kind,
            id: id.to_owned(),
            properties: properties.as_object().cloned().unwrap(),
        }));
    }

    fn link(&mut self, from: (EntityType, &str), to: (EntityType, &str)) {
        for (one, other) in [(from, to), (to, from)] {
            self.links
                .push((one.0, one.1.to_owned(), other.0, other.1.to_owned()));
        }
    }

    /// Two things; the first has two datastreams of five observations, the second one of none.
    fn example() -> Self {
        use EntityType::{Datastream, Observation, ObservedProperty, Sensor, Thing};
        let mut memory = Self::default();
        memory.add(Sensor, "s", json!({"name": "probe", "metadata": "m"}));
        memory.add(ObservedProperty, "p", json!({"name": "temperature"}));
        for (thing, streams) in [("a", &["x", "y"][..]), ("b", &["z"])] {
            let properties = json!({"name": format!("thing {thing}"), "description": "",
                "properties": {"floor": thing.len(), "tags": ["one", "two"]}});
            memory.add(Thing, thing, properties);
            for id in streams {
                let unit = json!({"name": "Celsius", "symbol": "°C", "definition": null});
                memory.add(
                    Datastream,
                    id,
                    json!({"name": id, "unitOfMeasurement": unit}),
                );
                memory.link((Thing, thing), (Datastream, id));
                memory.link((Sensor, "s"), (Datastream, id));
                memory.link((ObservedProperty, "p"), (Datastream, id));
                for number in 0..if *id == "z" { 0 } else { 5 } {
                    let observation = format!("{id}{number}");
                    let time = Timestamp(NOW.0 + number * MINUTE).to_string();
                    let properties = json!({"phenomenonTime": time, "result": number,
                        "resultTime": null});
                    memory.add(Observation, &observation, properties);
                    memory.link((Observation, &observation), (Datastream, id));
                }
            }
        }
        memory
    }

    fn scope<'a>(&'a self, entity: &'a Entity) -> EntityScope<'a> {
        EntityScope {
            source: self,
            entity,
        }
    }

    fn get(&self, path: &str) -> Result<Answer, Fault> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let path = ResourcePath::parse(path)?;
        let options = Options::parse(query, path.target().unwrap())?;
        let request = Request {
            path: &path,
            options: &options,
            root: "http://n/v1.1",
            now: NOW,
            limits: Limits {
                page: 100,
                page_max: 3,
                bytes_max: 100_000,
            },
        };
        answer(self, &request)
    }

    fn json(&self, path: &str) -> Json {
        match self.get(path) {
            Ok(Answer::Json(json)) => json,
            other => panic!("{path}: {other:?}"),
        }
    }

    /// The ids of the entities of a set.
    fn ids(&self, path: &str) -> Vec<String> {
        let answer = self.json(path);
        let list = answer["value"].as_array().unwrap().iter();
        list.map(|entity| entity["@iot.id"].as_str().unwrap().to_owned())
            .collect()
    }
}

impl Source for Memory {
    fn all(&self, kind: EntityType) -> Result<Vec<Arc<Entity>>, Fault> {
        let of_kind = self.entities.iter().filter(|entity| entity.kind == kind);
        Ok(of_kind.cloned().collect())
    }

    fn get(&self, kind: EntityType, id: &str) -> Result<Option<Arc<Entity>>, Fault> {
        let mut entities = self.entities.iter();
        Ok(entities
            .find(|entity| entity.kind == kind && entity.id == id)
            .cloned())
    }

    fn related(&self, from: &Entity, link: Link) -> Result<Vec<Arc<Entity>>, Fault> {
        let ids = self.links.iter().filter(|(kind, id, target, _)| {
            (*kind, id, *target) == (from.kind, &from.id, link.target)
        });
        let found = ids.map(|(.., target, id)| Source::get(self, *target, id));
        Ok(found
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .flatten()
            .collect())
    }

    fn observations(
        &self,
        of: &ObservationsOf,
        wanted: &Wanted<'_>,
    ) -> Result<Observations, Fault> {
        let mut all = self.all(EntityType::Observation)?;
        if let ObservationsOf::Datastream(owner) = of {
            all.retain(|it| it.id.starts_with(&owner.id));
        }
        if let Some(filter) = wanted.filter {
            all.retain(|entity| is_true(filter, &self.scope(entity), wanted.now).unwrap());
        }
        all.sort_by_key(|entity| Order::of(wanted.order, &self.scope(entity)).unwrap());
        let count = wanted.count.then_some(all.len() as u64);
        let has_more = all.len() > wanted.skip + wanted.top;
        Ok(Observations {
            entities: all.into_iter().skip(wanted.skip).take(wanted.top).collect(),
            count,
            next: has_more.then_some(Resume::Skip),
        })
    }
}

#[test]
fn entities_have_their_links_and_only_what_is_selected() {
    let memory = Memory::example();
    let thing = memory.json("Things('a')");
    assert_eq!(thing["@iot.selfLink"], "http://n/v1.1/Things('a')");
    assert_eq!(
        thing["Datastreams@iot.navigationLink"],
        "http://n/v1.1/Things('a')/Datastreams"
    );
    let selected = memory.json("Things('a')?$select=name");
    assert_eq!(selected, json!({"name": "thing a"}));
    let selected = memory.json("Things('a')?$select=id,Datastreams");
    assert_eq!(selected.as_object().unwrap().len(), 3);
}

#[test]
fn paths_lead_from_entity_to_entity_and_to_properties() {
    let memory = Memory::example();
    assert_eq!(memory.ids("Things('a')/Datastreams"), ["x", "y"]);
    assert_eq!(memory.json("Datastreams('z')/Thing")["@iot.id"], "b");
    assert_eq!(
        memory.json("Observations('x3')/Datastream/Thing/name")["name"],
        "thing a"
    );
    assert_eq!(
        memory.json("Things('a')/Datastreams('y')/Observations('y1')")["result"],
        1
    );
    assert_eq!(
        memory.json("Things('a')/Datastreams/$ref")["value"][0],
        json!({"@iot.selfLink": "http://n/v1.1/Datastreams('x')"})
    );
    for (path, text) in [
        ("Things('a')/name/$value", "thing a"),
        ("Things('a')/properties/floor/$value", "1"),
        ("Things('a')/properties/tags/1/$value", "two"),
    ] {
        assert_eq!(memory.get(path).unwrap(), Answer::Text(text.to_owned()));
    }
    assert_eq!(
        memory.get("Observations('x1')/resultTime").unwrap(),
        Answer::Empty
    );
    for path in [
        "Things('c')",
        "Things('b')/Datastreams('x')",
        "Things('b')/Datastreams('z')/Observations('x1')",
        "Things('a')/properties/roof",
    ] {
        assert!(matches!(memory.get(path), Err(Fault::Missing(_))), "{path}");
    }
    assert!(matches!(
        memory.get("Things('a')?$top=1"),
        Err(Fault::Invalid(_))
    ));
}

#[test]
fn a_path_that_comes_back_to_the_same_entities_visits_them_once() {
    use EntityType::{Datastream, Sensor, Thing};
    let mut memory = Memory::example();
    // Each of them leads to the sensor, and the sensor to each of them: 22,500 of them if they were repeated.
    for number in 0..150 {
        let id = format!("d{number}");
        memory.add(Datastream, &id, json!({"name": id}));
        memory.link((Thing, "a"), (Datastream, &id));
        memory.link((Sensor, "s"), (Datastream, &id));
    }
    let path = "Things?$filter=Datastreams/Sensor/Datastreams/name%20eq%20'd7'";
    assert_eq!(memory.ids(path), ["a", "b"]);
}

#[test]
fn sets_are_filtered_ordered_counted_and_cut_with_a_link_to_the_rest() {
    let memory = Memory::example();
    let page = memory.json("Observations?$top=2&$skip=1&$count=true&$orderby=result desc,id");
    assert_eq!(page["@iot.count"], 10);
    let ids: Vec<&str> = page["value"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["@iot.id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["y4", "x3"]);
    let next = page["@iot.nextLink"].as_str().unwrap();
    assert_eq!(
        next,
        "http://n/v1.1/Observations?$top=2&$count=true&$orderby=result%20desc,id&$skip=3"
    );
    let next = memory.ids(next.strip_prefix("http://n/v1.1/").unwrap());
    assert_eq!(next, ["y3", "x2"]);
    // The service's own limit of a page, with a link to the rest.
    assert_eq!(
        memory.json("Observations?$top=9")["value"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    assert!(memory.json("Observations?$top=9")["@iot.nextLink"].is_string());
    assert!(
        memory
            .json("Observations?$top=0")
            .get("@iot.nextLink")
            .is_none()
    );
    assert!(memory.json("Things").get("@iot.nextLink").is_none());
    for (filter, ids) in [
        ("Things?$filter=Datastreams/name eq 'z'", &["b"][..]),
        (
            "Things?$filter=startswith(name,'thing') and not (id eq 'a')",
            &["b"],
        ),
        (
            "Things?$filter=properties/floor eq 1 and properties/roof eq null",
            &["a", "b"],
        ),
        (
            "Datastreams?$filter=Thing/id eq 'a' and unitOfMeasurement/symbol eq '°C'",
            &["x", "y"],
        ),
        (
            "Observations?$filter=Datastream/Thing/name eq 'thing a' and result mod 4 eq 3",
            &["x3", "y3"],
        ),
        (
            "Observations?$filter=minute(phenomenonTime) eq 15 and resultTime eq null",
            &["x2", "y2"],
        ),
    ] {
        assert_eq!(memory.ids(filter), ids, "{filter}");
    }
}

#[test]
fn links_are_expanded_with_options_of_their_own() {
    let memory = Memory::example();
    let thing = memory.json(
        "Things('a')?$expand=Datastreams($select=name;$count=true;$top=1;$expand=\
         Observations($top=1;$orderby=result desc),Sensor)",
    );
    assert_eq!(thing["Datastreams@iot.count"], 2);
    assert_eq!(
        thing["Datastreams@iot.nextLink"],
        "http://n/v1.1/Things('a')/Datastreams?$select=name&$count=true&$top=1&$expand=Observations(\
         $top%3D1;$orderby%3Dresult%20desc),Sensor&$skip=1"
    );
    let datastream = &thing["Datastreams"][0];
    assert_eq!(datastream["name"], "x");
    assert_eq!(datastream["Observations"][0]["result"], 4);
    assert_eq!(datastream["Sensor"]["name"], "probe");
    assert!(datastream.get("Sensor@iot.navigationLink").is_none());
    assert!(thing.get("Datastreams@iot.navigationLink").is_none());
}

#[test]
fn data_arrays_have_the_observations_of_each_datastream() {
    let memory = Memory::example();
    let answer = memory.json(
        "Observations?$resultFormat=dataArray&$select=id,result&$count=true&$filter=result gt 3",
    );
    assert_eq!(answer["@iot.count"], 2);
    assert_eq!(
        answer["value"][1],
        json!({
            "Datastream@iot.navigationLink": "http://n/v1.1/Datastreams('y')",
            "components": ["id", "result"], "dataArray@iot.count": 1, "dataArray": [["y4", 4]],
        })
    );
    assert!(memory.get("Things?$resultFormat=dataArray").is_err());
}

#[test]
fn an_answer_beyond_the_limit_is_an_error() {
    let mut memory = Memory::default();
    memory.add(EntityType::Thing, "a", json!({"name": "a".repeat(200_000)}));
    assert!(matches!(memory.get("Things"), Err(Fault::Invalid(_))));
}

/// A filter of whole numbers, in its plain reading.
#[derive(Debug, Clone)]
enum Plain {
    Compare(String, i64, bool),
    And(Box<Plain>, Box<Plain>),
    Or(Box<Plain>, Box<Plain>),
    Not(Box<Plain>),
}

impl Plain {
    fn text(&self) -> String {
        match self {
            Self::Compare(word, number, true) => format!("{number} {word} result"),
            Self::Compare(word, number, false) => format!("result {word} {number}"),
            Self::And(one, other) => format!("({} and {})", one.text(), other.text()),
            Self::Or(one, other) => format!("({} or {})", one.text(), other.text()),
            Self::Not(inner) => format!("not ({})", inner.text()),
        }
    }

    fn holds(&self, result: i64) -> bool {
        match self {
            Self::Compare(word, number, is_mirrored) => {
                let (one, other) = match is_mirrored {
                    true => (*number, result),
                    false => (result, *number),
                };
                match word.as_str() {
                    "eq" => one == other,
                    "ne" => one != other,
                    "gt" => one > other,
                    "ge" => one >= other,
                    "lt" => one < other,
                    _ => one <= other,
                }
            }
            Self::And(one, other) => one.holds(result) && other.holds(result),
            Self::Or(one, other) => one.holds(result) || other.holds(result),
            Self::Not(inner) => !inner.holds(result),
        }
    }
}

fn filters() -> impl Strategy<Value = Plain> {
    let comparison = ("eq|ne|gt|ge|lt|le", -5_i64..5, any::<bool>());
    let leaf = comparison
        .prop_map(|(word, number, is_mirrored)| Plain::Compare(word, number, is_mirrored));
    leaf.prop_recursive(5, 40, 2, |inner| {
        let pair = || (inner.clone(), inner.clone());
        prop_oneof![
            pair().prop_map(|(one, other)| Plain::And(Box::new(one), Box::new(other))),
            pair().prop_map(|(one, other)| Plain::Or(Box::new(one), Box::new(other))),
            inner.clone().prop_map(|inner| Plain::Not(Box::new(inner))),
        ]
    })
}

proptest! {
    #[test]
    fn a_filter_holds_where_its_plain_reading_does(
        plain in filters(),
        results in proptest::collection::vec(-6_i64..6, 1..20),
    ) {
        let text = plain.text();
        let filter = parse_filter(&text, EntityType::Observation).unwrap();
        let memory = Memory::default();
        for result in results {
            let properties = json!({"result": result});
            let entity = Entity {
                kind: EntityType::Observation,
                id: String::new(),
                properties: properties.as_object().cloned().unwrap(),
            };
            let scope = EntityScope { source: &memory, entity: &entity };
            let holds = is_true(&filter, &scope, NOW).unwrap();
            prop_assert_eq!(holds, plain.holds(result), "{} {}", text, result);
        }
    }

    #[test]
    fn no_text_is_too_strange(path in "[\\PC/'()$]{0,60}", query in "[\\PC&=;$(),' ]{0,200}") {
        let _ = ResourcePath::parse(&path);
        for kind in EntityType::ALL {
            let _ = Options::parse(&query, kind);
            let _ = Options::parse(&format!("$filter={query}"), kind);
            let _ = Options::parse(&format!("$expand={query}"), kind);
        }
    }

    /// Every page leads to the next, and all pages together are the set.
    #[test]
    fn pages_follow_each_other(top in 1_usize..5) {
        let memory = Memory::example();
        let mut path = format!("Observations?$top={top}&$orderby=id");
        let mut seen = Vec::new();
        loop {
            let page = memory.json(&path);
            seen.extend(page["value"].as_array().unwrap().iter().map(|it| it["@iot.id"].clone()));
            match page["@iot.nextLink"].as_str() {
                Some(next) => path = next.strip_prefix("http://n/v1.1/").unwrap().to_owned(),
                None => break,
            }
        }
        prop_assert_eq!(seen.len(), 10);
        seen.dedup();
        prop_assert_eq!(seen.len(), 10);
    }
}
