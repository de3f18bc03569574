//! Goal: OGC SensorThings 1.1 over the node: streams are read as datastreams and observations, entities are created with
//! what they come with, outlive the node, are changed and removed; observations are stored once each; an account sees and
//! writes only what it may; each requirement that the service root claims is met.
//! Method: a node in this process, driven over real HTTP.

use serde_json::{Value, json};

use crate::common::elements::{element, schema};
use crate::common::{Answer, Operated, block, config, get, prepare_log, send};
use chappe_log::Level;
use chappe_stream::{FieldType, Value as Of};

const ROOT: &str = "/sensorthings/v1.1";
const MEASUREMENT: &str = "http://www.opengis.net/def/observationType/OGC-OM/2.0/OM_Measurement";
const ANY: &str = "http://www.opengis.net/def/observationType/OGC-OM/2.0/OM_Observation";

fn escaped(path: &str) -> String {
    path.replace(' ', "%20")
}

impl Operated {
    async fn read(&self, path: &str) -> Answer {
        let token = self.token.clone();
        self.read_as(&token, path).await
    }

    async fn read_as(&self, token: &str, path: &str) -> Answer {
        let credential = format!("Bearer {token}");
        let fields = [("Authorization", credential.as_str())];
        let path = format!("{ROOT}/{}", escaped(path));
        send(&self.node, "GET", &path, &fields, b"").await
    }

    /// The document at a path.
    async fn entity(&self, path: &str) -> Value {
        let answer = self.read(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        answer.json()
    }

    /// One member of each entity of a set.
    async fn each(&self, path: &str, member: &str) -> Vec<Value> {
        let answer = self.entity(path).await;
        let list = answer["value"].as_array().unwrap().iter();
        list.map(|entity| entity[member].clone()).collect()
    }

    /// Creates an entity; returns its id.
    async fn make(&self, path: &str, body: &Value) -> String {
        let answer = self.change("POST", &format!("{ROOT}/{path}"), body).await;
        assert_eq!(answer.status, 201, "{path}: {}", answer.body);
        let location = &answer.headers["location"];
        let id = location.split_once("('").unwrap().1;
        id.strip_suffix("')").unwrap().to_owned()
    }

    async fn refused(&self, method: &str, path: &str, body: &Value) -> u16 {
        self.change(method, &format!("{ROOT}/{path}"), body)
            .await
            .status
    }
}

fn datastream(name: &str, kind: &str) -> Value {
    json!({
        "name": name, "description": "air", "observationType": kind,
        "unitOfMeasurement": {"name": "degree Celsius", "symbol": "°C", "definition": "ucum:Cel"},
        "Sensor": {"name": "DHT22", "description": "probe", "encodingType": "application/pdf",
            "metadata": "https://example.com/dht22.pdf"},
        "ObservedProperty": {"name": "temperature", "description": "of air",
            "definition": "https://qudt.org/vocab/quantitykind/Temperature"},
    })
}

fn room() -> Value {
    json!({
        "name": "room 7", "description": "a room", "properties": {"floor": 2},
        "Locations": [{"name": "here", "description": "in the house", "encodingType": "application/geo+json",
            "location": {"type": "Point", "coordinates": [8.4, 49.0]}}],
        "Datastreams": [datastream("air", MEASUREMENT)],
    })
}

#[test]
fn what_the_root_claims_is_documented_with_a_test() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let root = get(&world.node, ROOT).await.json();
        let sets = root["value"].as_array().unwrap();
        assert_eq!(sets.len(), 8);
        let url = sets[0]["url"].as_str().unwrap();
        assert!(
            url.starts_with("http://") && url.ends_with("/sensorthings/v1.1/Things"),
            "{url}"
        );
        let page = include_str!("../../../../docs/reference/sensorthings.md");
        let tests = [
            include_str!("sensorthings.rs"),
            include_str!("../../../sensorthings/tests/answers.rs"),
        ];
        let claimed = root["serverSettings"]["conformance"].as_array().unwrap();
        assert!(!claimed.is_empty());
        for claim in claimed {
            let name = claim.as_str().unwrap().split_once("/req/").unwrap().1;
            let row = page
                .lines()
                .find(|line| line.starts_with(&format!("| `{name}` |")));
            let row = row.unwrap_or_else(|| panic!("{name} is not documented"));
            let test = row.split('`').nth(3).unwrap();
            let function = format!("fn {test}(");
            assert!(
                tests.iter().any(|text| text.contains(&function)),
                "{name}: {test}"
            );
        }
    });
}

