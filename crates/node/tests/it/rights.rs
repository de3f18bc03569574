//! Goal: rights to entities are set over REST by those who administer them, kept when the entity is published
//! again, in the audit stream, and enforced in every answer, over UDDI too; groups and certificates of accounts.
//! Method: a node in this process with a few accounts; requests over its socket.

use chappe_node::config::Read;
use serde_json::{Value as Json, json};

use crate::common::{Answer, Operated, block, config, send};

const KEY: &str = "urn:example:pump";

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

fn pump(name: &str) -> Json {
    json!({"key": KEY, "name": name})
}

#[test]
fn rights_decide_what_others_see_and_change() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    block(async {
        let node = Operated::start(&config, None).await;
        let (ada, bob) = (
            node.account("ada", &["write"]).await,
            node.account("bob", &["write"]).await,
        );
        let eve = node.account("eve", &["write"]).await;
        let (entity, rights) = (
            format!("/api/v1/entities/{KEY}"),
            format!("/api/v1/entities/{KEY}/rights"),
        );
        let added = ask(&node, &ada, "POST", "/api/v1/entities", &pump("Pump")).await;
        assert_eq!(added.status, 201, "{added:?}");

        // Only those who administer it see its rights.
        let shown = ask(&node, &ada, "GET", &rights, &Json::Null).await;
        let expected = json!({"key": KEY, "owner": "ada", "read": ["everybody"], "annotate": null,
            "write": [], "administer": []});
        assert_eq!(shown.json(), expected);
        let refused = ask(&node, &bob, "GET", &rights, &Json::Null).await;
        assert_eq!(refused.status, 403, "{refused:?}");
        let refused = ask(&node, &bob, "PUT", &rights, &json!({"read": []})).await;
        assert_eq!(refused.status, 403, "{refused:?}");

        // A misspelt name is refused, with the names that there are.
        for (wrong, hint) in [
            (json!({"read": ["account:bbo"]}), "chappe account list"),
            (json!({"read": ["group:ward"]}), "chappe account groups"),
            (
                json!({"read": ["ada"]}),
                "everybody, accounts, account:NAME",
            ),
        ] {
            let refused = ask(&node, &ada, "PUT", &rights, &wrong).await;
            assert_eq!(refused.status, 422, "{refused:?}");
            assert!(refused.body.contains(hint), "{refused:?}");
        }
        let grouped = node
            .change(
                "PUT",
                "/api/v1/accounts/bob/groups",
                &json!({"groups": ["ward"]}),
            )
            .await;
        assert_eq!(grouped.json()["groups"], json!(["ward"]));
        let stated = json!({"read": [], "write": ["group:ward"]});
        let set = ask(&node, &ada, "PUT", &rights, &stated).await;
        assert_eq!(set.status, 200, "{set:?}");
        assert_eq!(set.json()["write"], json!(["group:ward"]));

        // Hidden from others, as if it did not exist.
        for token in ["", &eve] {
            assert_eq!(
                ask(&node, token, "GET", &entity, &Json::Null).await.status,
                404
            );
            let found = ask(
                &node,
                token,
                "GET",
                "/api/v1/entities?prefix=pump",
                &Json::Null,
            )
            .await;
            assert_eq!(found.json()["entities"], json!([]));
            let query = "/api/v1/sparql?query=ASK%20%7B%20%3Curn:example:pump%3E%20?p%20?o%20%7D";
            let found = ask(&node, token, "GET", query, &Json::Null).await;
            assert_eq!(found.json()["boolean"], json!(false), "{found:?}");
        }
        assert_eq!(
            ask(&node, &eve, "GET", &rights, &Json::Null).await.status,
            404
        );
        assert_eq!(
            ask(&node, &eve, "DELETE", &entity, &Json::Null)
                .await
                .status,
            404
        );
        let taken = ask(&node, &eve, "POST", "/api/v1/entities", &pump("Mine")).await;
        assert_eq!(taken.status, 409, "{taken:?}");
        assert!(!taken.body.contains("ada"), "{taken:?}");

        // The group changes it; it keeps its owner and its rights.
        let changed = ask(&node, &bob, "POST", "/api/v1/entities", &pump("Pump 2")).await;
        assert_eq!(
            (changed.status, changed.json()["owner"].as_str()),
            (200, Some("ada"))
        );
        assert_eq!(
            ask(&node, &eve, "GET", &entity, &Json::Null).await.status,
            404
        );
        let again = ask(&node, &ada, "POST", "/api/v1/entities", &pump("Pump 3")).await;
        assert_eq!(again.status, 200, "{again:?}");
        assert_eq!(
            ask(&node, &bob, "GET", &entity, &Json::Null).await.json()["name"],
            "Pump 3"
        );
        let used = node
            .change("GET", "/api/v1/accounts/bob", &Json::Null)
            .await
            .json();
        assert_eq!(used["use"]["registry_entities"], 0);

        // Who leaves the group loses the right.
        node.change("PUT", "/api/v1/accounts/bob/groups", &json!({"groups": []}))
            .await;
        assert_eq!(
            ask(&node, &bob, "GET", &entity, &Json::Null).await.status,
            404
        );

        // Both changes of rights and of groups are recorded.
        let query = json!({"sql": "select operation, subject from \"chappe.audit\" where operation in \
            ('set_rights', 'set_account_groups') and status = 200"});
        let rows = node.change("POST", "/api/v1/streams/query", &query).await;
        assert!(
            rows.body.contains("urn:example:pump write=group:ward"),
            "{rows:?}"
        );
        node.node.shutdown().await.unwrap();
    });
}

#[test]
fn those_of_what_the_node_saves_in_uddi_and_too_many_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.registry.max_entities = 100;
    config.accounts.bytes_percent = 2;
    config.access.read = Read::Token;
    block(async {
        let node = Operated::start(&config, None).await;
        let ada = node.account("ada", &["write"]).await;
        // What a node saves itself in UDDI.
        let path =
            "/api/v1/entities?type=%7Bhttps:%2F%2Fchappe.example%2Fns%2Fuddi%23%7DtModel&limit=1";
        let found = node.change("GET", path, &Json::Null).await.json();
        assert_eq!(found["entities"][0]["owner"], "node");
        let key = found["entities"][0]["key"].as_str().unwrap();
        let path = format!("/api/v1/entities/{key}/rights");
        let refused = node.change("PUT", &path, &json!({"read": []})).await;
        assert_eq!(refused.status, 409, "{refused:?}");
        for number in 0..3 {
            let entity = json!({"key": format!("urn:example:{number}"), "name": "one"});
            let added = ask(&node, &ada, "POST", "/api/v1/entities", &entity).await;
            assert_eq!(
                added.status,
                if number < 2 { 201 } else { 507 },
                "{added:?}"
            );
            if number == 2 {
                assert!(added.body.contains("the limit is 2"), "{added:?}");
                assert!(added.body.contains("share_of_registry"), "{added:?}");
            }
        }
        node.node.shutdown().await.unwrap();
    });
}
