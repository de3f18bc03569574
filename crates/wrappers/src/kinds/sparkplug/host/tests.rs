//! Edge nodes as devices, commands to them, and streams that stay those of their metrics.

use std::sync::Mutex;

use serde_json::{Map, json};

use super::*;
use crate::kinds::mqtt::session::Message;
use crate::{AnnouncedDevice, Command, DeviceReport, StreamNow};

fn metric(name: &str, datatype: u32, value: MetricValue) -> Metric {
    Metric {
        name: Some(name.to_owned()),
        timestamp: Some(1),
        datatype: Some(datatype),
        value: Some(value),
        ..Metric::default()
    }
}

fn payload(seq: u64, metrics: Vec<Metric>) -> Vec<u8> {
    let (timestamp, seq) = (Some(1), Some(seq));
    Payload {
        timestamp,
        metrics,
        seq,
    }
    .to_bytes()
}

fn receive(host: &mut Host, topic: &str, bytes: &[u8], now: i64) -> Output {
    let mut output = Output::default();
    host.receive(topic, bytes, Timestamp(now), &mut output);
    output
}

fn device(reports: &[DeviceReport], id: &str) -> AnnouncedDevice {
    let found = reports.iter().find(|report| report.id == id);
    found.unwrap().device.clone().unwrap()
}

/// A host that follows an edge node with a device.
fn following() -> Host {
    let mut host = Host::new("line", 100);
    let control = metric(REBIRTH, 11, MetricValue::Boolean(false));
    let maker = metric(
        "Properties/Hardware Make",
        12,
        MetricValue::String("Acme".to_owned()),
    );
    receive(
        &mut host,
        "spBv1.0/g/NBIRTH/n",
        &payload(0, vec![control, maker]),
        5,
    );
    let setpoint = Metric {
        alias: Some(3),
        ..metric("Setpoint", 1, MetricValue::Int(20))
    };
    receive(
        &mut host,
        "spBv1.0/g/DBIRTH/n/d",
        &payload(1, vec![setpoint]),
        6,
    );
    host
}

fn command(name: &str, value: serde_json::Value) -> Command {
    Command {
        name: name.to_owned(),
        arguments: Map::from_iter([("value".to_owned(), value)]),
    }
}

fn message(topic: &str, bytes: Vec<u8>) -> Message {
    Message {
        topic: topic.to_owned(),
        payload: bytes,
        receipt: None,
        is_duplicate: false,
        is_retained: false,
        cut_of: None,
    }
}

#[test]
fn edge_nodes_and_devices_are_reported_with_their_availability() {
    let mut host = following();
    let reports = host.devices();
    assert_eq!(reports.len(), 2);
    let node = device(&reports, "g/n");
    assert_eq!(
        (&*node.name, node.manufacturer.as_deref()),
        ("n", Some("Acme"))
    );
    assert_eq!(node.operations[0].name, REBIRTH);
    let child = device(&reports, "g/n/d");
    assert_eq!((child.offline, child.since), (None, Timestamp(6)));
    assert_eq!(&*child.streams[0].0, "line.g.n.d.setpoint");
    let argument = child.operations[0].argument.clone().unwrap();
    assert_eq!(
        (argument.minimum, argument.maximum),
        (Some(-128.0), Some(127.0))
    );

    receive(
        &mut host,
        "spBv1.0/g/DDEATH/n/d",
        &payload(2, Vec::new()),
        9,
    );
    let child = device(&host.devices(), "g/n/d");
    assert_eq!((child.offline.is_some(), child.since), (true, Timestamp(9)));
    receive(&mut host, "spBv1.0/g/NDEATH/n", &payload(0, Vec::new()), 10);
    let reports = host.devices();
    assert!(device(&reports, "g/n").offline.is_some());
    assert_eq!(
        device(&reports, "g/n/d").since,
        Timestamp(9),
        "it was offline before"
    );
    assert!(host.devices().is_empty());
}

#[test]
fn a_command_names_the_metric_by_its_alias_and_is_confirmed_by_data() {
    let mut host = following();
    let call = host
        .operate("g/n/d", &command("Setpoint", json!(-5)), Timestamp(0))
        .unwrap();
    assert_eq!(
        (&*call.publication.topic, call.publication.qos),
        ("spBv1.0/g/DCMD/n/d", 0)
    );
    let sent = Payload::parse(&call.publication.payload).unwrap();
    assert_eq!(
        (sent.seq, sent.metrics[0].named(), sent.metrics[0].alias),
        (None, None, Some(3))
    );
    assert_eq!(sent.metrics[0].value, Some(MetricValue::Int(0xFB)));
    let confirms = call.confirms.unwrap();
    let shows = |topic: &str, value: u32| {
        let data = Metric {
            alias: Some(3),
            value: Some(MetricValue::Int(value)),
            ..Metric::default()
        };
        confirms(&message(topic, payload(2, vec![data])))
    };
    assert!(!shows("spBv1.0/g/DDATA/n/d", 20));
    assert!(!shows("spBv1.0/g/DDATA/n/e", 0xFB) && !shows("spBv1.0/g/NDATA/n", 0xFB));
    assert!(shows("spBv1.0/g/DDATA/n/d", 0xFB));
    assert!(!confirms(&message("spBv1.0/g/DDATA/n/d", vec![1])));

    let rebirth = host
        .operate("g/n", &command(REBIRTH, json!(true)), Timestamp(0))
        .unwrap();
    assert_eq!(rebirth.publication.topic, "spBv1.0/g/NCMD/n");
    let confirms = rebirth.confirms.unwrap();
    assert!(confirms(&message(
        "spBv1.0/g/NBIRTH/n",
        payload(0, Vec::new())
    )));

    for (id, name, value, word) in [
        ("g/n/d", "Setpoint", json!(200), "from -128 to 127"),
        ("g/n/d", "Setpoint", json!("x"), "a whole number"),
        ("g/n/d", "Other", json!(1), "no metric"),
        ("g/n/x", "Setpoint", json!(1), "no device"),
    ] {
        let error = host
            .operate(id, &command(name, value), Timestamp(0))
            .err()
            .unwrap();
        assert!(error.contains(word), "{error}");
    }
    receive(
        &mut host,
        "spBv1.0/g/DDEATH/n/d",
        &payload(2, Vec::new()),
        9,
    );
    let error = host
        .operate("g/n/d", &command("Setpoint", json!(1)), Timestamp(0))
        .err()
        .unwrap();
    assert!(error.contains("offline"), "{error}");
}