#[test]
fn a_stream_is_a_datastream_for_each_field() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let definition = json!({"name": "lab.room", "title": "Room 7", "fields": [
            {"name": "temperature", "type": "double", "unit": "Cel", "observed_property": "urn:p:t"},
            {"name": "people", "type": "integer"}]});
        let made = world.change("POST", "/api/v1/streams", &definition).await;
        assert_eq!(made.status, 201, "{}", made.body);
        let elements: Vec<Value> = (0..5)
            .map(|at| {
                let time = format!("2026-01-01T00:0{at}:00Z");
                json!({"source_time": time, "temperature": 20.0 + f64::from(at), "people": at})
            })
            .collect();
        let path = "/api/v1/streams/lab.room/elements";
        let credential = format!("Bearer {}", world.token);
        let fields = [
            ("Authorization", credential.as_str()),
            ("Content-Type", "application/json"),
        ];
        let body = json!(elements).to_string();
        let written = send(&world.node, "POST", path, &fields, body.as_bytes()).await;
        assert_eq!(written.status, 200, "{}", written.body);

        let datastream = world.entity("Datastreams('lab.room:temperature')").await;
        assert_eq!(datastream["observationType"], MEASUREMENT);
        let unit = &datastream["unitOfMeasurement"];
        assert_eq!(unit["symbol"], "°C");
        assert_eq!(
            unit["definition"],
            "http://www.opengis.net/def/uom/UCUM/0/Cel"
        );
        let period = datastream["phenomenonTime"].as_str().unwrap();
        assert!(period.starts_with("2026-01-01T00:00:00Z/"), "{period}");
        let property = world
            .entity("Datastreams('lab.room:temperature')/ObservedProperty")
            .await;
        assert_eq!(property["definition"], "urn:p:t");
        let thing = world.entity("Datastreams('lab.room:people')/Thing").await;
        assert_eq!(thing["@iot.id"], "urn:chappe:stream:lab.room");
        assert_eq!(thing["description"], "Room 7");
        let of_thing = "Things('urn:chappe:stream:lab.room')/Datastreams";
        assert_eq!(
            world.each(of_thing, "@iot.id").await,
            ["lab.room:people", "lab.room:temperature"]
        );

        let observations = "Datastreams('lab.room:people')/Observations";
        for (query, results) in [
            ("", &[0, 1, 2, 3, 4][..]),
            ("?$orderby=phenomenonTime desc&$top=2", &[4, 3]),
            ("?$orderby=resultTime asc&$skip=3", &[3, 4]),
            (
                "?$filter=phenomenonTime gt 2026-01-01T00:01:00Z and result lt 4",
                &[2, 3],
            ),
            (
                "?$filter=resultTime le 2026-01-01T00:01:00Z&$orderby=phenomenonTime desc",
                &[1, 0],
            ),
            ("?$orderby=result desc&$top=1&$skip=1", &[3]),
            ("?$filter=result mod 2 eq 0&$skip=1", &[2, 4]),
            (
                "?$filter=Datastream/Thing/description eq 'Room 7' and result eq 1",
                &[1],
            ),
        ] {
            assert_eq!(
                world
                    .each(&format!("{observations}{query}"), "result")
                    .await,
                results,
                "{query}"
            );
        }
        let all = world
            .entity("Observations?$filter=Datastream/id eq 'lab.room:people'&$count=true")
            .await;
        assert_eq!(all["@iot.count"], 5);
        let id = all["value"][3]["@iot.id"].as_str().unwrap();
        let one = world
            .entity(&format!(
                "Observations('{id}')?$expand=Datastream,FeatureOfInterest"
            ))
            .await;
        assert_eq!(
            (&one["result"], &one["phenomenonTime"]),
            (&json!(3), &json!("2026-01-01T00:03:00Z"))
        );
        assert_eq!(one["Datastream"]["@iot.id"], "lab.room:people");
        assert_eq!(
            one["FeatureOfInterest"]["@iot.id"],
            "urn:chappe:stream:lab.room"
        );
        let counted = world
            .entity(&format!("{observations}?$count=true&$top=0"))
            .await;
        assert_eq!(counted["@iot.count"], 5);
        // Written here, too, because clients write the stream.
        let made = json!({"result": 9, "phenomenonTime": "2026-01-01T00:09:00Z"});
        world.make(observations, &made).await;
        let newest = format!("{observations}?$orderby=phenomenonTime desc&$top=1");
        assert_eq!(world.each(&newest, "result").await, [9]);
    });
}

