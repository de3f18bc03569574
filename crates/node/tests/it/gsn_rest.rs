//! Goal: a client of GSN's REST interface reads exactly the streams of its account, an answer never ends within a
//! millisecond, and Chappe's own wrapper `gsn-remote-api` reads them completely.
//! Method: a node in this process; the calls of GSN's wrapper `remote-api` are sent as it sends them.

use std::path::Path;
use std::time::Duration;

use chappe_node::Node;
use chappe_node::config::{Config, Read};
use chappe_stream::{FieldType, StreamElement, Value};
use serde_json::json;

use crate::common::elements::{element, schema};
use crate::common::{Answer, Operated, block, config, send};

const MS: i64 = 1_000_000;
const BEGIN_MS: i64 = 1_700_000_000_000;

fn gsn_config(directory: &Path) -> Config {
    let mut config = config(directory);
    config.access.read = Read::Token;
    config.http.gsn = true;
    config.limits.elements = 10;
    config
}

async fn token(node: &Node, client: &str, secret: &str) -> Answer {
    let form = format!("grant_type=client_credentials&client_id={client}&client_secret={secret}");
    let kind = (
        "Content-Type",
        "application/x-www-form-urlencoded; charset=UTF-8",
    );
    send(node, "POST", "/gsn/oauth2/token", &[kind], form.as_bytes()).await
}

async fn get(node: &Node, token: &str, path: &str) -> Answer {
    let credential = format!("Bearer {token}");
    let fields = [("Authorization", credential.as_str())];
    send(node, "GET", path, &fields, b"").await
}

/// Three elements for each millisecond.
fn elements(count: i64) -> Vec<StreamElement> {
    let one = |number: i64| {
        let values = vec![
            Value::Integer((1 << 53) + number),
            Value::Text(format!("größe {number}")),
            Value::Boolean(number % 2 == 0),
        ];
        element((BEGIN_MS + number / 3) * MS + number % 3, values)
    };
    (0..count).map(one).collect()
}

fn fields() -> chappe_stream::StreamSchema {
    schema(&[
        ("number", FieldType::Integer),
        ("note", FieldType::Text),
        ("is_even", FieldType::Boolean),
    ])
}

