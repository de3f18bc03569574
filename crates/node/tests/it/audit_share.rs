//! Goal: an account that changes something again and again displaces no record of others from the audit stream: its
//! changes beyond its share are refused before they are made, also after a restart, and others go on.
//! Method: a node in this process whose streams keep 400 elements; accounts attack over real HTTP by the changes
//! that they may make without end.

use chappe_node::Node;
use chappe_node::config::{Config, Read};
use serde_json::{Value as Json, json};

use crate::common::{Answer, block, config, send};

/// Elements that streams keep: half of a quarter of it is free at once.
const ELEMENTS: u64 = 400;
const AT_ONCE: u64 = 50;

struct World {
    node: Node,
    token: String,
}

impl World {
    async fn ask(&self, token: &str, method: &str, path: &str, body: &Json) -> Answer {
        let credential = format!("Bearer {token}");
        let fields = [
            ("Content-Type", "application/json"),
            ("Authorization", credential.as_str()),
        ];
        let text = body.to_string();
        send(&self.node, method, path, &fields, text.as_bytes()).await
    }

    async fn add(&self, name: &str, role: &str) -> String {
        let body = json!({"name": name, "roles": [role]});
        let answer = self
            .ask(&self.token, "POST", "/api/v1/accounts", &body)
            .await;
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["token"].as_str().unwrap().to_owned()
    }

    async fn publish(&self, token: &str, key: &str, name: &str) -> Answer {
        let entity = json!({"key": key, "name": name});
        self.ask(token, "POST", "/api/v1/entities", &entity).await
    }

    async fn rename(&self, token: &str, from: &str, to: &str) -> Answer {
        let path = format!("/api/v1/streams/{from}/rename");
        self.ask(token, "POST", &path, &json!({"name": to})).await
    }

    async fn rows(&self, rest: &str) -> Vec<Json> {
        let sql =
            format!("select account, operation, subject, status from \"chappe.audit\" {rest}");
        let path = "/api/v1/streams/query";
        let answer = self
            .ask(&self.token, "POST", path, &json!({"sql": sql}))
            .await;
        answer.json()["rows"]
            .as_array()
            .unwrap_or_else(|| panic!("{answer:?}"))
            .clone()
    }

    async fn count(&self, account: &str) -> u64 {
        self.rows(&format!("where account = '{account}'"))
            .await
            .len() as u64
    }
}

fn small(directory: &std::path::Path) -> Config {
    let mut config = config(directory);
    config.access.read = Read::Token;
    config.log.keep_elements = ELEMENTS;
    config
}

/// It is refused for the share of the audit stream, and says until when.
fn assert_refused(answer: &Answer) {
    let code = &answer.json()["code"];
    assert_eq!((answer.status, code), (429, &json!("share_of_audit")));
    let after: u64 = answer.headers["retry-after"].parse().unwrap();
    // The half of an account's share comes back in the 30 days of a log that keeps elements of any age.
    assert!(after <= 2 * 30 * 86_400 / AT_ONCE, "{after}");
}

