//! Goal: facets, surroundings and history of entities over REST, as far as the caller may see; pages by cursors.
//! Method: a node in this process with a few accounts; requests over its socket.

use serde_json::{Value as Json, json};

use crate::common::{Answer, Operated, block, config, send};

async fn ask(node: &Operated, token: &str, method: &str, path: &str, body: &Json) -> Answer {
    let credential = format!("Bearer {token}");
    let mut fields = vec![("Content-Type", "application/json")];
    if !token.is_empty() {
        fields.push(("Authorization", &credential));
    }
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    send(&node.node, method, path, &fields, body.as_bytes()).await
}

async fn read(node: &Operated, token: &str, path: &str) -> Json {
    let answer = ask(node, token, "GET", path, &Json::Null).await;
    assert_eq!(answer.status, 200, "{path}: {answer:?}");
    answer.json()
}

fn pump(number: usize) -> Json {
    json!({"key": format!("urn:example:pump{number}"), "name": format!("Pump {number}"), "kind": "device",
        "types": ["{http://example.com/plant}Pump"],
        "triples": [{"predicate": "http://example.com/in", "object": "urn:example:room", "object_kind": "iri"}]})
}

/// Adds a room with three pumps, the last of them hidden from everybody but its owner.
async fn fill(node: &Operated, token: &str) {
    let room = json!({"key": "urn:example:room", "name": "Room", "triples":
        [{"predicate": "http://example.com/has", "object": "urn:example:pump1", "object_kind": "iri"}]});
    for entity in [room, pump(1), pump(2), pump(3)] {
        let added = ask(node, token, "POST", "/api/v1/entities", &entity).await;
        assert_eq!(added.status, 201, "{added:?}");
    }
    let path = "/api/v1/entities/urn:example:pump3/rights";
    let hidden = ask(node, token, "PUT", path, &json!({"read": []})).await;
    assert_eq!(hidden.status, 200, "{hidden:?}");
}

#[test]
fn facets_count_what_the_caller_finds() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = Operated::start(&config(directory.path()), None).await;
        let ada = node.account("ada", &["write"]).await;
        fill(&node, &ada).await;
        let path = "/api/v1/entities?owner=ada&limit=1&facets=10";
        for (token, pumps) in [("", 2), (ada.as_str(), 3), (node.token.as_str(), 3)] {
            let found = read(&node, token, path).await;
            assert_eq!(found["entities"].as_array().unwrap().len(), 1);
            let facets = &found["facets"];
            assert_eq!(facets["entities"], pumps + 1, "{facets}");
            assert_eq!(facets["is_complete"], true);
            let kinds = json!({"values": [{"value": "device", "count": pumps}, {"value": "other", "count": 1}],
                "distinct": 2});
            assert_eq!(facets["kind"], kinds);
            let types = json!([{"value": "{http://example.com/plant}Pump", "count": pumps}]);
            assert_eq!(facets["type"]["values"], types);
            let few = read(
                &node,
                token,
                &format!("{path}&facets=1").replace("&facets=10", ""),
            )
            .await;
            assert_eq!(few["facets"]["kind"]["values"].as_array().unwrap().len(), 1);
            assert_eq!(few["facets"]["kind"]["distinct"], 2);
        }
        // A reader of some scopes or streams counts only what it finds.
        let restricted = node.account("rex", &["read=pump.*"]).await;
        let found = read(&node, &restricted, "/api/v1/entities?facets=10&limit=1000").await;
        let all = found["entities"].as_array().unwrap().len();
        assert_eq!(found["facets"]["entities"], all);
        for wrong in ["facets=0", "taxonomy=urn:x", "facets=many"] {
            let refused = ask(
                &node,
                "",
                "GET",
                &format!("/api/v1/entities?{wrong}"),
                &Json::Null,
            )
            .await;
            assert_eq!(refused.status, 400, "{refused:?}");
        }
        node.node.shutdown().await.unwrap();
    });
}

#[test]
fn categories_of_uddi_are_criteria() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = Operated::start(&config(directory.path()), None).await;
        let ada = node.account("ada", &["write"]).await;
        let uddi = "https://chappe.example/ns/uddi#";
        let taxonomy = "urn:uuid:c0b9fe13-179f-413d-8a5b-5004db8e5bb2";
        let service = json!({"key": "urn:example:service", "name": "Service", "kind": "service",
            "types": [format!("{{{uddi}}}businessService")],
            "turtle": format!("<> <{uddi}categoryBag> [ <{uddi}tModelKey> <{taxonomy}> ; <{uddi}keyValue> \"red\" ] .")});
        let added = ask(&node, &ada, "POST", "/api/v1/entities", &service).await;
        assert_eq!(added.status, 201, "{added:?}");
        let found = read(&node, "", "/api/v1/entities?owner=ada&facets=5").await;
        let expected = json!([{"value": "red", "taxonomy": taxonomy, "count": 1}]);
        assert_eq!(found["facets"]["category"]["values"], expected, "{found}");
        for (criteria, count) in [
            (format!("category=red&taxonomy={taxonomy}"), 1),
            (format!("category=blue&taxonomy={taxonomy}"), 0),
            ("category=red".to_owned(), 0),
        ] {
            let found = read(&node, "", &format!("/api/v1/entities?{criteria}")).await;
            assert_eq!(
                found["entities"].as_array().unwrap().len(),
                count,
                "{criteria}"
            );
        }
        node.node.shutdown().await.unwrap();
    });
}