#[test]
fn an_account_reads_its_streams_as_gsn_does() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let operated = Operated::start(&gsn_config(directory.path()), None).await;
        let node = &operated.node;
        node.store("plant.line", &fields(), &elements(40))
            .await
            .unwrap();
        let samples = schema(&[("wave", FieldType::Samples)]);
        let none = element(1, vec![Value::Null]);
        node.store("plant.wave", &samples, std::slice::from_ref(&none))
            .await
            .unwrap();
        let hidden = schema(&[("x", FieldType::Double)]);
        node.store("lab.x", &hidden, &[none]).await.unwrap();
        let secret = operated.account("gsn", &["read=plant.*"]).await;

        // The name and the token must belong together.
        assert_eq!(token(node, "other", &secret).await.status, 401);
        let refused = token(node, "gsn", "wrong").await;
        assert_eq!(refused.status, 401);
        assert_eq!(refused.json()["error"], "invalid_client");
        let other = send(
            node,
            "POST",
            "/gsn/oauth2/token",
            &[],
            b"grant_type=password",
        )
        .await;
        assert_eq!(other.json()["error"], "unsupported_grant_type");
        let granted = token(node, "gsn", &secret).await;
        assert_eq!(granted.status, 200, "{}", granted.body);
        assert_eq!(granted.headers["cache-control"], "no-store");
        let access = granted.json()["access_token"].as_str().unwrap().to_owned();

        let sensor = get(node, &access, "/gsn/api/sensors/plant.line")
            .await
            .json();
        let properties = &sensor["properties"];
        assert_eq!(properties["vs_name"], "plant.line");
        let types = properties["fields"]
            .as_array()
            .unwrap()
            .iter()
            .map(|field| {
                format!(
                    "{} {}",
                    field["name"].as_str().unwrap(),
                    field["type"].as_str().unwrap()
                )
            });
        let types = types.collect::<Vec<_>>();
        assert_eq!(
            types,
            [
                "timestamp time",
                "number bigint",
                "note varchar(4000)",
                "is_even tinyint"
            ]
        );
        // Ten elements, and the rest of the fourth millisecond.
        let path = "/gsn/api/sensors/plant.line/data?from=2023-11-14T22:13:20.000Z";
        let page = get(node, &access, path).await.json();
        let rows = page["properties"]["values"].as_array().unwrap().clone();
        assert_eq!(rows.len(), 12);
        assert_eq!(
            rows[11],
            json!([BEGIN_MS + 3, (1_i64 << 53) + 11, "größe 11", 0])
        );
        // The next call starts with the last time that was read.
        let path = "/gsn/api/sensors/plant.line/data?from=2023-11-14T22:13:20.012Z&size=1";
        let page = get(node, &access, path).await.json();
        assert_eq!(page["properties"]["values"].as_array().unwrap().len(), 3);

        let all = get(node, &access, "/gsn/api/sensors").await.json();
        let names: Vec<&str> = all["features"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["properties"]["vs_name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["plant.line"], "what it may read and GSN can have");
        let outside = get(node, &access, "/gsn/api/sensors/lab.x/data").await;
        assert_eq!(outside.status, 403);
        let wave = get(node, &access, "/gsn/api/sensors/plant.wave").await;
        assert_eq!(wave.status, 422);
        assert_eq!(
            get(node, "", "/gsn/api/sensors/plant.line").await.status,
            401
        );
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn the_interface_is_off_unless_it_is_enabled() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let mut config = gsn_config(directory.path());
        config.http.gsn = false;
        let operated = Operated::start(&config, None).await;
        let refused = token(&operated.node, "operator", &operated.token).await;
        assert_eq!(refused.status, 404);
        assert!(refused.body.contains("http.gsn"), "{}", refused.body);
        operated.node.shutdown().await.unwrap();
    });
}

#[test]
fn a_wrapper_reads_what_a_node_serves_in_many_answers() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let operated = Operated::start(&gsn_config(directory.path()), None).await;
        let node = &operated.node;
        node.store("plant.line", &fields(), &elements(100))
            .await
            .unwrap();
        let secret = operated.account("gsn", &["read=plant.*"]).await;
        let wrappers = directory.path().join("wrappers");
        std::fs::create_dir_all(&wrappers).unwrap();
        std::fs::write(wrappers.join("secret"), secret).unwrap();
        let text = format!(
            "kind = \"gsn-remote-api\"\naddress = \"http://{}/gsn\"\nsensor = \"plant.line\"\n\
             client_id = \"gsn\"\nclient_secret_file = \"secret\"\nstream_name = \"copy\"\nperiod_s = 1\n",
            node.address()
        );
        std::fs::write(wrappers.join("copy.toml"), text).unwrap();
        let copied = async {
            loop {
                let log = node.stream("copy");
                if let Some(log) = log.filter(|log| log.log().last() >= 100) {
                    return log;
                }
                // The stream is made by the wrapper: nothing tells of it here.
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let copied = tokio::time::timeout(Duration::from_secs(120), copied);
        let copied = copied.await.expect("the elements are read");
        // Another answer repeats the elements of the last millisecond, which are not taken again.
        node.store("plant.line", &fields(), &elements(101)[100..])
            .await
            .unwrap();
        let mut more = copied.follow(101);
        let more = tokio::time::timeout(Duration::from_secs(120), more.next());
        more.await.expect("another answer").unwrap();
        let read = copied.read(0, 1_000).unwrap();
        let numbers: Vec<_> = read
            .iter()
            .map(|element| element.values[0].clone())
            .collect();
        let expected: Vec<_> = (0..=100).map(|n| Value::Integer((1 << 53) + n)).collect();
        assert_eq!(numbers, expected);
        operated.node.shutdown().await.unwrap();
    });
}
