//! Announcements, states and retractions, and messages that are made up.

use super::*;
use proptest::prelude::*;

fn discovery() -> Discovery {
    Discovery::new("homeassistant", "home", 4)
}

fn receive(discovery: &mut Discovery, topic: &str, payload: &str) -> Output {
    changes(discovery, topic, payload).1
}

fn changes(discovery: &mut Discovery, topic: &str, payload: &str) -> (Changes, Output) {
    let mut output = Output::default();
    let changes = discovery.receive(topic, payload.as_bytes(), Timestamp(7), &mut output);
    (changes, output)
}

fn set(topics: &[&str]) -> BTreeSet<String> {
    topics.iter().map(|&topic| topic.to_owned()).collect()
}

fn values(output: &Output) -> Vec<(String, Element, Quality)> {
    let parts = output.batch.parts.iter();
    let of_part = |part: &crate::Part| {
        let stream = part.stream.to_string();
        let elements = part.elements.iter();
        elements
            .map(|it| (stream.clone(), it.values[0].clone(), it.quality))
            .collect::<Vec<_>>()
    };
    parts.flat_map(of_part).collect()
}

const TEMPERATURE: &str = r#"{"stat_t": "z/1", "unit_of_meas": "°C", "val_tpl": "{{ value_json.t }}",
    "avty_t": "z/1/lwt", "name": "Temperature"}"#;

