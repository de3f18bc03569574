//! Goal: JSON by paths of RFC 9535: readings of one message, names from topics, and bad records among good ones.

use chappe_format::{Decoder, Format, Limits, Message, Output, Pattern};
use chappe_stream::{Samples, Timestamp, Value};

use crate::common::{NOW, decode, decode_with, decoder, refused, text, values};

const CLIMATE: &str = r#"
names = ["line", "machine"]
format = { json = { each = "$.readings[*]", time = "$.ts" } }
[[stream]]
name = "climate.{line}"
key = "{machine}"
fields = [{ name = "celsius", path = "$.t", type = "double", unit = "Cel" }]
"#;

#[test]
fn the_topic_names_stream_and_key() {
    let pattern = Pattern::topic("plant/{line}/{machine}/climate").unwrap();
    let attributes = pattern.matches("plant/Line 3/press/climate").unwrap();
    let body = br#"{"ts": "2026-11-21T09:00:00Z", "readings": [
        {"t": 21.5}, {"t": "22", "ts": "2026-11-21T09:00:01+00:00"}]}"#;
    let mut decoder = decoder(CLIMATE);
    let (elements, faults) = decode_with(&mut decoder, body, &attributes);
    assert_eq!(faults, Vec::<String>::new());
    let [(stream, first), (_, second)] = &elements[..] else {
        panic!("{elements:?}")
    };
    assert_eq!(
        (stream.as_str(), first.key.as_deref()),
        ("climate.line-3", Some("press"))
    );
    assert_eq!(first.source_time.to_string(), "2026-11-21T09:00:00Z");
    assert_eq!(second.source_time.to_string(), "2026-11-21T09:00:01Z");
    assert_eq!(second.values, [Value::Double(22.0)]);
    assert_eq!(second.receive_time, NOW);
    assert_eq!(decoder.streams()[0].schema.key.as_deref(), Some("machine"));
}

