//! Goal: `why` names the first hop that stands in a value's way, and what to do, for a device that is not
//! found, a stream without values, an unbound sensor, a failed evaluation and a lagging link; readers show their
//! distance to a loss.
//! Method: real nodes on loopback.

use crate::common::linked::{fix, link, origin_config, stored, subscriber_config, until};
use crate::common::{block, config, elements, get, prepare_log, write_sensor};
use chappe_log::Level;
use chappe_node::Node;
use chappe_stream::{Field, FieldType, StreamSchema, Value};
use serde_json::{Value as Json, json};

const TEMPERATURE: &str = "https://example.org/temperature";

async fn why(node: &Node, name: &str) -> Json {
    get(node, &format!("/api/v1/why/{name}")).await.json()
}

/// The hop that stands in the way: its name and its text with the hint.
fn obstacle(answer: &Json) -> (&str, String) {
    let found = &answer["obstacle"];
    let text = |key: &str| found[key].as_str().unwrap_or_default();
    (
        text("hop"),
        format!("{} | {}", text("detail"), text("hint")),
    )
}

fn schema() -> StreamSchema {
    StreamSchema {
        fields: vec![Field {
            name: "celsius".into(),
            field_type: FieldType::Double,
            unit: Some("Cel".into()),
            observed_property: Some(TEMPERATURE.into()),
            description: None,
        }],
        key: None,
    }
}

#[test]
fn a_device_that_is_not_found() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let node = Node::start(config(directory.path())).await.unwrap();
        let answer = why(&node, "thermometer").await;
        assert_eq!(answer["kind"], Json::Null);
        let (hop, text) = obstacle(&answer);
        assert!(
            hop == "discovery" && text.contains("discovery.enabled"),
            "{answer}"
        );
        node.shutdown().await.unwrap();

        let mut looking = config(directory.path());
        looking.discovery.enabled = true;
        looking.discovery.interfaces = vec!["lo".into()];
        let node = Node::start(looking).await.unwrap();
        let answer = why(&node, "no-such-thermometer").await;
        let (hop, text) = obstacle(&answer);
        assert!(
            hop == "discovery" && text.contains("chappe doctor"),
            "{answer}"
        );
        // Something of nearly this name is offered.
        let element = elements::element(1, vec![Value::Double(20.5)]);
        node.store("thermometer", &schema(), &[element])
            .await
            .unwrap();
        let (_, text) = obstacle(&why(&node, "thermometre").await);
        assert!(text.contains("did you mean \"thermometer\"?"), "{text}");
        let answer = why(&node, "thermometre?kind=sensor").await;
        let (hop, text) = obstacle(&answer);
        assert!(hop == "sensor" && text.contains("did you mean"), "{text}");
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_stream_without_values() {
    let directory = tempfile::tempdir().unwrap();
    prepare_log(directory.path(), |store| {
        let made = store.stream("ward.bed1", Level::Power, &schema(), None);
        drop(made.unwrap());
    });
    block(async {
        let node = Node::start(config(directory.path())).await.unwrap();
        let answer = why(&node, "ward.bed1").await;
        assert_eq!(answer["kind"], "stream");
        let (hop, text) = obstacle(&answer);
        assert!(
            hop == "stream" && text.contains("no element was ever stored"),
            "{answer}"
        );
        let element = elements::element(1, vec![Value::Double(20.5)]);
        node.store("ward.bed1", &schema(), &[element])
            .await
            .unwrap();
        let answer = why(&node, "ward.bed1").await;
        assert_eq!(answer["obstacle"], Json::Null, "{answer}");
        let hops = answer["hops"].as_array().unwrap().iter();
        let hops: Vec<&str> = hops.map(|hop| hop["hop"].as_str().unwrap()).collect();
        assert_eq!(hops, ["node", "stream"]);
        node.shutdown().await.unwrap();
    });
}