#[test]
fn a_thing_is_created_with_its_places_and_datastreams_and_outlives_the_node() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let thing = world.make("Things", &room()).await;
        let expanded = format!(
            "Things('{thing}')?$expand=Locations,HistoricalLocations,Datastreams($expand=Sensor,ObservedProperty)"
        );
        let before = world.entity(&expanded).await;
        assert_eq!(before["properties"], json!({"floor": 2}));
        assert_eq!(before["Locations"][0]["name"], "here");
        assert_eq!(before["HistoricalLocations"].as_array().unwrap().len(), 1);
        let datastream = &before["Datastreams"][0];
        assert_eq!(datastream["Sensor"]["name"], "DHT22");
        assert_eq!(datastream["ObservedProperty"]["name"], "temperature");
        let id = datastream["@iot.id"].as_str().unwrap().to_owned();
        // The stream has the unit as a UCUM code.
        let stream = id.strip_suffix(":result").unwrap();
        let fields = get(&world.node, &format!("/api/v1/streams/{stream}"))
            .await
            .json();
        assert_eq!(fields["fields"][0]["unit"], "Cel");
        assert_eq!(
            fields["fields"][0]["observed_property"],
            "https://qudt.org/vocab/quantitykind/Temperature"
        );

        let observations = format!("Datastreams('{id}')/Observations");
        let body = json!({
            "phenomenonTime": "2026-01-01T00:00:00Z/2026-01-01T01:00:00Z", "result": 21.5,
            "resultTime": "2026-01-01T01:00:10Z", "validTime": "2026-01-01T00:00:00Z/2026-02-01T00:00:00Z",
            "resultQuality": "good", "parameters": {"by": "ada"},
        });
        let observation = world.make(&observations, &body).await;
        world
            .make(
                "Observations",
                &json!({"result": 22, "Datastream": {"@iot.id": id}}),
            )
            .await;
        let one = world
            .entity(&format!("Observations('{observation}')"))
            .await;
        for (name, value) in body.as_object().unwrap() {
            assert_eq!(&one[name], value, "{name}");
        }
        // It is where the thing was.
        let feature = world
            .entity(&format!("Observations('{observation}')/FeatureOfInterest"))
            .await;
        assert_eq!(feature["feature"]["coordinates"], json!([8.4, 49.0]));
        let there = format!(
            "FeaturesOfInterest('{}')/Observations?$count=true",
            feature["@iot.id"].as_str().unwrap()
        );
        assert_eq!(world.entity(&there).await["@iot.count"], 2);

        let (token, path) = (world.token.clone(), expanded.clone());
        world.node.shutdown().await.unwrap();
        let world = Operated::start(&config(directory.path()), Some(token)).await;
        let after = world.entity(&path).await;
        for pointer in [
            "/properties",
            "/Locations/0/location",
            "/HistoricalLocations/0/time",
            "/Datastreams/0/@iot.id",
            "/Datastreams/0/unitOfMeasurement",
            "/Datastreams/0/Sensor/metadata",
        ] {
            let (here, known) = (after.pointer(pointer), before.pointer(pointer));
            assert!(here.is_some() && here == known, "{pointer}: {after}");
        }
        assert_eq!(
            world.each(&observations, "result").await,
            [json!(21.5), json!(22.0)]
        );
    });
}