#[test]
fn one_wrong_reading_of_a_hundred_costs_one_element() {
    let config = r#"
format = { json = { each = "$[*]" } }
[[stream]]
name = "a"
fields = [{ name = "v", type = "double" }, { name = "w", type = "text" }]
"#;
    let readings: Vec<String> = (0..100)
        .map(|index| match index {
            41 => r#"{"v": "hot", "w": "x"}"#.to_owned(),
            _ => format!(r#"{{"v": {index}}}"#),
        })
        .collect();
    let body = format!("[{}]", readings.join(","));
    let (elements, faults) = decode(config, body.as_bytes());
    assert_eq!(elements.len(), 99);
    assert_eq!(
        faults,
        [r#"record 42: a: field "v": "hot" is not of type double"#]
    );
}

#[test]
fn types_are_exact() {
    let config = r#"
format = "json"
[[stream]]
name = "a"
fields = [
    { name = "b", type = "boolean" },
    { name = "i", type = "integer" },
    { name = "d", type = "double" },
    { name = "t", type = "text" },
    { name = "x", type = "bytes" },
    { name = "h", type = "bytes", encoding = "hex" },
    { name = "s", type = "samples", period_s = 0.004, path = "$.s[*].v" },
]
"#;
    let body =
        br#"{"b": true, "i": 9007199254740993, "d": 0.1, "t": {"k": [1]}, "x": "AQI=", "h": "0aff",
        "s": [{"v": 1}, {"v": 2.5}]}"#;
    let samples = Samples {
        start: NOW,
        period_ns: 4_000_000,
        values: vec![1.0, 2.5],
    };
    let wanted = vec![
        Value::Boolean(true),
        Value::Integer(9_007_199_254_740_993),
        Value::Double(0.1),
        text(r#"{"k":[1]}"#),
        Value::Bytes(vec![1, 2]),
        Value::Bytes(vec![10, 255]),
        Value::Samples(samples),
    ];
    assert_eq!(values(config, body), [wanted]);
    let body = br#"{"b": null, "i": -9223372036854775808}"#;
    let mut wanted = vec![Value::Null; 7];
    wanted[1] = Value::Integer(i64::MIN);
    assert_eq!(values(config, body), [wanted]);
}

#[test]
fn messages_that_cannot_be_read_name_the_position() {
    let fault = refused(CLIMATE, b"{\"ts\": 1,\n \"readings\": [1,}]}");
    assert!(fault.starts_with("line 2, byte 26: not JSON"), "{fault}");
    let fault = refused(CLIMATE, "[".repeat(500).as_bytes());
    assert!(fault.contains("recursion"), "{fault}");
    assert!(refused(CLIMATE, b"").contains("EOF"));
    let large = vec![b' '; (1 << 20) + 1];
    assert_eq!(
        refused(CLIMATE, &large),
        "message: limit message_bytes of 1048576 is exceeded"
    );
}

#[test]
fn lines_are_documents() {
    let config = r#"
format = { json = { lines = true, time = "$.at", time_format = "ms" } }
[[stream]]
name = "a"
fields = [{ name = "v", type = "integer", required = true }, { name = "w", type = "integer" }]
"#;
    let body =
        b"{\"v\": 1, \"at\": 1795255200500}\n\n{\"v\": }\n{\"w\": 3}\n{\"v\": 2, \"at\": null}\r\n";
    let (elements, faults) = decode(config, body);
    let times: Vec<_> = elements.iter().map(|(_, it)| it.source_time).collect();
    assert_eq!(times, [Timestamp(NOW.0 + 500_000_000), NOW]);
    assert!(
        faults[0].starts_with("line 3, byte 37: not JSON"),
        "{faults:?}"
    );
    assert_eq!(
        faults[1],
        "record 2, line 4, byte 39: a: field \"v\": the value is required and missing"
    );
}

#[test]
fn elements_and_work_are_bounded() {
    let text = r#"
format = { json = { each = "$[*]" } }
[[stream]]
name = "a"
fields = [{ name = "v", path = "$", type = "integer" }]
"#;
    let document: chappe_format::FormatDocument = toml::from_str(text).unwrap();
    let place = chappe_stream::descriptor::Place { file: "f", text };
    let limits = Limits {
        elements: 10,
        path_steps: 200,
        ..Limits::default()
    };
    let format = Format::new(place, &document.format, &document.stream, &[], limits).unwrap();
    let mut decoder = Decoder::new(format.into());
    let mut output = Output::default();
    let body = format!("[{}1]", "1,".repeat(50));
    let message = Message::new(body.as_bytes(), NOW);
    decoder.decode(&message, &mut output).unwrap();
    assert_eq!(output.elements.len(), 10);
    assert_eq!(output.faults[0].reason.code(), "limit");
    let body = format!("[{}1]", "1,".repeat(500));
    let message = Message::new(body.as_bytes(), NOW);
    let fault = decoder.decode(&message, &mut output).unwrap_err();
    assert_eq!(
        fault.to_string(),
        "message: limit path_steps of 200 is exceeded"
    );
}

#[test]
fn a_record_finds_values_of_the_whole_message() {
    let config = r#"
format = { json = { each = "$.items[?@.ok == true]" } }
[[stream]]
name = "gateway.{device}"
variables = { device = "$$.device.id" }
fields = [{ name = "v", type = "integer" }]
"#;
    let body =
        br#"{"device": {"id": "GW_7"}, "items": [{"ok": true, "v": 1}, {"ok": false, "v": 2}]}"#;
    let (elements, faults) = decode(config, body);
    assert_eq!(faults, Vec::<String>::new());
    assert_eq!(elements.len(), 1);
    assert_eq!(elements[0].0, "gateway.gw_7");
    let (_, faults) = decode(config, br#"{"items": [{"ok": true, "v": 1}]}"#);
    assert_eq!(
        faults,
        ["record 1: gateway.{device}: there is no value for {device}"]
    );
}

#[test]
fn units_convert() {
    let config = r#"
format = "json"
[[stream]]
name = "a"
fields = [
    { name = "celsius", path = "$.f", type = "double", unit = "Cel", source_unit = "[degF]" },
    { name = "pressure", path = "$.p.v", type = "double", unit = "hPa", source_unit_path = "$.p.u" },
]
"#;
    let found = values(config, br#"{"f": 212, "p": {"v": 1, "u": "bar"}}"#);
    let [Value::Double(celsius), Value::Double(pressure)] = found[0][..] else {
        panic!("{found:?}")
    };
    assert!((celsius - 100.0).abs() < 1e-9 && (pressure - 1_000.0).abs() < 1e-9);
    let (_, faults) = decode(config, br#"{"p": {"v": 1, "u": "m"}}"#);
    assert_eq!(
        faults,
        [r#"record 1: a: field "pressure": "m" does not convert into "hPa""#]
    );
}

#[test]
fn times_far_ahead_are_refused() {
    let (elements, faults) = decode(
        CLIMATE.replace("names =", "# \nnames =").as_str(),
        br#"{"ts": "2036-01-01T00:00:00Z", "readings": [{"t": 1}]}"#,
    );
    assert!(elements.is_empty());
    assert!(
        faults[0].contains("ahead of this node's clock"),
        "{faults:?}"
    );
}

#[test]
fn repeated_parts_of_a_message_are_bounded() {
    let config = |records: &str| {
        format!(
            r#"
format = {{ json = {{ each = "$.records[*]" }} }}
[[stream]]
name = "a"
fields = [{records}]
"#
        )
    };
    let note = "x".repeat(100_000);
    let body = format!(
        r#"{{"note": "{note}", "records": [{}{{}}]}}"#,
        "{},".repeat(999)
    );
    let bound = 16 * body.len() + (8 << 20);
    let limit = format!("limit read_bytes of {bound} is exceeded");
    let one = r#"{ name = "note", path = "$$.note", type = "text" }"#;
    let (elements, faults) = decode(&config(one), body.as_bytes());
    assert!(
        elements.len() <= bound / note.len() + 1,
        "{}",
        elements.len()
    );
    assert!(faults[0].ends_with(&limit), "{faults:?}");
    // A record that is too large counts, too.
    let many: Vec<_> = (0..22)
        .map(|it| format!(r#"{{ name = "f{it}", path = "$$.note", type = "text" }}"#))
        .collect();
    let (elements, faults) = decode(&config(&many.join(", ")), body.as_bytes());
    assert!(elements.is_empty());
    assert!(faults.len() < 20, "{}", faults.len());
    assert!(faults.last().unwrap().ends_with(&limit), "{faults:?}");
}
