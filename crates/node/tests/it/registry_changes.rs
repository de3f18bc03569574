//! Goal: a client that follows an entity, a search or a query over server-sent events hears of each change
//! that it may see, resumes after a restart of the node, and hears no more when its rights end.
//! Method: entities published over REST by two accounts, and clients that connect again.

use serde_json::{Value, json};

use crate::common::{Event, Live, Operated, block, config, get};

const CHANGES: &str = "/api/v1/registry/changes";

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

async fn publish(operated: &Operated, number: u32, name: &str, limit: u32) {
    let body = json!({"key": format!("urn:x:{number}"), "kind": "device", "name": name,
        "triples": [{"predicate": "urn:limit", "object": limit.to_string()}]});
    let answer = operated.change("POST", "/api/v1/entities", &body).await;
    assert!([200, 201].contains(&answer.status), "{}", answer.body);
}

fn data(event: &Event) -> Value {
    serde_json::from_str(&event.data).unwrap()
}

async fn follow(operated: &Operated, query: &str, last_event: &str) -> Live {
    let last = match last_event {
        "" => String::new(),
        id => format!("Last-Event-ID: {id}\r\n"),
    };
    let path = format!("{CHANGES}?{query}");
    let opened = Live::open_path(&operated.node, &path, &last).await;
    opened.expect("it is let in")
}

#[test]
fn a_client_follows_what_it_asked_for_across_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    block(async {
        let operated = Operated::start(&config, None).await;
        publish(&operated, 1, "Pump one", 1).await;
        let mut live = follow(&operated, "prefix=pump&present=true", "").await;
        assert_eq!(live.next().await.unwrap().event, "resync");
        let added = data(&live.next_of("added").await);
        assert_eq!(
            (&added["key"], &added["kind"]),
            (&json!("urn:x:1"), &json!("device"))
        );
        assert_eq!(added["name"], "Pump one");
        assert_eq!(live.next().await.unwrap().event, "synced");
        publish(&operated, 2, "Monitor", 1).await;
        publish(&operated, 2, "Pump two", 1).await;
        publish(&operated, 1, "Pump one", 2).await;
        let added = live.next().await.unwrap();
        assert_eq!(
            (added.event.as_str(), &data(&added)["name"]),
            ("added", &json!("Pump two"))
        );
        let changed = live.next().await.unwrap();
        assert_eq!(changed.event, "changed");
        assert!(data(&changed)["position"].as_u64() > data(&added)["position"].as_u64());
        drop(live);
        // Away, while one goes and the node is restarted.
        let removed = operated
            .change("DELETE", "/api/v1/entities/urn:x:1", &json!(null))
            .await;
        assert_eq!(removed.status, 204, "{}", removed.body);
        operated.node.shutdown().await.unwrap();
        let operated = Operated::start(&config, Some(operated.token)).await;
        let mut live = follow(&operated, "prefix=pump", &changed.id).await;
        let event = live.next().await.unwrap();
        assert_eq!(event.event, "removed");
        assert_eq!(data(&event)["key"], "urn:x:1");
        assert_eq!(data(&event)["name"], "Pump one");
        // The key of one entity, by the parameter.
        let mut one = follow(&operated, &format!("key=urn:x:2&after={}", event.id), "").await;
        publish(&operated, 2, "Pump two again", 1).await;
        assert_eq!(data(&one.next().await.unwrap())["name"], "Pump two again");
        // An id from the future of this journal.
        let mut lost = follow(&operated, "prefix=pump", "999999").await;
        let event = lost.next().await.unwrap();
        assert_eq!(
            (event.event.as_str(), &data(&event)["reason"]),
            ("resync", &json!("too-old"))
        );
        for (query, status) in [
            ("key=urn:x:1&prefix=a", 400),
            ("query=SELECT", 400),
            ("kind=nothing", 400),
            ("after=x", 400),
            ("unknown=x", 400),
        ] {
            let answer = get(&operated.node, &format!("{CHANGES}?{query}")).await;
            assert_eq!(answer.status, status, "{query}: {}", answer.body);
        }
        drop((live, one, lost));
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_client_follows_the_rows_of_a_query() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    block(async {
        let operated = Operated::start(&config, None).await;
        publish(&operated, 1, "one", 7).await;
        let query = "query=SELECT%20?x%20WHERE%20%7B?x%20%3Curn:limit%3E%20%227%22%7D";
        let mut live = follow(&operated, &format!("{query}&present=true"), "").await;
        assert_eq!(live.next().await.unwrap().event, "resync");
        let row = data(&live.next_of("added").await);
        assert_eq!(row["row"]["x"], json!({"type": "uri", "value": "urn:x:1"}));
        let synced = live.next().await.unwrap();
        assert_eq!(synced.event, "synced");
        publish(&operated, 1, "one", 8).await;
        let event = live.next().await.unwrap();
        assert_eq!(event.event, "removed");
        assert_eq!(data(&event)["row"]["x"]["value"], "urn:x:1");
        drop(live);
        // Nothing changed since, then the answer did.
        let mut same = follow(&operated, query, &event.id).await;
        publish(&operated, 2, "two", 7).await;
        assert_eq!(
            data(&same.next().await.unwrap())["row"]["x"]["value"],
            "urn:x:2"
        );
        let mut old = follow(&operated, query, &event.id).await;
        let event = old.next().await.unwrap();
        assert_eq!(data(&event)["reason"], "answer-changed");
        drop((same, old));
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_subscription_ends_with_the_account_and_an_account_has_its_share_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path());
    config.http.max_live_clients = 4;
    block(async {
        let operated = Operated::start(&config, None).await;
        let token = operated.account("ada", &["read"]).await;
        let path = format!("{CHANGES}?prefix=p");
        let share = json!({"requests_percent": 50});
        let set = operated
            .change("PUT", "/api/v1/accounts/ada/share", &share)
            .await;
        assert_eq!(set.status, 200, "{}", set.body);
        let opened = Live::open_path(&operated.node, &path, &bearer(&token)).await;
        let mut live = opened.unwrap();
        let second = Live::open_path(&operated.node, &path, &bearer(&token))
            .await
            .unwrap();
        let field = [("Authorization", format!("Bearer {token}"))];
        let fields = field
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        let third = crate::common::send(&operated.node, "GET", &path, &fields, b"").await;
        assert_eq!(third.status, 429, "{}", third.body);
        drop(second);
        publish(&operated, 1, "pump", 1).await;
        assert_eq!(live.next().await.unwrap().event, "added");
        let gone = operated
            .change("DELETE", "/api/v1/accounts/ada", &json!(null))
            .await;
        assert_eq!(gone.status, 204, "{}", gone.body);
        let event = live.next().await.unwrap();
        assert_eq!(event.event, "end");
        assert_eq!(data(&event)["reason"], "the account has ended");
        assert!(live.next().await.is_none(), "the connection is closed");
        operated.node.shutdown().await.unwrap();
    });
}