#[test]
fn results_have_the_type_of_their_datastream() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let thing = world
            .make("Things", &json!({"name": "t", "description": ""}))
            .await;
        let om = "http://www.opengis.net/def/observationType/OGC-OM/2.0/OM_";
        for (kind, good, bad) in [
            ("Measurement", json!(1.5), json!("warm")),
            ("CountObservation", json!(3), json!(1.5)),
            ("TruthObservation", json!(true), json!(1)),
            ("CategoryObservation", json!("urn:a"), json!(1)),
            ("Observation", json!({"a": [1, "b"]}), Value::Null),
        ] {
            let body = datastream(kind, &format!("{om}{kind}"));
            let id = world
                .make(&format!("Things('{thing}')/Datastreams"), &body)
                .await;
            let path = format!("Datastreams('{id}')/Observations");
            world.make(&path, &json!({"result": good})).await;
            if !bad.is_null() {
                assert_eq!(
                    world.refused("POST", &path, &json!({"result": bad})).await,
                    400,
                    "{kind}"
                );
            }
            assert_eq!(world.each(&path, "result").await, [good]);
        }
        let own = format!("$filter=Datastream/Thing/id eq '{thing}'");
        let count = world
            .entity(&format!("Observations?$count=true&{own}"))
            .await;
        assert_eq!(count["@iot.count"], 5);
        // All of them, page by page.
        let mut path = format!("Observations?$top=2&$orderby=phenomenonTime desc&{own}");
        let mut seen = 0;
        loop {
            let page = world.entity(&path).await;
            seen += page["value"].as_array().unwrap().len();
            match page["@iot.nextLink"].as_str() {
                Some(next) => path = next.split_once("/v1.1/").unwrap().1.to_owned(),
                None => break,
            }
        }
        assert_eq!(seen, 5);
    });
}

#[test]
fn observations_are_created_as_data_arrays() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let thing = world
            .make("Things", &json!({"name": "t", "description": ""}))
            .await;
        let path = format!("Things('{thing}')/Datastreams");
        let one = world.make(&path, &datastream("one", MEASUREMENT)).await;
        let other = world.make(&path, &datastream("other", ANY)).await;
        let body = json!([
            {"Datastream": {"@iot.id": one}, "components": ["phenomenonTime", "result"],
                "dataArray": [["2026-01-01T00:00:00Z", 1], ["2026-01-01T00:01:00Z", "warm"], ["2026-01-01T00:02:00Z", 2]]},
            {"Datastream": {"@iot.id": other}, "components": ["result"], "dataArray": [[{"a": 1}]]},
            {"Datastream": {"@iot.id": "nothing"}, "components": ["result"], "dataArray": [[1]]},
        ]);
        let made = world
            .change("POST", &format!("{ROOT}/CreateObservations"), &body)
            .await;
        assert_eq!(made.status, 201, "{}", made.body);
        let answers = made.json();
        let is_error: Vec<bool> = answers
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it.as_str().unwrap().starts_with("error"))
            .collect();
        assert_eq!(is_error, [false, true, false, false, true]);
        let address = answers[2].as_str().unwrap().split_once("/v1.1/").unwrap().1;
        assert_eq!(world.entity(address).await["result"], 2.0);
        let arrays = world
            .entity(&format!(
                "Datastreams('{one}')/Observations?$resultFormat=dataArray&$select=result"
            ))
            .await;
        assert_eq!(arrays["value"][0]["dataArray"], json!([[1.0], [2.0]]));
    });
}

