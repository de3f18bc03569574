//! Goal: a client defines a stream and writes it in every format; each bad line is refused with its
//! reason and the others are stored, or none; what is sent again is stored once, also after a restart of
//! the node; a client that sends too much gets 429 with `Retry-After`.
//! Method: a node in this process, driven over real HTTP; tables of bodies and answers.

use crate::common::{Answer, Operated, block, config, get, send};
use serde_json::{Value, json};

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";
const CSV: &str = "text/csv";

fn definition() -> Value {
    json!({
        "name": "lab.room", "title": "Room 7", "level": "power",
        "fields": [
            {"name": "temperature", "type": "double", "unit": "Cel"},
            {"name": "people", "type": "integer"},
            {"name": "note", "type": "text"},
        ],
    })
}

/// A node with the stream of [`definition`].
async fn with_stream(directory: &std::path::Path) -> Operated {
    let operated = Operated::start(&config(directory), None).await;
    let created = operated
        .change("POST", "/api/v1/streams", &definition())
        .await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_eq!(created.headers["location"], "/api/v1/streams/lab.room");
    operated
}

/// Writes a body; `query` follows the path.
async fn write(
    operated: &Operated,
    query: &str,
    kind: &str,
    fields: &[(&str, &str)],
    body: &str,
) -> Answer {
    let credential = format!("Bearer {}", operated.token);
    let mut all = vec![
        ("Authorization", credential.as_str()),
        ("Content-Type", kind),
    ];
    all.extend(fields);
    let path = format!("/api/v1/streams/lab.room/elements{query}");
    send(&operated.node, "POST", &path, &all, body.as_bytes()).await
}

/// The values of a field of all stored elements.
async fn stored(operated: &Operated, field: &str) -> Vec<Value> {
    let path = "/api/v1/streams/lab.room/elements?after=0:0&limit=10000";
    let answer = get(&operated.node, path).await.json();
    let elements = answer["elements"].as_array().unwrap();
    elements
        .iter()
        .map(|it| it["values"][field].clone())
        .collect()
}

fn counts(answer: &Answer) -> (u64, u64, u64) {
    let json = answer.json();
    let count = |name: &str| json[name].as_u64().unwrap_or_else(|| panic!("{answer:?}"));
    (count("stored"), count("duplicates"), count("refused"))
}