#[test]
fn an_unbound_sensor_and_a_bound_one() {
    let directory = tempfile::tempdir().unwrap();
    for (name, unit) in [("mean", "Cel"), ("kelvin", "K")] {
        let text = format!(
            r#"
name = "{name}"

[[source]]
alias = "temperature"
query = {{ observed_property = "{TEMPERATURE}", unit = "{unit}" }}
window = 1

[output]
sql = "select value as celsius from temperature"

[[output.field]]
name = "celsius"
type = "double"
"#
        );
        write_sensor(directory.path(), name, &text);
    }
    block(async {
        let node = Node::start(config(directory.path())).await.unwrap();
        let element = elements::element(1, vec![Value::Double(20.5)]);
        node.store("ward.bed1", &schema(), &[element])
            .await
            .unwrap();
        until("the sensor is bound", || async {
            let sensor = get(&node, "/api/v1/virtual-sensors/mean").await;
            sensor.status == 200 && sensor.json()["state"] == "running"
        })
        .await;
        until("the other is loaded", || async {
            get(&node, "/api/v1/virtual-sensors/kelvin").await.status == 200
        })
        .await;
        let answer = why(&node, "kelvin").await;
        // The sensor and its output have the same name.
        assert_eq!(answer["kind"], "stream", "{answer}");
        let by_kind = why(&node, "kelvin?kind=sensor").await;
        assert_eq!(by_kind["kind"], "sensor", "{by_kind}");
        assert_eq!(by_kind["obstacle"], answer["obstacle"]);
        let (hop, text) = obstacle(&answer);
        assert!(
            hop == "binding" && text.contains("are in unit K"),
            "{answer}"
        );
        assert!(text.contains("1 of these observe"), "{answer}");
        // The bound one is followed from its source to its output.
        let answer = why(&node, "mean").await;
        let hops = answer["hops"].as_array().unwrap().iter();
        let hops: Vec<&str> = hops.map(|hop| hop["hop"].as_str().unwrap()).collect();
        assert!(hops.starts_with(&["node", "binding", "sensor"]), "{answer}");
        until("the distance is known", || async {
            let readers = get(&node, "/api/v1/readers?stream=ward.bed1").await.json();
            readers["readers"][0]["reader"] == "mean"
        })
        .await;
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_failed_evaluation_until_another_succeeds() {
    let directory = tempfile::tempdir().unwrap();
    let text = r#"
name = "size"

[[source]]
alias = "input"
stream = "ward.bed1"
window = 1

[output]
sql = "select abs(n) as size from input"

[[output.field]]
name = "size"
type = "integer"
"#;
    write_sensor(directory.path(), "size", text);
    let schema = elements::schema(&[("n", FieldType::Integer)]);
    block(async {
        let node = Node::start(config(directory.path())).await.unwrap();
        let store = async |at, n| {
            let element = elements::element(at, vec![Value::Integer(n)]);
            node.store("ward.bed1", &schema, &[element]).await.unwrap();
        };
        store(1, 1).await;
        until("the sensor is bound", || async {
            let sensor = get(&node, "/api/v1/virtual-sensors/size").await;
            sensor.status == 200 && sensor.json()["state"] == "running"
        })
        .await;
        // It reads what comes after it was bound.
        store(2, 2).await;
        let blocked = async |wanted: bool| {
            until("the evaluation is shown", || async {
                let answer = why(&node, "size").await;
                let (hop, text) = obstacle(&answer);
                let is_blocked = hop == "sensor" && text.contains("integer overflow");
                is_blocked == wanted && (wanted || answer["obstacle"] == Json::Null)
            })
            .await;
        };
        blocked(false).await;
        store(3, i64::MIN).await;
        blocked(true).await;
        store(4, 4).await;
        blocked(false).await;
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_lagging_link_and_its_distance_to_a_loss() {
    const KEPT: u64 = 1_000;
    const AWAY: u64 = 40;
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    // An element of long ago would be one that arrived late.
    let now = || {
        let since = std::time::UNIX_EPOCH.elapsed().unwrap();
        i64::try_from(since.as_nanos()).unwrap()
    };
    let element = || elements::element(now(), vec![Value::Double(20.5)]);
    block(async {
        let mut at_origin = origin_config(there.path());
        at_origin.log.keep_elements = KEPT;
        let origin = Node::start(at_origin.clone()).await.unwrap();
        fix(&mut at_origin, &origin);
        let mut at_subscriber = subscriber_config(here.path());
        at_subscriber.links = vec![link("zeromq", &origin)];
        origin
            .store("ward.bed1", &schema(), &[element()])
            .await
            .unwrap();
        let subscriber = Node::start(at_subscriber.clone()).await.unwrap();
        stored(&subscriber, "ward.bed1", |held| held.len() == 1).await;
        let answer = why(&subscriber, "ward.bed1").await;
        assert_eq!(answer["obstacle"], Json::Null, "{answer}");
        let reader = async |wanted: u64| {
            let left = json!(wanted);
            until("the distance", || async {
                let readers = get(&origin, "/api/v1/readers?stream=ward.bed1")
                    .await
                    .json();
                readers["readers"][0]["elements_left"] == left
            })
            .await;
            let readers = get(&origin, "/api/v1/readers").await.json();
            readers["readers"][0].clone()
        };
        let near = reader(KEPT).await;
        assert_eq!(
            (&near["kind"], &near["lag_elements"]),
            (&json!("link"), &json!(0))
        );
        // More comes while the subscriber is away, and then the origin is.
        subscriber.shutdown().await.unwrap();
        let more: Vec<_> = (0..AWAY).map(|_| element()).collect();
        origin.store("ward.bed1", &schema(), &more).await.unwrap();
        origin.shutdown().await.unwrap();
        let subscriber = Node::start(at_subscriber).await.unwrap();
        until("the link fails", || async {
            let answer = why(&subscriber, "origin").await;
            let (hop, text) = obstacle(&answer);
            hop == "link" && text.contains("not connected")
        })
        .await;
        // By the stream's name, too: the link comes before the stream.
        let answer = why(&subscriber, "ward.bed1").await;
        assert_eq!(obstacle(&answer).0, "link", "{answer}");
        assert!(!answer["obstacle"]["hint"].is_null(), "{answer}");
        subscriber.shutdown().await.unwrap();
    });
}

#[test]
fn a_wrong_change_of_a_running_sensor_and_a_name_that_becomes_free() {
    let directory = tempfile::tempdir().unwrap();
    let text = "name = \"mean\"\n[[source]]\nalias = \"t\"\nstream = \"ward.bed1\"\nwindow = 1\n\
        [output]\nsql = \"select celsius from t\"\n[[output.field]]\nname = \"celsius\"\ntype = \"double\"\n";
    write_sensor(directory.path(), "mean", text);
    block(async {
        let node = Node::start(config(directory.path())).await.unwrap();
        let element = |number| elements::element(number, vec![Value::Double(20.5)]);
        node.store("ward.bed1", &schema(), &[element(1)])
            .await
            .unwrap();
        until("the sensor runs", || async {
            get(&node, "/api/v1/virtual-sensors/mean").await.json()["state"] == "running"
        })
        .await;
        // An empty stream would be the obstacle.
        node.store("ward.bed1", &schema(), &[element(2)])
            .await
            .unwrap();
        until("the sensor has a value", || async {
            node.stream("mean")
                .is_some_and(|stream| stream.newest(1).is_ok_and(|it| !it.is_empty()))
        })
        .await;
        write_sensor(directory.path(), "mean", &text.replace("window", "windw"));
        until("the wrong change is seen", || async {
            let answer = why(&node, "mean?kind=sensor").await;
            let (hop, text) = obstacle(&answer);
            hop == "sensor"
                && text.contains("mean.toml:5: windw: unknown key | did you mean `window`?")
        })
        .await;
        let answer = why(&node, "mean?kind=link").await;
        assert!(obstacle(&answer).1.contains("of another kind"), "{answer}");
        write_sensor(directory.path(), "mean", text);
        until("the file is right again", || async {
            let sensor = get(&node, "/api/v1/virtual-sensors/mean").await.json();
            sensor["error"].is_null() && sensor["state"] == "running"
        })
        .await;
        write_sensor(directory.path(), "twin", text);
        until("the name is taken", || async {
            get(&node, "/api/v1/virtual-sensors/twin").await.json()["state"] == "failed"
        })
        .await;
        let file = |name: &str| {
            directory
                .path()
                .join("sensors")
                .join(format!("{name}.toml"))
        };
        std::fs::remove_file(file("mean")).unwrap();
        until("the name is free", || async {
            let sensor = get(&node, "/api/v1/virtual-sensors/mean").await.json();
            let of = sensor["file"].as_str().unwrap_or_default();
            of.ends_with("twin.toml") && sensor["state"] == "running"
        })
        .await;
        node.shutdown().await.unwrap();
    });
}