#[test]
fn changes_without_end_displace_no_record_of_others() {
    let directory = tempfile::tempdir().unwrap();
    let config = small(directory.path());
    block(async {
        let node = Node::start(config.clone()).await.unwrap();
        let token = node.new_token().unwrap().to_owned();
        let world = World { node, token };
        let eve = world.add("eve", "write").await;
        let ola = world.add("ola", "operate").await;
        let bob = world.add("bob", "write").await;

        // The contents of an entity to and fro.
        let mut made = 0;
        let refused = loop {
            let name = ["one", "two"][made as usize % 2];
            let answer = world.publish(&eve, "urn:eve:1", name).await;
            if answer.status > 201 || made > 2 * ELEMENTS {
                break answer;
            }
            made += 1;
        };
        assert_refused(&refused);
        assert!((AT_ONCE - 1..=AT_ONCE + 1).contains(&made), "{made}");
        assert_eq!(world.count("eve").await, made);
        let entity = world
            .ask(&world.token, "GET", "/api/v1/entities/urn:eve:1", &json!(0))
            .await
            .json();
        assert_eq!(
            entity["name"],
            ["two", "one"][made as usize % 2],
            "it was refused before it was made"
        );

        // The name of a stream to and fro.
        let fields = json!([{"name": "number", "type": "integer"}]);
        let stream = json!({"name": "a.a", "level": "process", "fields": fields});
        let defined = world.ask(&bob, "POST", "/api/v1/streams", &stream).await;
        assert_eq!(defined.status, 201, "{defined:?}");
        let mut renamed = 0;
        let refused = loop {
            let [from, to] = [["a.a", "a.b"], ["a.b", "a.a"]][renamed as usize % 2];
            let answer = world.rename(&ola, from, to).await;
            if answer.status != 200 || renamed > 2 * ELEMENTS {
                break answer;
            }
            renamed += 1;
        };
        assert_refused(&refused);
        assert!((AT_ONCE - 1..=AT_ONCE + 1).contains(&renamed), "{renamed}");

        // Neither has more records by what is refused.
        for _ in 0..20 {
            let wrong = json!({"name": "eve.wrong", "fields": []});
            let answer = world.ask(&eve, "POST", "/api/v1/streams", &wrong).await;
            assert_eq!(answer.status, 429, "{answer:?}");
            let answer = world
                .ask(&eve, "DELETE", "/api/v1/streams/a.a", &wrong)
                .await;
            assert_eq!(answer.status, 403, "{answer:?}");
        }
        assert_eq!(world.count("eve").await, made);

        // Others change something, and what they changed is named.
        let answer = world.publish(&bob, "urn:bob:1", "one").await;
        assert_eq!(answer.status, 201, "{answer:?}");
        let own = world.rows("where account = 'bob' and status = 201").await;
        let own: Vec<&Json> = own.iter().map(|row| &row[2]).collect();
        assert_eq!(own, ["a.a", "urn:bob:1"]);
        let all = world.rows("").await;
        assert_eq!(all.len() as u64, 3 + made + renamed + 2);
        assert_eq!(
            all[0][2], "eve write",
            "the first record is still there: {}",
            all[0]
        );
        world.node.shutdown().await.unwrap();

        // After a restart the account has nothing but what became free meanwhile.
        let node = Node::start(config.clone()).await.unwrap();
        let world = World { node, ..world };
        let mut more = 0;
        while world
            .publish(&eve, "urn:eve:1", &format!("{more}"))
            .await
            .status
            == 200
        {
            more += 1;
        }
        assert!(more <= 2, "{more}");
        // An administrator gives it more.
        let path = "/api/v1/accounts/eve/share";
        let share = json!({"bytes_percent": 50});
        let changed = world.ask(&world.token, "PUT", path, &share).await;
        assert_eq!(changed.status, 200, "{changed:?}");
        world.node.shutdown().await.unwrap();
    });
}

#[test]
fn refused_attempts_leave_half_of_the_share_to_changes() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = Node::start(small(directory.path())).await.unwrap();
        let token = node.new_token().unwrap().to_owned();
        let world = World { node, token };
        let eve = world.add("eve", "write").await;
        for _ in 0..2 * ELEMENTS {
            let wrong = json!({"name": "eve.wrong", "fields": []});
            let answer = world.ask(&eve, "POST", "/api/v1/streams", &wrong).await;
            assert_eq!(answer.status, 422, "{answer:?}");
        }
        let refused = world.count("eve").await;
        assert!(
            (AT_ONCE / 2 - 1..=AT_ONCE / 2 + 1).contains(&refused),
            "{refused}"
        );
        // What changes nothing takes nothing.
        for _ in 0..2 * ELEMENTS {
            let answer = world.publish(&eve, "urn:eve:1", "one").await;
            assert!(answer.status <= 201, "{answer:?}");
        }
        for number in 2..AT_ONCE / 2 {
            let answer = world.publish(&eve, "urn:eve:1", &format!("{number}")).await;
            assert_eq!(answer.status, 200, "{number}: {answer:?}");
        }
        // An administrator has no share.
        for number in 0..2 * AT_ONCE {
            let answer = world
                .publish(&world.token, "urn:own:1", &format!("{number}"))
                .await;
            assert!(answer.status <= 201, "{answer:?}");
        }
        world.node.shutdown().await.unwrap();
    });
}