#[test]
fn surroundings_are_what_an_entity_names_and_what_names_it() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = Operated::start(&config(directory.path()), None).await;
        let ada = node.account("ada", &["write"]).await;
        fill(&node, &ada).await;
        let path = "/api/v1/entities/urn:example:room/surroundings";
        let (is_in, has) = (
            json!(["http://example.com/in"]),
            json!(["http://example.com/has"]),
        );
        let first = json!({"key": "urn:example:pump1", "name": "Pump 1", "kind": "device", "named_by": has, "names": is_in});
        let second = json!({"key": "urn:example:pump2", "name": "Pump 2", "kind": "device", "named_by": [], "names": is_in});
        let found = read(&node, "", path).await;
        assert_eq!(found, json!({"neighbours": [first, second], "next": null}));
        let own = read(&node, &ada, path).await;
        assert_eq!(own["neighbours"].as_array().unwrap().len(), 3);
        let page = read(&node, "", &format!("{path}?limit=1")).await;
        assert_eq!(page["neighbours"], json!([first]));
        let next = page["next"].as_str().unwrap();
        let page = read(&node, "", &format!("{path}?limit=1&cursor={next}")).await;
        assert_eq!(page, json!({"neighbours": [second], "next": null}));

        let hidden = "/api/v1/entities/urn:example:pump3";
        for part in ["", "/surroundings"] {
            let there = ask(&node, "", "GET", &format!("{hidden}{part}"), &Json::Null).await;
            let nowhere = hidden.replace("pump3", "pump4");
            let nowhere = ask(&node, "", "GET", &format!("{nowhere}{part}"), &Json::Null).await;
            assert_eq!((there.status, nowhere.status), (404, 404));
            assert_eq!(there.body.replace("pump3", "pump4"), nowhere.body);
        }
        // An account with a role for some streams alone has no entities of others.
        let restricted = node.account("rex", &["read=pump.*"]).await;
        for part in ["/surroundings", "/history"] {
            let path = format!("/api/v1/entities/urn:example:room{part}");
            let refused = ask(&node, &restricted, "GET", &path, &Json::Null).await;
            assert_eq!(refused.status, 404, "{refused:?}");
        }
        node.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_history_has_times_and_differences_and_survives_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    block(async {
        let node = Operated::start(&config, None).await;
        let ada = node.account("ada", &["write"]).await;
        let path = "/api/v1/entities/urn:example:pump1";
        let mut changed = pump(1);
        for name in ["Pump 1", "Pump One"] {
            changed["name"] = name.into();
            ask(&node, &ada, "POST", "/api/v1/entities", &changed).await;
        }
        let rights = json!({"read": ["accounts"]});
        ask(&node, &ada, "PUT", &format!("{path}/rights"), &rights).await;
        changed["triples"] = json!([{"predicate": "http://example.com/flow", "object": "2"}]);
        ask(&node, &ada, "POST", "/api/v1/entities", &changed).await;

        let history = read(&node, &ada, &format!("{path}/history")).await;
        let changes = history["changes"].as_array().unwrap();
        let words: Vec<&str> = changes
            .iter()
            .map(|it| it["change"].as_str().unwrap())
            .collect();
        assert_eq!(words, ["changed", "rights", "changed", "appeared"]);
        assert!(
            changes
                .iter()
                .all(|it| it["time"].as_str().unwrap().starts_with("20"))
        );
        assert_eq!(changes[2]["differences"]["fields"], json!(["name"]));
        let differences = &changes[0]["differences"];
        assert_eq!(
            (&differences["added_count"], &differences["removed_count"]),
            (&json!(1), &json!(1))
        );
        assert_eq!(differences["added"][0]["object"], "2");
        assert_eq!(history["is_cut"], false);
        // Strangers saw it until its rights changed.
        let seen = read(&node, "", &format!("{path}/history")).await;
        let words: Vec<&Json> = seen["changes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["change"])
            .collect();
        assert_eq!(words, ["disappeared", "changed", "appeared"]);
        let page = read(&node, &ada, &format!("{path}/history?limit=3")).await;
        let next = page["next"].as_str().unwrap();
        let page = read(
            &node,
            &ada,
            &format!("{path}/history?limit=3&cursor={next}"),
        )
        .await;
        assert_eq!(
            (&page["changes"][0]["change"], &page["next"]),
            (&json!("appeared"), &Json::Null)
        );
        let token = node.token.clone();
        node.node.shutdown().await.unwrap();

        let node = Operated::start(&config, Some(token)).await;
        assert_eq!(
            read(&node, &ada, &format!("{path}/history")).await["changes"],
            history["changes"]
        );
        let wrong = ask(
            &node,
            &ada,
            "GET",
            &format!("{path}/history?limit=0"),
            &Json::Null,
        )
        .await;
        assert_eq!(wrong.status, 400, "{wrong:?}");
        node.node.shutdown().await.unwrap();
    });
}

#[test]
fn an_entity_says_what_the_caller_may_do() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = Operated::start(&config(directory.path()), None).await;
        let (ada, bob) = (
            node.account("ada", &["write"]).await,
            node.account("bob", &["write"]).await,
        );
        fill(&node, &ada).await;
        let path = "/api/v1/entities/urn:example:room";
        for (token, expected) in [
            ("", json!(["read"])),
            (&bob, json!(["read", "annotate"])),
            (&ada, json!(["read", "annotate", "write", "administer"])),
            (
                &node.token,
                json!(["read", "annotate", "write", "administer"]),
            ),
        ] {
            assert_eq!(read(&node, token, path).await["may"], expected);
        }
        let found = read(&node, "", "/api/v1/entities?kind=node").await;
        let key = found["entities"][0]["key"].as_str().unwrap();
        assert_eq!(found["entities"][0].get("may"), None);
        let own = read(&node, &node.token, &format!("/api/v1/entities/{key}")).await;
        assert_eq!(own["may"], json!(["read", "annotate", "administer"]));
        node.node.shutdown().await.unwrap();
    });
}
