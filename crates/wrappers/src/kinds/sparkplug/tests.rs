//! Host application and edge node against each other, with messages that are lost, repeated or made up.

use std::sync::Arc;

use chappe_stream::{
    Field, FieldType, Position, Quality, StreamElement, StreamSchema, Timestamp, Value,
};
use proptest::prelude::*;

use super::edge::{Edge, PrimaryHost};
use super::host::Host;
use super::payload::{Metric, MetricValue, Payload, PropertySet};
use super::value::{DOUBLE, INT64};
use crate::kinds::mqtt::broker::Order;
use crate::kinds::mqtt::follow::Output;
use crate::kinds::mqtt::session::Publication;
use crate::{Part, StreamDefinition};

const SECOND: i64 = 1_000_000_000;

fn part(elements: Vec<StreamElement>) -> Part {
    let field = |name: &str, field_type, unit: Option<&str>| Field {
        name: name.to_owned(),
        field_type,
        unit: unit.map(str::to_owned),
        observed_property: None,
        description: None,
    };
    let schema = StreamSchema {
        fields: vec![
            field("celsius", FieldType::Double, Some("Cel")),
            field("count", FieldType::Integer, None),
        ],
        key: None,
    };
    Part {
        stream: "room.climate".into(),
        definition: Arc::new(StreamDefinition {
            schema,
            ..StreamDefinition::default()
        }),
        elements,
    }
}

fn element(number: i64, time: i64) -> StreamElement {
    StreamElement {
        position: Position::default(),
        source_time: Timestamp(time),
        receive_time: Timestamp(time),
        key: None,
        values: vec![Value::Double(number as f64), Value::Integer(number)],
        quality: Quality::Good,
        origin: None,
    }
}

fn host() -> Host {
    Host::new("plant", 100)
}

fn receive(host: &mut Host, message: &Publication, now: i64) -> Output {
    let mut output = Output::default();
    host.receive(
        &message.topic,
        &message.payload,
        Timestamp(now),
        &mut output,
    );
    output
}

fn message(topic: &str, payload: &Payload) -> Publication {
    Publication {
        token: 0,
        topic: topic.to_owned(),
        payload: payload.to_bytes(),
        qos: 0,
        is_retained: false,
        property: None,
    }
}

/// Streams, values, and seconds.
fn values(output: &Output) -> Vec<(String, Value, i64)> {
    let mut found = Vec::new();
    for part in &output.batch.parts {
        for element in &part.elements {
            let seconds = element.source_time.0 / SECOND;
            found.push((part.stream.to_string(), element.values[0].clone(), seconds));
        }
    }
    found
}

fn sent(edge: &mut Edge, part: &Part, now: i64) -> Vec<Publication> {
    let mut messages = Vec::new();
    let refused = edge.elements(part, Timestamp(now), &mut messages);
    assert!(refused.is_empty(), "{refused:?}");
    messages.into_iter().map(|(message, _)| message).collect()
}

const CELSIUS: &str = "plant.site.chappe.room-climate.celsius";
const COUNT: &str = "plant.site.chappe.room-climate.count";

#[test]
fn elements_of_an_edge_node_arrive_with_types_units_and_times() {
    let (mut edge, mut host) = (Edge::new("site", "chappe", 7), host());
    for birth in edge.births(Timestamp(100 * SECOND)) {
        assert!(values(&receive(&mut host, &birth, 0)).is_empty());
    }
    // 2^53 + 1 is no double.
    let big = 9_007_199_254_740_993;
    let part = part(vec![element(1, 90 * SECOND), element(big, 110 * SECOND)]);
    let messages = sent(&mut edge, &part, 111 * SECOND);
    assert_eq!(
        messages.len(),
        3,
        "a birth certificate, historical data, data"
    );
    let historical = Payload::parse(&messages[1].payload).unwrap();
    assert_eq!(historical.metrics[0].is_historical, Some(true));
    let mut found = Vec::new();
    for message in &messages {
        let output = receive(&mut host, message, 111 * SECOND);
        assert!(output.batch.undecodable.is_empty() && output.orders.is_empty());
        for part in &output.batch.parts {
            let unit = part.definition.schema.fields[0].unit.as_deref();
            assert_eq!(unit, (&*part.stream == CELSIUS).then_some("Cel"));
        }
        found.extend(values(&output));
    }
    let expected = [
        (CELSIUS.to_owned(), Value::Double(1.0), 90),
        (COUNT.to_owned(), Value::Integer(1), 90),
        (CELSIUS.to_owned(), Value::Double(big as f64), 110),
        (COUNT.to_owned(), Value::Integer(big), 110),
    ];
    assert_eq!(found, expected);
    // After a rebirth nothing is stored again.
    for birth in edge.births(Timestamp(120 * SECOND)) {
        assert!(values(&receive(&mut host, &birth, 120 * SECOND)).is_empty());
    }
}

