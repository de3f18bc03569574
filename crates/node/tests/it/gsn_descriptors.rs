//! Goal: a node runs GSN's descriptors from its sensors directory, follows their changes, keeps a sensor that
//! runs when its file becomes invalid, and does not let REST write over an XML file.
//! Method: a node whose directory has an XML file that is changed, broken, and removed.

use crate::common::devices::until;
use crate::common::linked::{stored, until as until_so};
use crate::common::{Operated, block, config, elements, get};
use chappe_stream::{FieldType, StreamElement, StreamSchema, Value};
use serde_json::Value as Json;

fn schema() -> StreamSchema {
    elements::schema(&[("temperature", FieldType::Double)])
}

fn element(second: i64, value: f64) -> StreamElement {
    elements::element(second * 1_000_000_000, vec![Value::Double(value)])
}

/// A sensor that keeps temperatures above a limit.
fn descriptor(limit: u32) -> String {
    format!(
        "<virtual-sensor name=\"Warm Rooms\" protected=\"false\">\n<processing-class>\n\
         <class-name>ch.epfl.gsn.vsensor.BridgeVirtualSensor</class-name>\n\
         <output-structure><field name=\"TEMPERATURE\" type=\"double\" unit=\"°C\"/></output-structure>\n\
         </processing-class>\n<addressing><predicate key=\"LATITUDE\">46.5</predicate></addressing>\n\
         <streams><stream name=\"data\"><source alias=\"a\" storage-size=\"1\">\n\
         <address wrapper=\"local\"><predicate key=\"query\">select * from ROOM</predicate></address>\n\
         <query>select * from wrapper where TEMPERATURE &gt; {limit}</query></source>\n\
         <query>select TEMPERATURE, TIMED from a</query></stream></streams></virtual-sensor>\n"
    )
}

#[test]
fn an_xml_file_is_a_sensor_that_follows_its_changes() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let config = config(directory.path());
        std::fs::create_dir_all(&config.sensors_directory).unwrap();
        let file = config.sensors_directory.join("warm.xml");
        std::fs::write(&file, descriptor(20)).unwrap();
        let operated = Operated::start(&config, None).await;
        let node = &operated.node;
        let store = async |second: i64, value: f64| {
            let element = element(second, value);
            node.store("room", &schema(), &[element]).await.unwrap();
        };
        let values = async |count: usize| {
            let held = stored(node, "warmrooms", |held| held.len() == count).await;
            let values = held.into_iter().map(|element| element.values[0].clone());
            values.collect::<Vec<_>>()
        };
        store(1, 0.0).await;
        let path = "/api/v1/virtual-sensors/warmrooms";
        let is_running = |sensor: &Json| sensor["state"] == "running";
        let shown = until(node, path, is_running).await;
        assert_eq!(shown["fields"][0]["unit"], "Cel");
        store(2, 19.0).await;
        store(3, 21.0).await;
        assert_eq!(values(1).await, [Value::Double(21.0)]);
        let entity = "/api/v1/entities/urn%3Achappe%3Avirtual-sensor%3Awarmrooms";
        let entity = get(node, entity).await.body;
        assert!(entity.contains("wgs84_pos#lat"), "{entity}");

        std::fs::write(&file, descriptor(30)).unwrap();
        let is_changed = |sensor: &Json| {
            sensor["state"] == "running" && sensor["toml"].as_str().unwrap_or("").contains("30")
        };
        until(node, path, is_changed).await;
        store(4, 25.0).await;
        store(5, 31.0).await;
        assert_eq!(values(2).await[1], Value::Double(31.0));

        let put = operated
            .change("PUT", path, &Json::String("name = 'warmrooms'".into()))
            .await;
        assert_ne!(put.status / 100, 2, "{put:?}");
        std::fs::write(
            &file,
            descriptor(30).replace("type=\"double\"", "type=\"dubble\""),
        )
        .unwrap();
        let shown = until(node, path, |sensor| sensor["error"].is_object()).await;
        assert_eq!(
            (&shown["state"], &shown["error"]["line"]),
            (&"running".into(), &4.into())
        );
        store(6, 32.0).await;
        assert_eq!(values(3).await[2], Value::Double(32.0));

        std::fs::remove_file(&file).unwrap();
        until_so("the sensor is gone", async || {
            get(node, path).await.status == 404
        })
        .await;
        operated.node.shutdown().await.unwrap();
    });
}
