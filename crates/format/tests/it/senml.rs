//! Goal: SenML (RFC 8428): base values, resolved records and relative times.

use chappe_stream::{Timestamp, Value};

use crate::common::{NOW, decode, text, values};

const RECORDS: &str = r#"
format = "senml"
[[stream]]
name = "senml.{name}"
fields = [{ name = "value", type = "double", unit = "A" }]
"#;

#[test]
fn base_values_are_resolved() {
    // RFC 8428, 5.1.3, with times of this century's present.
    let body = br#"[
        {"bn": "urn:dev:ow:10e2073a01080063:", "bt": 1.795255200001e+09, "bu": "A", "bver": 5, "n": "voltage", "u": "V", "v": 120.1},
        {"n": "current", "t": -5, "v": 1.2},
        {"n": "current", "t": 0, "v": 1.7, "x": "unknown"},
        {"n": "current", "v": "high"},
        {"n": "current", "x_": 1, "v": 1},
        {"bt": 0, "n": "current", "v": 3, "t": -2}
    ]"#;
    let (elements, faults) = decode(RECORDS, body);
    let found: Vec<_> = elements
        .iter()
        .map(|(_, it)| it.values[0].clone())
        .collect();
    assert_eq!(found, [1.2, 1.7, 3.0].map(Value::Double));
    assert_eq!(elements[0].0, "senml.urn-dev-ow-10e2073a01080063-current");
    assert_eq!(
        elements[0].1.source_time.to_string(),
        "2026-11-21T09:59:55.001Z"
    );
    assert_eq!(elements[2].1.source_time, Timestamp(NOW.0 - 2_000_000_000));
    assert_eq!(faults.len(), 3);
    assert!(
        faults[0].contains("\"V\" does not convert into \"A\""),
        "{faults:?}"
    );
    assert!(faults[1].contains("v is not a number"), "{faults:?}");
    assert!(faults[2].contains("must be understood"), "{faults:?}");
}

#[test]
fn records_of_one_time_are_one_element() {
    let config = r#"
format = { senml = { each = "time" } }
[[stream]]
name = "room.{base_name}"
fields = [
    { name = "celsius", path = "temp", type = "double", unit = "Cel" },
    { name = "humidity", path = "hum", type = "double", unit = "1" },
    { name = "count", type = "integer" },
    { name = "label", type = "text" },
    { name = "raw", type = "bytes" },
    { name = "open", type = "boolean" },
]
"#;
    let body = br#"[
        {"bn": "a1/", "bt": 1795255100, "n": "temp", "u": "K", "v": 295.15},
        {"n": "hum", "u": "%RH", "v": 40},
        {"n": "count", "v": 9007199254740993}, {"n": "label", "vs": "x"}, {"n": "raw", "vd": "-_8"},
        {"n": "open", "vb": false},
        {"n": "temp", "t": 10, "u": "Cel", "v": 23}
    ]"#;
    let found = values(config, body);
    assert_eq!(found.len(), 2);
    let Value::Double(celsius) = found[0][0] else {
        panic!()
    };
    assert!((celsius - 22.0).abs() < 1e-9);
    assert_eq!(
        found[0][1..],
        [
            Value::Double(0.4),
            Value::Integer(9_007_199_254_740_993),
            text("x"),
            Value::Bytes(vec![0xfb, 0xff]),
            Value::Boolean(false)
        ]
    );
    assert_eq!(found[1][0], Value::Double(23.0));
}

#[test]
fn sums_and_base_values_add_up() {
    let config = r#"
format = "senml"
[[stream]]
name = "a"
fields = [{ name = "v", type = "double" }, { name = "s", type = "double" }]
"#;
    let body = br#"[{"bn": "m", "bv": 100, "bs": 1000, "v": 5, "s": 1}, {"v": 6}]"#;
    assert_eq!(
        values(config, body),
        [
            [Value::Double(105.0), Value::Double(1_001.0)],
            [Value::Double(106.0), Value::Double(1_000.0)]
        ]
    );
}