#[test]
fn a_gap_is_counted_and_answered_by_birth_certificates() {
    let (mut edge, mut host) = (Edge::new("site", "chappe", 7), host());
    for birth in edge.births(Timestamp(0)) {
        receive(&mut host, &birth, 0);
    }
    let first = sent(&mut edge, &part(vec![element(1, 0)]), 0);
    for message in &first {
        receive(&mut host, message, 0);
    }
    sent(&mut edge, &part(vec![element(2, 0)]), 0);
    let third = sent(&mut edge, &part(vec![element(3, 0)]), 0);
    let output = receive(&mut host, &third[0], SECOND);
    let lost = &output.batch.lost[0];
    assert_eq!((lost.reason, lost.messages), ("sequence_gap", 1));
    assert_eq!(
        values(&output).len(),
        2,
        "its values are known all the same"
    );
    let Some(Order::Publish(request)) = output.orders.first() else {
        panic!("{:?}", output.orders);
    };
    assert_eq!(
        (&*request.topic, request.qos),
        ("spBv1.0/site/NCMD/chappe", 0)
    );
    assert!(Edge::asks_for_birth(&request.payload));
    sent(&mut edge, &part(vec![element(4, 0)]), 0);
    let fifth = sent(&mut edge, &part(vec![element(5, 0)]), 0);
    let output = receive(&mut host, &fifth[0], 2 * SECOND);
    assert!(
        output.orders.is_empty(),
        "the request is not repeated at once"
    );
}

#[test]
fn data_without_a_birth_certificate_is_counted_and_asked_for() {
    let (mut edge, mut host) = (Edge::new("site", "chappe", 7), host());
    edge.births(Timestamp(0));
    let messages = sent(&mut edge, &part(vec![element(1, 0)]), 0);
    let output = receive(&mut host, &messages[1], 0);
    assert_eq!(output.batch.lost[0].reason, "no_birth");
    assert_eq!((output.orders.len(), values(&output).len()), (1, 0));
}

#[test]
fn made_up_edge_nodes_take_no_room_and_few_requests() {
    let mut host = host();
    let data = Payload {
        seq: Some(0),
        ..Payload::default()
    };
    let mut requests = 0;
    for number in 0..30_000 {
        let topic = format!("spBv1.0/g/NDATA/n{number}");
        // All within a fifth of a second.
        let output = receive(&mut host, &message(&topic, &data), 5_000 * number);
        assert!(output.batch.undecodable.is_empty());
        requests += output.orders.len();
    }
    assert_eq!(requests, 20);
    // Nor do those that are born, without metrics.
    for number in 0..30_000 {
        let topic = format!("spBv1.0/g/NBIRTH/n{number}");
        let output = receive(&mut host, &message(&topic, &data), SECOND);
        assert!(output.batch.undecodable.is_empty(), "{number}");
    }
    let mut edge = Edge::new("site", "chappe", 7);
    let births = edge.births(Timestamp(0)).into_iter();
    let data = sent(&mut edge, &part(vec![element(1, 0)]), 0);
    let outputs = births
        .chain(data)
        .map(|message| receive(&mut host, &message, 2 * SECOND));
    let found: usize = outputs.map(|output| values(&output).len()).sum();
    assert_eq!(found, 2);
    let topic = format!("spBv1.0/g/NBIRTH/{}", "n".repeat(257));
    let output = receive(&mut host, &message(&topic, &Payload::default()), 0);
    assert!(output.batch.undecodable[0].reason.contains("256 bytes"));
}