#[test]
fn a_group_that_is_more_than_the_log_takes_at_once_is_stored_and_each_observation_is_answered() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.http.max_body_bytes = 16 << 20;
        let world = Operated::start(&config, None).await;
        let thing = world
            .make("Things", &json!({"name": "t", "description": ""}))
            .await;
        let path = format!("Things('{thing}')/Datastreams");
        let one = world.make(&path, &datastream("one", MEASUREMENT)).await;
        let other = world.make(&path, &datastream("other", ANY)).await;
        // More than the log takes as one batch, and one result that is more than a record has.
        let mut rows: Vec<Value> = (0..8)
            .map(|at| json!([format!("{at}{}", "x".repeat(900_000))]))
            .collect();
        rows.insert(3, json!(["y".repeat(5_000_000)]));
        let body = json!([
            {"Datastream": {"@iot.id": one}, "components": ["result"], "dataArray": [[1], [2]]},
            {"Datastream": {"@iot.id": other}, "components": ["result"], "dataArray": rows},
        ]);
        let create = format!("{ROOT}/CreateObservations");
        let made = world.change("POST", &create, &body).await;
        assert_eq!(made.status, 201, "{}", made.body);
        let answers = made.json();
        let answers: Vec<&str> = answers
            .as_array()
            .unwrap()
            .iter()
            .map(|it| it.as_str().unwrap())
            .collect();
        let errors: Vec<usize> = (0..answers.len())
            .filter(|at| answers[*at].starts_with("error: "))
            .collect();
        assert_eq!((answers.len(), errors), (11, vec![5]), "{}", answers[5]);
        for (at, first) in [(2, '0'), (6, '3'), (10, '7')] {
            let address = answers[at].split_once("/v1.1/").unwrap().1;
            let result = world.entity(address).await["result"].clone();
            assert!(result.as_str().unwrap().starts_with(first), "{at}");
        }
        // Nothing of this can be stored, so that the request as a whole is refused.
        let body = json!([{"Datastream": {"@iot.id": other}, "components": ["result"], "dataArray": [["y".repeat(5_000_000)]]}]);
        let made = world.change("POST", &create, &body).await;
        assert_eq!(made.status, 413, "{}", made.body);
    });
}

#[test]
fn created_entities_are_changed_and_removed_with_what_depends_on_them() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let thing = world.make("Things", &room()).await;
        let path = format!("Things('{thing}')");
        let patch = json!({"name": "room 8", "properties": {"floor": 3}});
        assert_eq!(world.refused("PATCH", &path, &patch).await, 200);
        let changed = world.entity(&path).await;
        assert_eq!(
            (&changed["name"], &changed["properties"]["floor"]),
            (&json!("room 8"), &json!(3))
        );
        assert_eq!(changed["description"], "a room");
        // It moves.
        let place = json!({"name": "there", "description": "", "encodingType": "application/geo+json",
            "location": {"type": "Point", "coordinates": [8.5, 49.1]}});
        let location = world.make("Locations", &place).await;
        let moved = json!({"Locations": [{"@iot.id": location}]});
        assert_eq!(world.refused("PATCH", &path, &moved).await, 200);
        assert_eq!(
            world.each(&format!("{path}/Locations"), "name").await,
            ["there"]
        );
        assert_eq!(
            world
                .each(&format!("{path}/HistoricalLocations"), "time")
                .await
                .len(),
            2
        );
        assert_eq!(
            world
                .each(&format!("Locations('{location}')/Things"), "name")
                .await,
            ["room 8"]
        );
        let id = world.each(&format!("{path}/Datastreams"), "@iot.id").await[0]
            .as_str()
            .unwrap()
            .to_owned();
        let observation = world
            .make(
                &format!("Datastreams('{id}')/Observations"),
                &json!({"result": 1}),
            )
            .await;
        for (method, path, body, status) in [
            (
                "PATCH",
                format!("Observations('{observation}')"),
                json!({"result": 2}),
                501,
            ),
            (
                "DELETE",
                format!("Observations('{observation}')"),
                json!({}),
                501,
            ),
            (
                "PATCH",
                format!("Datastreams('{id}')"),
                json!({"observationType": ANY}),
                501,
            ),
            ("PATCH", path.clone(), json!({"nothing": 1}), 400),
            ("PATCH", path.clone(), json!({"name": null}), 400),
            ("DELETE", "Things".to_owned(), json!({}), 405),
            ("DELETE", "Things('nothing')".to_owned(), json!({}), 404),
            ("PUT", path.clone(), json!({}), 405),
            ("POST", "Things".to_owned(), json!({"name": "a"}), 400),
            (
                "POST",
                "Datastreams".to_owned(),
                datastream("a", MEASUREMENT),
                400,
            ),
            (
                "POST",
                "Datastreams('nothing')/Observations".to_owned(),
                json!({"result": 1}),
                404,
            ),
        ] {
            assert_eq!(
                world.refused(method, &path, &body).await,
                status,
                "{method} {path}"
            );
        }
        assert_eq!(world.refused("DELETE", &path, &json!({})).await, 200);
        for gone in [
            path,
            format!("Datastreams('{id}')"),
            format!("Observations('{observation}')"),
        ] {
            assert_eq!(world.read(&gone).await.status, 404, "{gone}");
        }
        assert!(world.each("HistoricalLocations", "time").await.is_empty());
        assert_eq!(world.each("Locations", "name").await.len(), 2);
    });
}