#[test]
fn an_announced_entity_has_a_stream_until_it_is_retracted() {
    let mut discovery = discovery();
    let topic = "homeassistant/sensor/0x01/temperature/config";
    let (made, _) = changes(&mut discovery, topic, TEMPERATURE);
    assert_eq!(made.new, set(&["z/1", "z/1/lwt"]));
    let output = receive(&mut discovery, "z/1", r#"{"t": 21.5}"#);
    let stream = "home.sensor.0x01.temperature".to_owned();
    assert_eq!(
        values(&output),
        [(stream.clone(), Element::Double(21.5), Quality::Good)]
    );
    assert!(values(&receive(&mut discovery, "z/1/lwt", "online")).is_empty());
    let output = receive(&mut discovery, "z/1/lwt", "offline");
    assert_eq!(values(&output), [(stream, Element::Null, Quality::Bad)]);
    assert!(values(&receive(&mut discovery, "z/1/lwt", "offline")).is_empty());
    let output = receive(&mut discovery, "z/1", "warm");
    assert!(output.batch.undecodable[0].reason.contains("not JSON"));
    let (ended, _) = changes(&mut discovery, topic, "");
    assert_eq!((ended.gone, discovery.len()), (set(&["z/1", "z/1/lwt"]), 0));
}

#[test]
fn a_device_announces_several_entities_at_once() {
    let mut discovery = discovery();
    let config = r#"{"dev": {"ids": "d1", "name": "Kitchen"}, "o": {"name": "x"}, "state_topic": "k/state",
        "cmps": {"t": {"p": "sensor", "unit_of_measurement": "°C", "value_template": "{{ value_json.t }}"},
                 "door": {"p": "binary_sensor", "value_template": "{{ value_json.door }}"},
                 "old": {"p": "sensor"},
                 "lamp": {"p": "light", "command_topic": "k/set"}}}"#;
    let (made, output) = changes(&mut discovery, "homeassistant/device/d1/config", config);
    assert_eq!(made.new, set(&["k/state"]));
    assert_eq!(
        output.batch.undecodable.len(),
        1,
        "a light has no single value"
    );
    let output = receive(&mut discovery, "k/state", r#"{"t": 20, "door": "ON"}"#);
    let mut found = values(&output);
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let good = Quality::Good;
    assert_eq!(
        found,
        [
            (
                "home.binary_sensor.d1.door".to_owned(),
                Element::Boolean(true),
                good
            ),
            ("home.sensor.d1.t".to_owned(), Element::Double(20.0), good),
        ]
    );
}

#[test]
fn entities_beyond_the_limit_and_of_one_name_are_refused() {
    let mut discovery = discovery();
    let mut reasons = Vec::new();
    for object in ["a b", "a-b", "c", "d", "e", "f"] {
        let topic = format!("homeassistant/sensor/{object}/config");
        let output = receive(&mut discovery, &topic, r#"{"state_topic": "s"}"#);
        reasons.extend(output.batch.undecodable.into_iter().map(|one| one.reason));
    }
    assert_eq!((reasons.len(), discovery.len()), (2, 4));
    assert!(reasons[0].contains("another entity") && reasons[1].contains("4 entities"));
}

#[test]
fn a_long_state_is_one_dead_letter_for_all_entities_that_read_it() {
    let mut discovery = Discovery::new("homeassistant", "home", 1_000);
    let components: Vec<String> = (0..1_000)
        .map(|number| match number {
            0 => r#""c0": {"p": "sensor", "val_tpl": "{{ value_json.a }}"}"#.to_owned(),
            1 => r#""c1": {"p": "sensor", "val_tpl": "{{ value_json.b }}"}"#.to_owned(),
            number => format!(r#""c{number}": {{"p": "text", "name": "x"}}"#),
        })
        .collect();
    let config = format!(r#"{{"stat_t": "s", "cmps": {{{}}}}}"#, components.join(","));
    receive(&mut discovery, "homeassistant/device/d/config", &config);
    assert_eq!(discovery.len(), 1_000);
    let long = format!(r#"{{"a": "ok", "b": ["{}"]}}"#, "x".repeat(1 << 20));
    for (message, stored) in [
        (&*long, 1),
        (&*"ä".repeat(256), 0),
        (&*"ä".repeat(255), 998),
    ] {
        let output = receive(&mut discovery, "s", message);
        assert_eq!(output.batch.elements(), stored);
        assert_eq!(output.batch.undecodable.len(), 1);
        assert!(output.batch.weight() < 2 << 20);
    }
    let output = receive(&mut discovery, "s", &long);
    let reason = &output.batch.undecodable[0].reason;
    assert!(
        reason.contains("255 characters") && reason.ends_with("998 more entities"),
        "{reason}"
    );
}

#[test]
fn an_entity_keeps_the_unit_and_type_of_its_stored_elements() {
    let topic = "homeassistant/sensor/a/config";
    let config = |unit: &str| format!(r#"{{"state_topic": "s", "unit_of_measurement": "{unit}"}}"#);
    let mut before = discovery();
    receive(&mut before, topic, &config("°C"));
    let output = receive(&mut before, "s", "20");
    let schema = output.batch.parts[0].definition.schema.clone();
    let mut restarted = discovery();
    restarted.attach(&NodeParts {
        stream: Arc::new(move |name| {
            (name == "home.sensor.a").then(|| crate::StreamNow {
                name: name.to_owned(),
                schema: schema.clone(),
                level: chappe_log::Level::Power,
                last: 1,
                source: String::new(),
                metadata_bytes: 0,
            })
        }),
        ..NodeParts::default()
    });
    for mut discovery in [before, restarted] {
        let output = receive(&mut discovery, topic, &config("°F"));
        let reason = &output.batch.undecodable[0].reason;
        assert!(
            reason.contains("Cel") && reason.contains("degF"),
            "{reason}"
        );
        assert_eq!(discovery.len(), 0);
    }
}

#[test]
fn an_unknown_unit_is_noted_and_kept() {
    let config = r#"{"state_topic": "s", "unit_of_measurement": "furlongs"}"#;
    let mut discovery = discovery();
    let output = receive(&mut discovery, "homeassistant/sensor/a/config", config);
    assert!(output.notes[0].contains("furlongs"), "{:?}", output.notes);
}

proptest! {
    #[test]
    fn no_messages_panic_or_grow_without_limit(
        messages in prop::collection::vec(
            (
                "homeassistant/(sensor|device|switch)/[ab]/([cd]/)?config|s|z",
                prop_oneof![
                    Just(TEMPERATURE.to_owned()),
                    "[a-z0-9{}\":]{0,30}",
                    "\\{\"stat_t\": \"[sz]\", \"avty_t\": \"[sz]\"\\}",
                    "\\{\"cmps\": \\{\"[ab]\": \\{\"p\": \"sensor\", \"stat_t\": \"[a-z]\"\\}\\}\\}",
                ],
            ),
            0..40,
        ),
    ) {
        let mut discovery = discovery();
        let mut subscribed = std::collections::HashSet::new();
        for (topic, payload) in messages {
            let (made, _) = changes(&mut discovery, &topic, &payload);
            for topic in made.gone {
                prop_assert!(subscribed.remove(&topic));
            }
            for topic in made.new {
                prop_assert!(subscribed.insert(topic));
            }
            prop_assert!(discovery.len() <= 4 && subscribed.len() <= 16);
        }
    }
}

#[test]
fn entities_of_one_identifier_are_one_device_until_all_are_retracted() {
    let mut discovery = discovery();
    let device = r#""dev": {"ids": ["k1", "other"], "name": "Kitchen", "mf": "Acme", "mdl": "T1", "sw": "2.1"}"#;
    let (sensor, relay) = (
        "homeassistant/sensor/k1/t/config",
        "homeassistant/switch/k1/relay/config",
    );
    let config =
        format!(r#"{{"stat_t": "k/t", "unit_of_meas": "°C", "avty_t": "k/lwt", {device}}}"#);
    receive(&mut discovery, sensor, &config);
    let config = format!(r#"{{"cmd_t": "k/relay/set", {device}}}"#);
    receive(&mut discovery, relay, &config);
    receive(
        &mut discovery,
        "homeassistant/button/alone/config",
        r#"{"cmd_t": "b", "name": "Alone"}"#,
    );
    let reports = discovery.devices();
    let ids: Vec<&str> = reports.iter().map(|report| &*report.id).collect();
    assert_eq!(ids, ["button/alone", "k1"]);
    let kitchen = reports[1].device.clone().unwrap();
    assert_eq!(
        (
            &*kitchen.name,
            kitchen.manufacturer.as_deref(),
            kitchen.firmware.as_deref()
        ),
        ("Kitchen", Some("Acme"), Some("2.1"))
    );
    assert_eq!((kitchen.offline, kitchen.since), (None, Timestamp(7)));
    assert_eq!(&*kitchen.streams[0].0, "home.sensor.k1.t");
    assert_eq!(kitchen.operations[0].name, "switch/k1/relay");
    assert!(discovery.devices().is_empty(), "nothing is new");

    receive(&mut discovery, "k/lwt", "offline");
    let kitchen = discovery.devices().remove(0).device.unwrap();
    assert!(kitchen.offline.is_some());
    receive(&mut discovery, sensor, "");
    let kitchen = discovery.devices().remove(0).device.unwrap();
    assert!(kitchen.streams.is_empty() && kitchen.offline.is_none());
    receive(&mut discovery, relay, "");
    let gone = discovery.devices().remove(0);
    assert_eq!((&*gone.id, gone.device), ("k1", None));
}

#[test]
fn an_operation_is_called_on_its_topic_while_its_entity_is_available() {
    let mut discovery = discovery();
    let config =
        r#"{"stat_t": "h/t", "cmd_t": "h/set", "avty_t": "h/lwt", "max": 30, "dev": {"ids": "h"}}"#;
    receive(&mut discovery, "homeassistant/number/h/config", config);
    let call = |discovery: &Discovery, name: &str, value: Value| {
        let command = crate::Command {
            name: name.to_owned(),
            arguments: Map::from_iter([("value".to_owned(), value)]),
        };
        let made = discovery.operate("h", &command)?;
        Ok::<_, String>((made.publication.topic, made.publication.payload))
    };
    let made = call(&discovery, "number/h", 21.into());
    assert_eq!(made, Ok(("h/set".to_owned(), b"21".to_vec())));
    assert!(call(&discovery, "number/h", 31.into()).is_err());
    assert!(call(&discovery, "number/x", 21.into()).is_err());
    receive(&mut discovery, "h/lwt", "offline");
    let error = call(&discovery, "number/h", 21.into()).unwrap_err();
    assert!(error.contains("not available"), "{error}");
}

/// The topic that a call of an operation of a device publishes on.
fn called(discovery: &Discovery, device: &str, name: &str) -> Result<String, String> {
    let command = crate::Command {
        name: name.to_owned(),
        arguments: Map::from_iter([("value".to_owned(), Value::Bool(true))]),
    };
    Ok(discovery.operate(device, &command)?.publication.topic)
}

#[test]
fn the_first_operation_of_a_name_keeps_it() {
    let mut discovery = discovery();
    let honest = "homeassistant/switch/pump/valve/config";
    let own = r#"{"dev": {"ids": "pump"}, "cmd_t": "pump/valve"}"#;
    let other = r#"{"dev": {"ids": "pump"}, "o": {"name": "x"},
        "cmps": {"valve": {"p": "switch", "cmd_t": "other/valve"}}}"#;
    receive(&mut discovery, honest, own);
    let output = receive(&mut discovery, "homeassistant/device/pump/config", other);
    let reason = &output.batch.undecodable[0].reason;
    assert!(
        reason.contains("already") && reason.contains(honest),
        "{reason}"
    );
    let name = "switch/pump/valve";
    let expected = Ok("pump/valve".to_owned());
    assert_eq!(called(&discovery, "pump", name), expected);
    // Announced again, it stays the same; retracted, its name is free.
    receive(&mut discovery, honest, own);
    assert_eq!(called(&discovery, "pump", name), expected);
    receive(&mut discovery, honest, "");
    receive(&mut discovery, "homeassistant/device/pump/config", other);
    let expected = Ok("other/valve".to_owned());
    assert_eq!(called(&discovery, "pump", name), expected);
}

#[test]
fn the_whole_name_of_an_operation_identifies_it() {
    let mut discovery = discovery();
    let long = "x".repeat(130);
    for side in ["left", "right"] {
        let topic = format!("homeassistant/switch/{long}-{side}/config");
        let config = format!(r#"{{"dev": {{"ids": "lamp"}}, "cmd_t": "lamp/{side}"}}"#);
        receive(&mut discovery, &topic, &config);
    }
    for side in ["left", "right"] {
        let made = called(&discovery, "lamp", &format!("switch/{long}-{side}"));
        assert_eq!(made, Ok(format!("lamp/{side}")));
    }
    let topic = format!("homeassistant/switch/{}/config", "x".repeat(506));
    let config = r#"{"dev": {"ids": "lamp"}, "cmd_t": "lamp/x"}"#;
    let output = receive(&mut discovery, &topic, config);
    let reason = &output.batch.undecodable[0].reason;
    assert!(reason.contains("longer than 512 bytes"), "{reason}");
}