#[test]
fn a_death_certificate_ends_the_values_of_its_own_connection() {
    let (mut edge, mut host) = (Edge::new("site", "chappe", 7), host());
    for birth in edge.births(Timestamp(0)) {
        receive(&mut host, &birth, 0);
    }
    for message in sent(&mut edge, &part(vec![element(1, 0)]), 0) {
        receive(&mut host, &message, 0);
    }
    let death = |bd_seq| {
        let (topic, payload) = Edge::new("site", "chappe", bd_seq).death(Timestamp(0));
        message(&topic, &Payload::parse(&payload).unwrap())
    };
    assert!(
        values(&receive(&mut host, &death(6), 0)).is_empty(),
        "of an earlier connection"
    );
    assert!(host.has_nodes());
    let output = receive(&mut host, &death(7), 9 * SECOND);
    let expected = [CELSIUS, COUNT].map(|stream| (stream.to_owned(), Value::Null, 9));
    assert_eq!(values(&output), expected);
    assert!(!host.has_nodes());
}

#[test]
fn metrics_that_are_not_stored_are_noted_once_and_passed_over() {
    let mut host = host();
    let metric = |name: &str, alias, datatype, value: Option<MetricValue>| Metric {
        name: Some(name.to_owned()),
        alias: Some(alias),
        datatype: Some(datatype),
        value,
        properties: Some(PropertySet::default().with_text("engUnit", "furlongs")),
        ..Metric::default()
    };
    let birth = Payload {
        timestamp: Some(1_000),
        metrics: vec![
            metric("line/speed", 1, DOUBLE, Some(MetricValue::Double(1.0))),
            metric("table", 2, 16, Some(MetricValue::DataSet(vec![]))),
            metric("total", 3, INT64, None),
            metric("total.", 4, INT64, None),
            metric(
                "Node Control/Reboot",
                5,
                11,
                Some(MetricValue::Boolean(false)),
            ),
        ],
        seq: Some(0),
    };
    let output = receive(&mut host, &message("spBv1.0/g/NBIRTH/n", &birth), 0);
    assert_eq!(
        values(&output),
        [("plant.g.n.line.speed".to_owned(), Value::Double(1.0), 1)]
    );
    for words in ["furlongs", "data set"] {
        assert!(
            output.notes.iter().any(|note| note.contains(words)),
            "{:?}",
            output.notes
        );
    }
    let data = |alias, value| Metric {
        alias: Some(alias),
        value: Some(value),
        ..Metric::default()
    };
    let payload = Payload {
        timestamp: Some(2_000),
        metrics: vec![
            data(2, MetricValue::DataSet(vec![])),
            data(3, MetricValue::Long(5)),
            data(3, MetricValue::String("x".to_owned())),
            // Its name differs from that of the metric before in what names of streams do not have.
            data(4, MetricValue::Long(6)),
        ],
        seq: Some(1),
    };
    let output = receive(&mut host, &message("spBv1.0/g/NDATA/n", &payload), 0);
    assert_eq!(
        values(&output),
        [
            ("plant.g.n.total".to_owned(), Value::Integer(5), 2),
            ("plant.g.n.total-f06173".to_owned(), Value::Integer(6), 2)
        ]
    );
    assert!(output.batch.undecodable[0].reason.contains("another type"));
    assert!(output.orders.is_empty(), "all aliases are known");
    let lost = &output.batch.lost[0];
    assert_eq!((lost.reason, lost.messages), ("metric_not_stored", 1));
}