#[test]
fn an_account_sees_and_writes_only_what_it_may() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.access.read = chappe_node::config::Read::Token;
        let world = Operated::start(&config, None).await;
        let thing = world.make("Things", &room()).await;
        let own = "Datastreams?$filter=Thing/name eq 'room 7'";
        let id = world.each(own, "@iot.id").await;
        let id = id[0].as_str().unwrap().to_owned();
        let observations = format!("Datastreams('{id}')/Observations");
        world.make(&observations, &json!({"result": 1})).await;
        let stream = id.strip_suffix(":result").unwrap().to_owned();
        let reader = world.account("reader", &[&format!("read={stream}")]).await;
        let other = world
            .account("other", &["read=ward.*", "write=ward.*"])
            .await;
        let count = |answer: Answer| answer.json()["@iot.count"].clone();
        let path = "Observations?$count=true";
        assert_eq!(count(world.read_as(&reader, path).await), 1);
        assert_eq!(count(world.read_as(&other, path).await), 0);
        let all = world.read_as(&other, "Datastreams?$count=true").await;
        assert_eq!(count(all), 0);
        for path in [
            format!("Things('{thing}')"),
            format!("Datastreams('{id}')"),
            observations.clone(),
        ] {
            assert_eq!(world.read_as(&other, &path).await.status, 404, "{path}");
        }
        // What was created for the whole node is not that of a stream.
        assert_eq!(
            world
                .read_as(&reader, &format!("Datastreams('{id}')/Thing"))
                .await
                .status,
            404
        );
        for (path, body, status) in [
            ("Things".to_owned(), room(), 403),
            (observations, json!({"result": 1}), 404),
        ] {
            let credential = format!("Bearer {other}");
            let fields = [("Authorization", credential.as_str())];
            let path = format!("{ROOT}/{path}");
            let answer = send(
                &world.node,
                "POST",
                &path,
                &fields,
                body.to_string().as_bytes(),
            )
            .await;
            assert_eq!(answer.status, status, "{path}: {}", answer.body);
        }
        assert_eq!(
            get(&world.node, &format!("{ROOT}/Things")).await.status,
            401
        );
    });
}

