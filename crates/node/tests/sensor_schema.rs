//! Goal: a virtual sensor never takes values of one field for those of another when the schema of its
//! source changes, also before the registry has told it.
//! Method: a stream whose schema is changed to one of the same shape behind the registry's back, as it
//! is between the first element of a new schema and the notice of it.

mod common;

use chappe_stream::{Field, FieldType, StreamElement, StreamSchema, Timestamp, Value};
use common::devices::until;
use common::{block, config};

fn schema(name: &str) -> StreamSchema {
    let field = Field {
        name: name.into(),
        field_type: FieldType::Text,
        unit: None,
        observed_property: None,
        description: None,
    };
    StreamSchema {
        fields: vec![field],
        key: None,
    }
}

fn element(second: i64, text: &str) -> StreamElement {
    StreamElement {
        position: Default::default(),
        source_time: Timestamp(second * 1_000_000_000),
        receive_time: Timestamp(0),
        key: None,
        values: vec![Value::Text(text.into())],
        quality: Default::default(),
        origin: None,
    }
}

#[test]
fn values_of_a_changed_schema_are_not_taken_for_others() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let config = config(directory.path());
        std::fs::create_dir_all(&config.sensors_directory).unwrap();
        let sensor = "name = \"copy\"\n[[source]]\nalias = \"s\"\nstream = \"in\"\nwindow = 1\n\
                      slide = 1\n[output]\nsql = \"select systolic from s\"\n\
                      [[output.field]]\nname = \"systolic\"\ntype = \"text\"\n";
        std::fs::write(config.sensors_directory.join("copy.toml"), sensor).unwrap();
        let node = chappe_node::Node::start(config).await.unwrap();
        let store = async |second: i64| {
            let element = element(second, "systolic");
            let schema = schema("systolic");
            node.store("in", &schema, &[element]).await.unwrap();
        };
        store(1).await;
        let path = "/api/v1/virtual-sensors/copy";
        until(&node, path, |sensor| sensor["state"] == "running").await;
        store(2).await;
        let output = node.stream("copy").unwrap();
        until(&node, path, |_| output.log().last() == 1).await;
        let log = node.stream("in").unwrap();
        log.set_schema(&schema("diastolic")).unwrap();
        let appended = log.append(&[element(3, "diastolic")]).unwrap();
        appended.await.unwrap();
        until(&node, path, |sensor| {
            sensor["state"] != "running" || output.log().last() > 1
        })
        .await;
        let wrong = vec![Value::Text("diastolic".into())];
        let said = output.read(0, 10).unwrap();
        assert!(said.iter().all(|it| it.values != wrong), "{said:?}");
        // The schema returns; the sensor goes on.
        store(4).await;
        until(&node, path, |sensor| sensor["state"] == "running").await;
        store(5).await;
        until(&node, path, |_| {
            let newest = output.newest(1).unwrap();
            newest[0].source_time == Timestamp(5_000_000_000)
        })
        .await;
        node.shutdown().await.unwrap();
    });
}