#[test]
fn values_of_a_birth_certificate_that_are_not_stored_are_counted() {
    let mut host = Host::new("plant", 1);
    let metric = |name: &str, value| Metric {
        name: Some(name.to_owned()),
        datatype: Some(INT64),
        value,
        ..Metric::default()
    };
    let mut birth = Payload {
        timestamp: Some(1_000),
        metrics: vec![
            metric("a", Some(MetricValue::Long(1))),
            metric("b", Some(MetricValue::Long(2))),
        ],
        seq: Some(0),
    };
    let output = receive(&mut host, &message("spBv1.0/g/NBIRTH/n", &birth), 0);
    assert_eq!(values(&output).len(), 1);
    let lost = &output.batch.lost[0];
    assert_eq!((lost.reason, lost.messages), ("metric_not_stored", 1));
    birth.metrics[1].value = None;
    let output = receive(&mut host, &message("spBv1.0/g/NBIRTH/n", &birth), 0);
    assert!(output.batch.lost.is_empty());
}

#[test]
fn a_metric_keeps_the_data_type_of_its_elements() {
    let mut host = host();
    let birth = |datatype, value| {
        let payload = Payload {
            timestamp: Some(1_000),
            metrics: vec![Metric {
                name: Some("a".to_owned()),
                datatype: Some(datatype),
                value: Some(value),
                ..Metric::default()
            }],
            seq: Some(0),
        };
        message("spBv1.0/g/NBIRTH/n", &payload)
    };
    receive(&mut host, &birth(INT64, MetricValue::Long(1)), 0);
    let output = receive(&mut host, &birth(DOUBLE, MetricValue::Double(1.5)), 0);
    assert!(values(&output).is_empty());
    let reason = &output.batch.undecodable[0].reason;
    assert!(
        reason.contains("Integer") && reason.contains("Double"),
        "{reason}"
    );
    assert_eq!(output.batch.lost[0].reason, "metric_not_stored");
}

#[test]
fn a_historical_value_does_not_double_the_current_one() {
    let mut host = host();
    let metric = |name: &str, value, time| Metric {
        name: Some(name.to_owned()),
        alias: Some(1),
        timestamp: Some(time),
        datatype: Some(INT64),
        value: Some(MetricValue::Long(value)),
        ..Metric::default()
    };
    let payload = |metric, seq| Payload {
        metrics: vec![metric],
        seq: Some(seq),
        ..Payload::default()
    };
    let birth = message("spBv1.0/g/NBIRTH/n", &payload(metric("a", 5, 9_000), 0));
    assert_eq!(values(&receive(&mut host, &birth, 0)).len(), 1);
    // An empty name is none.
    let data = message("spBv1.0/g/NDATA/n", &payload(metric("", 4, 3_000), 1));
    let expected = ("plant.g.n.a".to_owned(), Value::Integer(4), 3);
    assert_eq!(values(&receive(&mut host, &data, 0)), [expected]);
    assert!(values(&receive(&mut host, &birth, 0)).is_empty());
}

#[test]
fn elements_before_1970_are_refused() {
    let mut edge = Edge::new("site", "chappe", 7);
    edge.births(Timestamp(0));
    let elements = vec![element(1, 0), element(2, -1), element(3, SECOND)];
    let mut messages = Vec::new();
    let refused = edge.elements(&part(elements), Timestamp(0), &mut messages);
    assert_eq!(refused.len(), 1);
    assert!(refused[0].0 == 1 && refused[0].1.contains("1970"));
    let ranges: Vec<_> = messages.into_iter().map(|(_, range)| range).collect();
    assert_eq!(ranges, [0..0, 0..1, 2..3]);
}