#[test]
fn things_are_moved_and_get_datastreams_by_accounts_that_may_change_them() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let ada = world.account("ada", &["write"]).await;
        let eve = world.account("eve", &["write"]).await;
        let ask = async |token: &str, method: &str, path: &str, body: &Value| {
            let credential = format!("Bearer {token}");
            let fields = [("Authorization", credential.as_str())];
            let path = format!("{ROOT}/{path}");
            send(
                &world.node,
                method,
                &path,
                &fields,
                body.to_string().as_bytes(),
            )
            .await
        };
        let id_of = |answer: &Answer| {
            assert_eq!(answer.status, 201, "{}", answer.body);
            let (_, id) = answer.headers["location"].split_once("('").unwrap();
            id.strip_suffix("')").unwrap().to_owned()
        };
        let mut plain = room();
        plain.as_object_mut().unwrap().remove("Datastreams");
        let thing = id_of(&ask(&ada, "POST", "Things", &plain).await);
        let mut place = json!({"name": "there", "description": "",
            "encodingType": "application/geo+json",
            "location": {"type": "Point", "coordinates": [8.5, 49.1]}});
        let location = id_of(&ask(&eve, "POST", "Locations", &place).await);
        let own = format!("Things('{thing}')");
        let below = format!("{own}/Locations");
        let moved = json!({"Locations": [{"@iot.id": location}]});
        let history = |time: &str| json!({"time": time, "Thing": {"@iot.id": thing}, "Locations": [{"@iot.id": location}]});
        let (past, future) = (
            history("2020-01-01T00:00:00Z"),
            history("2200-01-01T00:00:00Z"),
        );
        let unlinked = place.clone();
        place["Things"] = json!([{"@iot.id": thing}]);
        let mut hung = datastream("air", MEASUREMENT);
        hung["Thing"] = json!({"@iot.id": thing});
        for (method, path, body, of_owner) in [
            ("PATCH", own.as_str(), &moved, 200),
            ("POST", below.as_str(), &unlinked, 201),
            ("POST", "Locations", &place, 201),
            ("POST", "HistoricalLocations", &past, 201),
            ("POST", "HistoricalLocations", &future, 400),
            ("POST", "Datastreams", &hung, 201),
        ] {
            let before = world.each("Locations", "@iot.id").await;
            let answer = ask(&eve, method, path, body).await;
            assert_eq!(answer.status, 409, "{method} {path}: {}", answer.body);
            assert_eq!(world.each("Locations", "@iot.id").await, before);
            let answer = ask(&ada, method, path, body).await;
            assert_eq!(answer.status, of_owner, "{method} {path}: {}", answer.body);
        }
        // The owner may remove a history that an administrator added; other writers may not.
        let added = world.make("HistoricalLocations", &past).await;
        let added = format!("HistoricalLocations('{added}')");
        assert_eq!(ask(&eve, "DELETE", &added, &json!({})).await.status, 409);
        assert_eq!(ask(&ada, "DELETE", &added, &json!({})).await.status, 200);
        // A stream's source has no owner.
        let source = json!({"name": "s", "fields": [{"name": "v", "type": "double"}]});
        let made = world.change("POST", "/api/v1/streams", &source).await;
        assert_eq!(made.status, 201, "{}", made.body);
        let source = world.entity("Datastreams('s:v')/Thing").await["@iot.id"].clone();
        let source = source.as_str().unwrap();
        let path = format!("Things('{}')", source.replace('%', "%25"));
        assert_eq!(ask(&ada, "PATCH", &path, &moved).await.status, 403);
        assert_eq!(world.refused("PATCH", &path, &moved).await, 200);
    });
}