/// The streams that a node has stored.
type Stored = Arc<Mutex<HashMap<String, StreamSchema>>>;

fn host_at(stored: &Stored, metrics_max: usize) -> Host {
    let mut host = Host::new("line", metrics_max);
    let stored = stored.clone();
    let parts = NodeParts {
        stream: Arc::new(move |name: &str| {
            let schema = stored.lock().unwrap().get(name)?.clone();
            Some(StreamNow {
                name: name.to_owned(),
                schema,
                level: chappe_log::Level::Process,
                last: 1,
                source: String::new(),
                metadata_bytes: 0,
            })
        }),
        ..NodeParts::default()
    };
    host.attach(&parts);
    host
}

/// The streams with the values of a birth certificate of these metrics, which are stored.
fn born(host: &mut Host, stored: &Stored, node: &str, names: &[&str]) -> BTreeMap<String, i64> {
    let numbered = (0..).zip(names);
    let metrics = numbered.map(|(number, name)| metric(name, 4, MetricValue::Long(number)));
    let topic = format!("spBv1.0/g/NBIRTH/{node}");
    let output = receive(host, &topic, &payload(0, metrics.collect()), 0);
    let mut found = BTreeMap::new();
    for part in output.batch.parts {
        let Value::Integer(number) = part.elements[0].values[0] else {
            panic!("{part:?}");
        };
        let schema = part.definition.schema.clone();
        stored
            .lock()
            .unwrap()
            .insert(part.stream.to_string(), schema);
        found.insert(part.stream.to_string(), number);
    }
    found
}

#[test]
fn metrics_that_differ_in_case_keep_their_streams_after_a_restart() {
    let stored = Stored::default();
    let before = born(
        &mut host_at(&stored, 100),
        &stored,
        "n",
        &["Temp", "temp", "TEMP"],
    );
    assert_eq!(before.len(), 3, "{before:?}");
    assert_eq!(before["line.g.n.temp"], 0);
    // The other way round, and each alone.
    let after = born(
        &mut host_at(&stored, 100),
        &stored,
        "n",
        &["TEMP", "temp", "Temp"],
    );
    let opposite: BTreeMap<String, i64> = before
        .iter()
        .map(|(name, number)| (name.clone(), 2 - number))
        .collect();
    assert_eq!(after, opposite);
    let alone = born(&mut host_at(&stored, 100), &stored, "n", &["temp"]);
    assert_eq!(before.get(alone.keys().next().unwrap()), Some(&1));
}

#[test]
fn made_up_birth_certificates_do_not_take_the_room_of_streams_that_exist() {
    let stored = Stored::default();
    let known = born(&mut host_at(&stored, 4), &stored, "real", &["a", "b"]);
    let mut host = host_at(&stored, 4);
    let forged = born(
        &mut host,
        &stored,
        "forged",
        &["a", "b", "c", "d", "e", "f"],
    );
    assert_eq!(forged.len(), 4);
    assert_eq!(born(&mut host, &stored, "real", &["a", "b", "c"]), known);
}

#[test]
fn made_up_devices_without_metrics_do_not_take_the_room_of_others() {
    let mut host = Host::new("line", 4);
    let own = payload(0, vec![metric("a", 4, MetricValue::Long(1))]);
    receive(&mut host, "spBv1.0/g/NBIRTH/forged", &own, 0);
    for number in 1..100 {
        let topic = format!("spBv1.0/g/DBIRTH/forged/d{number}");
        receive(&mut host, &topic, &payload(number, Vec::new()), 0);
    }
    let reports = host.devices();
    let shown = reports.iter().filter(|report| report.device.is_some());
    assert_eq!(shown.count(), 16);
    let output = receive(&mut host, "spBv1.0/g/NBIRTH/real", &own, 1);
    assert_eq!(output.batch.parts.len(), 1);
    assert!(output.batch.undecodable.is_empty());
    assert!(device(&host.devices(), "g/real").offline.is_none());
    assert_eq!(host.branches, 2, "the empty ones gave way");
}