#[test]
fn a_primary_host_is_online_by_its_newest_certificate() {
    let mut host = PrimaryHost::default();
    for (state, expected) in [
        (r#"{"online": true, "timestamp": 5}"#, true),
        (r#"{"online": false, "timestamp": 4}"#, true),
        (r#"{"online": false, "timestamp": 5}"#, false),
        ("OFFLINE", false),
        (r#"{"online": true, "timestamp": 6}"#, true),
    ] {
        host.receive(state.as_bytes());
        assert_eq!(host.is_online(), expected, "{state}");
    }
}

#[test]
fn keys_are_devices_of_their_own() {
    let mut edge = Edge::new("site", "chappe", 0);
    edge.births(Timestamp(0));
    let keyed = |key: &str| StreamElement {
        key: Some(key.to_owned()),
        ..element(1, 0)
    };
    let messages = sent(
        &mut edge,
        &part(vec![keyed("a/b"), keyed("c"), keyed("c")]),
        0,
    );
    let topics: Vec<&str> = messages.iter().map(|message| &*message.topic).collect();
    let device = |verb: &str, key: &str| format!("spBv1.0/site/{verb}/chappe/room.climate:{key}");
    let expected = [
        device("DBIRTH", "a%2Fb"),
        device("DDATA", "a%2Fb"),
        device("DBIRTH", "c"),
        device("DDATA", "c"),
    ];
    assert_eq!(topics, expected);
    let births = edge.births(Timestamp(0));
    assert_eq!(births.len(), 3, "the edge node and both devices");
}

proptest! {
    #[test]
    fn each_element_arrives_once_whatever_is_lost(
        numbers in prop::collection::vec(any::<i32>(), 1..60),
        lost in prop::collection::vec(any::<bool>(), 1..8),
    ) {
        let (mut edge, mut host) = (Edge::new("site", "chappe", 7), host());
        let mut queue = edge.births(Timestamp(0));
        let (mut expected, mut found, mut missing) = (Vec::new(), Vec::new(), 0);
        for (index, number) in numbers.iter().enumerate() {
            // Far apart, so that each request is sent.
            let now = (index as i64 + 1) * 20 * SECOND;
            queue.extend(sent(&mut edge, &part(vec![element((*number).into(), now)]), now));
            for message in std::mem::take(&mut queue) {
                let is_data = message.topic.contains("DDATA");
                if is_data && lost[index % lost.len()] {
                    missing += 1;
                    continue;
                }
                let output = receive(&mut host, &message, now);
                missing -= output.batch.lost.iter().map(|lost| lost.messages).sum::<u64>();
                if is_data {
                    expected.push(Value::Integer((*number).into()));
                }
                let counts = values(&output).into_iter().filter(|one| one.0 == COUNT);
                // The rebirth below brings the value of a message that was lost.
                found.extend(counts.filter(|_| is_data).map(|(_, value, _)| value));
                if !output.orders.is_empty() {
                    queue.extend(edge.births(Timestamp(now)));
                }
            }
        }
        prop_assert_eq!(found, expected);
        prop_assert!(missing <= numbers.len() as u64);
    }

    #[test]
    fn no_messages_panic(
        messages in prop::collection::vec(
            (
                "spBv1.0/g/(N|D)(BIRTH|DATA|DEATH|CMD)/n(/d)?",
                prop::collection::vec(
                    (
                        prop::option::of("[ab/]{1,3}|bdSeq"),
                        prop::option::of(0_u64..4),
                        prop::option::of(any::<u64>()),
                        prop::option::of(0_u32..40),
                        prop_oneof![
                            Just(None),
                            any::<u64>().prop_map(|it| Some(MetricValue::Long(it))),
                            any::<u32>().prop_map(|it| Some(MetricValue::Int(it))),
                            prop::collection::vec(any::<u8>(), 0..9).prop_map(|it| Some(MetricValue::Bytes(it))),
                        ],
                    ),
                    0..6,
                ),
                prop::option::of(0_u64..300),
            ),
            0..30,
        ),
    ) {
        let mut host = Host::new("plant", 3);
        for (index, (topic, metrics, seq)) in messages.into_iter().enumerate() {
            let metrics = metrics.into_iter().map(|(name, alias, timestamp, datatype, value)| Metric {
                name, alias, timestamp, datatype, value, ..Metric::default()
            });
            let payload = Payload { timestamp: None, metrics: metrics.collect(), seq };
            receive(&mut host, &message(&topic, &payload), index as i64 * SECOND);
        }
    }
}