#[test]
fn a_datastream_whose_entity_is_hidden_is_shown_as_its_stream() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        let eve = world.account("eve", &["read"]).await;
        let mut hidden = room();
        hidden["Datastreams"][0]["properties"] = json!({"ward": "seven"});
        world.make("Things", &hidden).await;
        let own = "Datastreams?$filter=name eq 'air'";
        let id = world.each(own, "@iot.id").await[0].clone();
        let path = format!("Datastreams('{}')", id.as_str().unwrap());
        let shown = world.read_as(&eve, &path).await.json();
        assert_eq!(
            (&shown["name"], &shown["properties"]["ward"]),
            (&json!("air"), &json!("seven"))
        );
        let key = id.as_str().unwrap();
        let rights = format!("/api/v1/entities/urn:chappe:sensorthings:Datastream:{key}/rights");
        let set = world.change("PUT", &rights, &json!({"read": []})).await;
        assert_eq!(set.status, 200, "{}", set.body);
        let shown = world.read_as(&eve, &path).await.json();
        assert_eq!(shown["@iot.id"], id);
        assert_ne!(shown["name"], "air");
        assert!(shown["properties"]["ward"].is_null(), "{shown}");
        assert_eq!(world.entity(&path).await["name"], "air");
    });
}

#[test]
fn malformed_requests_are_refused_with_a_reason() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let world = Operated::start(&config(directory.path()), None).await;
        for (path, status) in [
            ("Nothing", 404),
            ("Things('a')", 404),
            ("Things?$nothing=1", 400),
            ("Things?$filter=name eq", 400),
            ("Things?$filter=roof eq 1", 400),
            ("Things?$expand=Roofs", 400),
            ("Locations?$filter=geo.length(location) gt 1", 501),
            ("Observations?$skiptoken=abc", 400),
            ("Observations?$orderby=phenomenonTime&$skiptoken=n1", 400),
            ("Observations?$skip=9999999&$orderby=result", 400),
            ("Things(a)", 400),
            ("Things?$filter=%", 400),
        ] {
            let answer = world.read(path).await;
            assert_eq!(answer.status, status, "{path}: {}", answer.body);
            assert!(answer.json()["detail"].is_string());
        }
    });
}

/// Results of a stream with elements out of order and of equal times, by windows of time of every width.
#[test]
fn observations_are_in_the_order_of_time_whatever_the_order_of_their_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let times: Vec<i64> = (0..3_000_i64)
        .map(|at| at.wrapping_mul(7_919).rem_euclid(1_000) * 1_000_000 + (at / 1_000) * 3_000_000)
        .collect();
    prepare_log(directory.path(), |store| {
        let schema = schema(&[("v", FieldType::Integer)]);
        let stream = store
            .stream("s", Level::Process, &schema, Some("urn:a"))
            .unwrap();
        let elements = times.iter().zip(0..);
        let elements: Vec<_> = elements
            .map(|(time, at)| element(*time, vec![Of::Integer(at)]))
            .collect();
        stream.append(&elements).unwrap().wait().unwrap();
    });
    block(async {
        let token = std::fs::read_to_string(directory.path().join("data/new-token")).unwrap();
        let token = Some(token.trim().to_owned());
        let world = Operated::start(&config(directory.path()), token).await;
        for direction in ["asc", "desc"] {
            let mut order: Vec<(i64, i64)> = times.iter().copied().zip(0..).collect();
            order.sort_unstable();
            if direction == "desc" {
                order.reverse();
            }
            let mut path = format!(
                "Datastreams('s:v')/Observations?$top=700&$orderby=phenomenonTime {direction}"
            );
            let mut seen = Vec::new();
            loop {
                let page = world.entity(&path).await;
                let results = page["value"].as_array().unwrap().iter();
                seen.extend(results.map(|it| it["result"].as_i64().unwrap()));
                match page["@iot.nextLink"].as_str() {
                    Some(next) => path = next.split_once("/v1.1/").unwrap().1.to_owned(),
                    None => break,
                }
            }
            let wanted: Vec<i64> = order.iter().map(|(_, at)| *at).collect();
            assert!(seen == wanted, "{direction}");
            let skipped = format!(
                "Datastreams('s:v')/Observations?$top=5&$skip=1500&$orderby=phenomenonTime {direction}"
            );
            let skipped = world.each(&skipped, "result").await;
            assert_eq!(
                skipped,
                wanted[1500..1505]
                    .iter()
                    .map(|at| json!(at))
                    .collect::<Vec<_>>()
            );
        }
    });
}