#[test]
fn a_definition_can_be_repeated_and_another_one_is_refused_with_the_difference() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let operated = with_stream(directory.path()).await;
        let again = operated
            .change("POST", "/api/v1/streams", &definition())
            .await;
        assert_eq!(again.status, 200, "{again:?}");
        assert_eq!(again.json()["source"], "urn:chappe:clients");
        let entity = "/api/v1/entities/urn%3Achappe%3Astream%3Alab.room";
        let owner = get(&operated.node, entity).await.json()["owner"].clone();
        assert_eq!(owner, "operator");
        let mut namesake = definition();
        namesake["name"] = json!("lab_room");
        let refused = operated.change("POST", "/api/v1/streams", &namesake).await;
        assert_eq!(refused.status, 409, "{refused:?}");
        assert!(refused.body.contains("same name in SQL"), "{refused:?}");
        let table = [
            (
                "/title",
                json!("Room 8"),
                "title is \"Room 7\", not \"Room 8\"",
            ),
            ("/level", json!("memory"), "level is power, not memory"),
            ("/key", json!("bed"), "key is absent, not \"bed\""),
            (
                "/fields/0/unit",
                json!("K"),
                "the unit of field temperature is \"Cel\", not \"K\"",
            ),
            (
                "/fields/1/type",
                json!("double"),
                "the type of field people is integer, not double",
            ),
            (
                "/fields/2/name",
                json!("text"),
                "the list of fields is temperature, people, note",
            ),
        ];
        let mut operated = operated;
        for round in 0..2 {
            for (pointer, value, reason) in &table {
                let mut other = definition();
                match other.pointer_mut(pointer) {
                    Some(member) => *member = value.clone(),
                    None => other["key"] = value.clone(),
                }
                let answer = operated.change("POST", "/api/v1/streams", &other).await;
                assert_eq!(answer.status, 409, "{answer:?}");
                assert!(
                    answer.body.contains(&reason.replace('"', "\\\"")),
                    "{reason}: {answer:?}"
                );
            }
            if round == 0 {
                // The title and the definition survive a restart.
                operated.node.shutdown().await.unwrap();
                let config = config(directory.path());
                operated = Operated::start(&config, Some(operated.token)).await;
                let again = operated
                    .change("POST", "/api/v1/streams", &definition())
                    .await;
                assert_eq!(again.status, 200, "{again:?}");
            }
        }
        let stranger = send(&operated.node, "POST", "/api/v1/streams", &[], b"{}").await;
        assert_eq!(stranger.status, 401);
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn definitions_that_are_none_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let operated = Operated::start(&config(directory.path()), None).await;
        let table = [
            ("/name", json!("Lab"), 422, "is not a stream name"),
            (
                "/name",
                json!("chappe_audit"),
                422,
                "the node's own streams",
            ),
            (
                "/fields/0/unit",
                json!("celsius"),
                422,
                "is not a UCUM unit",
            ),
            (
                "/fields/2/unit",
                json!("m"),
                422,
                "only numbers have a unit",
            ),
            ("/fields/1/name", json!("temperature"), 422, "occurs twice"),
            (
                "/fields/1/name",
                json!("key"),
                422,
                "every stream has the columns",
            ),
            ("/fields/1/type", json!("float"), 400, "unknown variant"),
            ("/level", json!("always"), 400, "unknown variant"),
            ("/fields", json!([]), 422, "1 to 256 fields"),
        ];
        for (pointer, value, status, reason) in table {
            let mut wrong = definition();
            let (parent, member) = pointer.rsplit_once('/').unwrap();
            let parent = wrong.pointer_mut(parent).unwrap();
            parent[member] = value;
            let answer = operated.change("POST", "/api/v1/streams", &wrong).await;
            assert_eq!(answer.status, status, "{answer:?}");
            assert!(answer.body.contains(reason), "{reason}: {answer:?}");
        }
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn every_format_is_stored_and_the_answer_names_the_positions() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let operated = with_stream(directory.path()).await;
        let at = "2026-11-21T10:00:00Z";
        let table = [
            (
                JSON,
                format!(r#"{{"temperature": 1, "source_time": "{at}"}}"#),
                1,
            ),
            (
                JSON,
                r#"[{"temperature": 2.5, "people": 3}, {"note": "a"}]"#.to_owned(),
                2,
            ),
            (
                LINES,
                "{\"temperature\": 4}\n\n{\"temperature\": 5}\n".to_owned(),
                2,
            ),
            (
                CSV,
                format!("source_time,temperature,note\n{at},6,\"x,y\"\n,7,\n"),
                2,
            ),
            (CSV, "temperature\n".to_owned(), 0),
            (JSON, "[]".to_owned(), 0),
        ];
        let mut next = 1;
        for (kind, body, count) in table {
            let answer = write(&operated, "", kind, &[], &body).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let json = answer.json();
            assert_eq!(counts(&answer), (count, 0, 0), "{body}");
            assert_eq!(
                (&json["level"], &json["complete"]),
                (&json!("power"), &json!(true))
            );
            if count > 0 {
                let range = &json["positions"][0];
                let number = |name: &str| {
                    let text = range[name].as_str().unwrap();
                    text.split_once(':').unwrap().1.parse::<u64>().unwrap()
                };
                assert_eq!((number("first"), number("last")), (next, next + count - 1));
                next += count;
            }
        }
        let temperatures = stored(&operated, "temperature").await;
        assert_eq!(
            json!(temperatures),
            json!([1.0, 2.5, null, 4.0, 5.0, 6.0, 7.0])
        );
        let path =
            "/api/v1/streams/lab.room/elements?from=2026-11-21T10:00:00Z&to=2026-11-21T10:00:01Z";
        let found = get(&operated.node, path).await.json();
        assert_eq!(found["elements"].as_array().unwrap().len(), 2);
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn bad_lines_are_refused_each_with_its_reason_and_the_rest_is_stored_or_nothing() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let operated = with_stream(directory.path()).await;
        let body = "{\"temperature\": 1}\n{\"temperature\": \"warm\"}\n{\"humidity\": 1}\n\
            {\"temperature\": NaN}\n{\"temperature\": 2, \"source_time\": \"2199-01-01T00:00:00Z\"}\n\
            {\"people\": 1.5}\n{\"people\": 1, \"people\": 2}\n{}\n{\"temperature\": 3}\n";
        let answer = write(&operated, "?atomic=true", LINES, &[], body).await;
        assert_eq!(answer.status, 422, "{answer:?}");
        assert_eq!(counts(&answer), (0, 0, 7));
        assert!(stored(&operated, "temperature").await.is_empty());
        let answer = write(&operated, "", LINES, &[], body).await;
        assert_eq!(answer.status, 207, "{answer:?}");
        assert_eq!(counts(&answer), (2, 0, 7));
        let reasons = answer.json()["refusals"].as_array().unwrap().clone();
        let wanted = [
            (2, "type double"),
            (3, "unknown field \"humidity\""),
            (4, "not JSON"),
            (5, "ahead of this node's clock"),
            (6, "type integer"),
            (7, "occurs twice"),
            (8, "no value"),
        ];
        for (refusal, (line, reason)) in reasons.iter().zip(wanted) {
            assert_eq!(refusal["line"], line);
            assert!(
                refusal["reason"].as_str().unwrap().contains(reason),
                "{refusal}"
            );
        }
        assert_eq!(
            json!(stored(&operated, "temperature").await),
            json!([1.0, 3.0])
        );
        let answer = write(&operated, "?atomic=true", LINES, &[], "{\"people\": 1}\n").await;
        assert_eq!((answer.status, counts(&answer)), (200, (1, 0, 0)));
        let drops = get(&operated.node, "/api/v1/drops").await.body;
        assert!(drops.contains("refused line"), "{drops}");
        let completeness = get(&operated.node, "/api/v1/streams/lab.room/completeness").await;
        let refused = &completeness.json()["refused"]["refused_line"];
        assert_eq!(refused["elements"], 14, "{}", completeness.body);
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_body_that_loses_its_structure_is_stored_up_to_that_point() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let operated = with_stream(directory.path()).await;
        let table = [
            (
                JSON,
                r#"[{"people": 1}, {"people": 2"#,
                207,
                1,
                "ends within its array",
            ),
            (JSON, "", 422, 0, "the body is empty"),
            (CSV, "humidity\n1\n", 422, 0, "the header: unknown field"),
            (CSV, "people,people\n1,2\n", 422, 0, "occurs twice"),
        ];
        for (kind, body, status, count, reason) in table {
            let answer = write(&operated, "", kind, &[], body).await;
            assert_eq!(answer.status, status, "{answer:?}");
            assert_eq!(counts(&answer).0, count);
            assert_eq!(answer.json()["complete"], false);
            assert!(answer.body.contains(reason), "{answer:?}");
        }
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn requests_that_cannot_be_served_are_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.limits.write_bytes = 1_024;
        let operated = Operated::start(&config, None).await;
        operated
            .change("POST", "/api/v1/streams", &definition())
            .await;
        let node = "/api/v1/streams/none/elements";
        let unknown = operated.change("POST", node, &json!({})).await;
        assert_eq!(unknown.status, 404);
        let path = "/api/v1/streams/lab.room/elements";
        let stranger = send(
            &operated.node,
            "POST",
            path,
            &[("Content-Type", JSON)],
            b"{}",
        )
        .await;
        assert_eq!(stranger.status, 401);
        let body = "{\"people\": 1}\n";
        let long = body.repeat(200);
        let key = "k".repeat(256);
        /// Query, content type, header fields, body, status, and a part of the answer.
        type Refused<'a> = (
            &'a str,
            &'a str,
            Vec<(&'a str, &'a str)>,
            &'a str,
            u16,
            &'a str,
        );
        let table: [Refused<'_>; 9] = [
            ("", "text/plain", vec![], body, 415, "send application/json"),
            (
                "",
                LINES,
                vec![("Content-Encoding", "gzip")],
                body,
                415,
                "without compression",
            ),
            ("", LINES, vec![], &long, 413, "longer than 1024 bytes"),
            ("?producer=a", LINES, vec![], body, 400, "go together"),
            ("?first=1", LINES, vec![], body, 400, "go together"),
            ("?producer=a&first=0", LINES, vec![], body, 400, "from 1"),
            (
                "?producer=a&first=1",
                LINES,
                vec![("Idempotency-Key", "b")],
                body,
                400,
                "only one",
            ),
            ("", LINES, vec![("Idempotency-Key", &key)], body, 400, "255"),
            ("?atom=1", LINES, vec![], body, 400, "atom"),
        ];
        for (query, kind, fields, body, status, reason) in table {
            let answer = write(&operated, query, kind, &fields, body).await;
            assert_eq!(answer.status, status, "{answer:?}");
            assert!(answer.body.contains(reason), "{reason}: {answer:?}");
        }
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn an_atomic_body_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let operated = with_stream(directory.path()).await;
        let most = "{\"people\":1}\n".repeat(10_000);
        let answer = write(&operated, "?atomic=true", LINES, &[], &most).await;
        assert_eq!((answer.status, counts(&answer)), (200, (10_000, 0, 0)));
        let more = format!("{most}{{\"people\":1}}\n");
        let answer = write(&operated, "?atomic=true", LINES, &[], &more).await;
        assert_eq!(answer.status, 413, "{answer:?}");
        assert_eq!(stored(&operated, "people").await.len(), 10_000);
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn what_is_sent_again_is_stored_once_even_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut operated = with_stream(directory.path()).await;
        let lines = |numbers: std::ops::Range<u32>| {
            let line = |number| format!("{{\"people\": {number}}}\n");
            numbers.map(line).collect::<String>()
        };
        let first = write(&operated, "?producer=p&first=1", LINES, &[], &lines(1..4)).await;
        assert_eq!(counts(&first), (3, 0, 0));
        for restart in [false, true] {
            if restart {
                operated.node.shutdown().await.unwrap();
                operated = Operated::start(&config(directory.path()), Some(operated.token)).await;
            }
            // All of it again.
            let again = write(&operated, "?producer=p&first=1", LINES, &[], &lines(1..4)).await;
            assert_eq!(
                (again.status, counts(&again)),
                (200, (0, 3, 0)),
                "restart: {restart}"
            );
        }
        // Some of it again, then new.
        let more = write(&operated, "?producer=p&first=2", LINES, &[], &lines(2..6)).await;
        assert_eq!(counts(&more), (2, 2, 0));
        // A refused line uses up its number.
        let bad = "{\"people\": \"x\"}\n{\"people\": 7}\n";
        let partly = write(&operated, "?producer=p&first=6", LINES, &[], bad).await;
        assert_eq!((partly.status, counts(&partly)), (207, (1, 0, 1)));
        let again = write(&operated, "?producer=p&first=6", LINES, &[], bad).await;
        assert_eq!((again.status, counts(&again)), (207, (0, 1, 1)));
        // Another producer has numbers of its own, and a request without any is always stored.
        let other = write(&operated, "?producer=q&first=1", LINES, &[], &lines(8..9)).await;
        assert_eq!(counts(&other), (1, 0, 0));
        let without = write(&operated, "", LINES, &[], &lines(9..10)).await;
        assert_eq!(counts(&without), (1, 0, 0));
        for count in [(2, 0, 0), (0, 2, 0)] {
            let key = [("Idempotency-Key", "order 66")];
            let answer = write(&operated, "", LINES, &key, &lines(10..12)).await;
            assert_eq!(counts(&answer), count);
        }
        // What an atomic request did not store is stored when it is sent again without its fault.
        let atomic = "?producer=q&first=2&atomic=true";
        let bad = write(&operated, atomic, LINES, &[], "{\"people\": 12}\n{}\n").await;
        assert_eq!((bad.status, counts(&bad)), (422, (0, 0, 1)));
        let good = write(&operated, atomic, LINES, &[], &lines(12..14)).await;
        assert_eq!((good.status, counts(&good)), (200, (2, 0, 0)));
        let people = stored(&operated, "people").await;
        assert_eq!(
            json!(people),
            json!([1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13])
        );
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_stream_of_another_source_is_not_written_and_a_removed_one_starts_anew() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let operated = with_stream(directory.path()).await;
        let schema = chappe_stream::StreamSchema::default();
        let element = crate::common::elements::element(1, Vec::new());
        let own = operated.node.store("own", &schema, &[element]).await;
        own.unwrap();
        let path = "/api/v1/streams/own/elements";
        let credential = format!("Bearer {}", operated.token);
        let fields = [
            ("Authorization", credential.as_str()),
            ("Content-Type", JSON),
        ];
        let answer = send(&operated.node, "POST", path, &fields, b"{}").await;
        assert_eq!(answer.status, 409, "{answer:?}");
        let key = [("Idempotency-Key", "a")];
        let one = write(&operated, "", JSON, &key, "{\"people\": 1}").await;
        assert_eq!(counts(&one), (1, 0, 0));
        let path = "/api/v1/streams/lab.room?force=true";
        let removed = operated.change("DELETE", path, &Value::Null).await;
        assert_eq!(removed.status, 204, "{removed:?}");
        operated
            .change("POST", "/api/v1/streams", &definition())
            .await;
        let one = write(&operated, "", JSON, &key, "{\"people\": 1}").await;
        assert_eq!(counts(&one), (1, 0, 0), "another stream of the same name");
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn one_request_too_many_is_refused_with_retry_after() {
    use tokio::io::AsyncWriteExt;
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = config(directory.path());
        config.limits.writes = 1;
        let operated = Operated::start(&config, None).await;
        operated
            .change("POST", "/api/v1/streams", &definition())
            .await;
        let mut slow = tokio::net::TcpStream::connect(operated.node.address())
            .await
            .unwrap();
        let head = format!(
            "POST /api/v1/streams/lab.room/elements HTTP/1.1\r\nHost: {}\r\nContent-Type: {LINES}\r\n\
             Authorization: Bearer {}\r\nContent-Length: 1000\r\n\r\n{{",
            operated.node.address(),
            operated.token
        );
        slow.write_all(head.as_bytes()).await.unwrap();
        let refused = loop {
            let answer = write(&operated, "", JSON, &[], "{\"people\": 1}").await;
            if answer.status != 200 {
                break answer;
            }
        };
        assert_eq!(refused.status, 429, "{refused:?}");
        assert_eq!(refused.headers["retry-after"], "1");
        drop(slow);
        while write(&operated, "", JSON, &[], "{\"people\": 1}")
            .await
            .status
            != 200
        {}
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_long_body_is_stored_whole_and_in_order() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let operated = with_stream(directory.path()).await;
        let count = 9_000;
        let mut body = "people,note\n".to_owned();
        for number in 0..count {
            body.push_str(&format!("{number},\"{}\"\n", "n".repeat(number % 100)));
        }
        let answer = write(&operated, "?producer=long&first=1", CSV, &[], &body).await;
        assert_eq!(
            (answer.status, counts(&answer)),
            (200, (count as u64, 0, 0))
        );
        assert_eq!(answer.json()["positions"].as_array().unwrap().len(), 1);
        let people = stored(&operated, "people").await;
        assert_eq!(json!(people), json!((0..count).collect::<Vec<_>>()));
        let again = write(&operated, "?producer=long&first=1", CSV, &[], &body).await;
        assert_eq!((again.status, counts(&again)), (200, (0, count as u64, 0)));
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn values_are_read_in_other_units_over_rest_and_in_sql() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let operated = with_stream(directory.path()).await;
        write(
            &operated,
            "",
            JSON,
            &[],
            r#"{"temperature": 25, "people": 2}"#,
        )
        .await;
        let read = async |units: &str| {
            let path = format!("/api/v1/streams/lab.room/elements?newest=1&units={units}");
            get(&operated.node, &path).await
        };
        let values = read("temperature:K").await.json()["elements"][0]["values"].clone();
        assert_eq!(
            values,
            json!({"temperature": 298.15, "people": 2, "note": null})
        );
        for (units, reason) in [
            ("temperature", "is not FIELD:UNIT"),
            ("humidity:K", "has no field"),
            ("people:K", "has no unit"),
            ("temperature:K,temperature:Cel", "has two units"),
            ("temperature:Pa", "does not convert"),
            ("temperature:kelvin", "is not a UCUM unit"),
        ] {
            let answer = read(units).await;
            assert_eq!(answer.status, 400, "{answer:?}");
            assert!(answer.body.contains(reason), "{reason}: {answer:?}");
        }
        let query = async |sql: &str| {
            let body = json!({ "sql": sql });
            operated
                .change("POST", "/api/v1/streams/query", &body)
                .await
        };
        let table = [
            ("in_unit(temperature, 'K')", 298.15),
            ("in_unit(avg(temperature), 'Cel', 'K')", 298.15),
            ("avg(in_unit(r.temperature, '[degF]'))", 77.0),
        ];
        for (expression, wanted) in table {
            let answer = query(&format!("select {expression} from lab_room r")).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let found = answer.json()["rows"][0][0].as_f64().unwrap();
            assert!((found - wanted).abs() < 1e-9, "{expression}: {found}");
        }
        for (expression, reason) in [
            ("in_unit(people, 'K')", "has no unit"),
            ("in_unit(temperature, 'Pa')", "does not convert"),
            ("in_unit(temperature, 'kelvin')", "is not a UCUM unit"),
        ] {
            let answer = query(&format!("select {expression} from lab_room")).await;
            assert_eq!(answer.status, 400, "{answer:?}");
            assert!(answer.body.contains(reason), "{reason}: {answer:?}");
        }
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn entities_are_published_replaced_kept_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut operated = Operated::start(&config(directory.path()), None).await;
        let entity = json!({
            "key": "urn:example:pump-7", "kind": "device", "name": "Pump 7",
            "types": ["{urn:example}Pump"], "scopes": ["urn:example:hall"],
            "triples": [
                {"predicate": "urn:example:maker", "object": "Acme"},
                {"predicate": "urn:example:in", "object": "urn:example:hall", "object_kind": "iri"},
                {"predicate": "urn:example:power", "object": "5",
                 "datatype": "http://www.w3.org/2001/XMLSchema#integer"},
            ],
        });
        let path = "/api/v1/entities/urn%3Aexample%3Apump-7";
        for status in [201, 200] {
            let answer = operated.change("POST", "/api/v1/entities", &entity).await;
            assert_eq!(answer.status, status, "{answer:?}");
        }
        operated.node.shutdown().await.unwrap();
        operated = Operated::start(&config(directory.path()), Some(operated.token)).await;
        let kept = get(&operated.node, path).await.json();
        assert_eq!(
            (&kept["owner"], &kept["kind"]),
            (&json!("operator"), &json!("device"))
        );
        assert_eq!(kept["triples"].as_array().unwrap().len(), 3, "{kept}");
        let found = get(
            &operated.node,
            "/api/v1/entities?type=%7Burn%3Aexample%7DPump",
        )
        .await;
        assert_eq!(found.json()["entities"].as_array().unwrap().len(), 1);
        let table = [
            ("/key", json!("pump"), 422, "not an absolute IRI"),
            ("/key", json!("urn:chappe:stream:a"), 422, "node's own"),
            ("/key", json!("URN:Chappe:stream:a"), 422, "node's own"),
            ("/kind", json!("stream"), 422, "only the node itself"),
            ("/kind", json!("pump"), 400, "is not one of"),
            (
                "/triples/0/predicate",
                json!("maker"),
                422,
                "triple 1: predicate",
            ),
            ("/triples/1/object", json!("hall"), 422, "triple 2: object"),
            ("/name", json!("n".repeat(2_000)), 422, "longer than"),
        ];
        for (pointer, value, status, reason) in table {
            let mut wrong = entity.clone();
            *wrong.pointer_mut(pointer).unwrap() = value;
            let answer = operated.change("POST", "/api/v1/entities", &wrong).await;
            assert_eq!(answer.status, status, "{answer:?}");
            assert!(answer.body.contains(reason), "{reason}: {answer:?}");
        }
        let stranger = send(&operated.node, "POST", "/api/v1/entities", &[], b"{}").await;
        assert_eq!(stranger.status, 401);
        let own = format!(
            "/api/v1/entities/urn%3Achappe%3Anode%3A{}",
            operated.node.key()
        );
        for (path, status) in [(path, 204), (path, 404), (own.as_str(), 409)] {
            let answer = operated.change("DELETE", path, &Value::Null).await;
            assert_eq!(answer.status, status, "{answer:?}");
        }
        operated.node.shutdown().await.unwrap();
    });
}
