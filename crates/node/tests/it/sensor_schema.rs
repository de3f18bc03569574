//! Goal: a virtual sensor never confuses values of two fields when the schema of its source changes, even
//! before the registry reports the change.
//! Method: a stream whose schema changes to one of the same structure without the registry's knowledge, as
//! between the first element of a new schema and its notice.

use crate::common::devices::until;
use crate::common::{block, elements, start, write_sensor};
use chappe_stream::{FieldType, StreamElement, StreamSchema, Timestamp, Value};

fn schema(name: &str) -> StreamSchema {
    elements::schema(&[(name, FieldType::Text)])
}

fn element(second: i64, text: &str) -> StreamElement {
    elements::element(second * 1_000_000_000, vec![Value::Text(text.into())])
}

#[test]
fn values_of_a_changed_schema_are_not_taken_for_others() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let sensor = "name = \"copy\"\n[[source]]\nalias = \"s\"\nstream = \"in\"\nwindow = 1\n\
                      slide = 1\n[output]\nsql = \"select systolic from s\"\n\
                      [[output.field]]\nname = \"systolic\"\ntype = \"text\"\n";
        write_sensor(directory.path(), "copy", sensor);
        let node = start(directory.path()).await;
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
        // It may have seen the first element, too: as soon as a stream is there it is bound.
        let is_evaluated = |second: i64| {
            let newest = output.newest(1).unwrap();
            newest
                .last()
                .is_some_and(|it| it.source_time == Timestamp(second * 1_000_000_000))
        };
        until(&node, path, |_| is_evaluated(2)).await;
        let before = output.log().last();
        let log = node.stream("in").unwrap();
        log.set_schema(&schema("diastolic")).unwrap();
        let appended = log.append(&[element(3, "diastolic")]).unwrap();
        appended.await.unwrap();
        until(&node, path, |sensor| {
            sensor["state"] != "running" || output.log().last() > before
        })
        .await;
        let wrong = vec![Value::Text("diastolic".into())];
        let said = output.read(0, 10).unwrap();
        assert!(said.iter().all(|it| it.values != wrong), "{said:?}");
        // The schema returns; the sensor goes on.
        store(4).await;
        until(&node, path, |sensor| sensor["state"] == "running").await;
        store(5).await;
        until(&node, path, |_| is_evaluated(5)).await;
        node.shutdown().await.unwrap();
    });
}

#[test]
fn a_window_is_filled_again_when_its_stream_gets_a_field() {
    let directory = tempfile::tempdir().unwrap();
    block(async {
        let sensor = "name = \"count\"\n[[source]]\nalias = \"s\"\nstream = \"in\"\nwindow = 100\n\
                      slide = 1\n[output]\nsql = \"select count(*) as n from s\"\n\
                      [[output.field]]\nname = \"n\"\ntype = \"integer\"\n";
        write_sensor(directory.path(), "count", sensor);
        let node = start(directory.path()).await;
        let one = schema("systolic");
        let path = "/api/v1/virtual-sensors/count";
        node.store("in", &one, &[element(1, "a")]).await.unwrap();
        until(&node, path, |sensor| sensor["state"] == "running").await;
        for second in 2..=4 {
            node.store("in", &one, &[element(second, "a")])
                .await
                .unwrap();
        }
        let output = node.stream("count").unwrap();
        let counted = |second: i64| {
            let newest = output.newest(1).unwrap();
            let newest = newest.last()?;
            (newest.source_time == Timestamp(second * 1_000_000_000))
                .then(|| newest.values[0].clone())
        };
        until(&node, path, |_| counted(4).is_some()).await;
        let Some(Value::Integer(before)) = counted(4) else {
            panic!("no count");
        };
        // The sensor hears of each change now from the registry, now from the element.
        let mut fields = vec!["systolic".to_owned()];
        for second in 5..=14 {
            fields.push(format!("unit{second}"));
            let typed: Vec<_> = fields.iter().map(|it| (&**it, FieldType::Text)).collect();
            let values = fields.iter().map(|_| Value::Text("a".into())).collect();
            let wider = elements::element(second * 1_000_000_000, values);
            node.store("in", &elements::schema(&typed), &[wider])
                .await
                .unwrap();
            until(&node, path, |_| counted(second).is_some()).await;
        }
        let outputs = output.read(0, 100).unwrap();
        let last = outputs.iter().rev().take(10).rev();
        let counts: Vec<_> = last.map(|it| it.values[0].clone()).collect();
        let expected: Vec<_> = (1..=10).map(|more| Value::Integer(before + more)).collect();
        assert_eq!(counts, expected);
        node.shutdown().await.unwrap();
    });
}
