//! What other programs wrote is read: `tests/data/README.md` says with which.

use chappe_stream::{Timestamp, Value};

use crate::common::{decode, text, values};

/// 2026-11-21T09:30:00Z.
const TIME: Timestamp = Timestamp(1_795_253_400_000_000_000);

#[test]
fn csv_of_python() {
    for (options, body) in [
        ("", &include_bytes!("../data/python-csv-excel.csv")[..]),
        ("", include_bytes!("../data/python-csv-unix.csv")),
        (
            "delimiter = \"\\t\", ",
            include_bytes!("../data/python-csv-tab.csv"),
        ),
    ] {
        let config = format!(
            r#"
format = {{ csv = {{ {options}time = "time" }} }}
[[stream]]
name = "a"
fields = [
    {{ name = "machine", type = "text" }}, {{ name = "celsius", type = "double" }},
    {{ name = "people", type = "integer" }}, {{ name = "note", type = "text" }},
]
"#
        );
        let (elements, faults) = decode(&config, body);
        assert_eq!(faults, Vec::<String>::new());
        assert!(
            elements
                .iter()
                .all(|(_, element)| element.source_time == TIME)
        );
        let found: Vec<_> = elements
            .into_iter()
            .map(|(_, element)| element.values)
            .collect();
        assert_eq!(
            found[..2],
            [
                vec![
                    text("press 1"),
                    Value::Double(21.5),
                    Value::Integer(3),
                    text("door \"open\", north"),
                ],
                vec![
                    text("press;2"),
                    Value::Double(1e-7),
                    Value::Integer(-9_007_199_254_740_993),
                    text("two\nlines"),
                ],
            ]
        );
        // Only the dialect that quotes everything tells an empty text from none.
        let empty = match body.starts_with(b"\"") {
            true => text(""),
            false => Value::Null,
        };
        let last = vec![
            empty.clone(),
            Value::Double(1e300),
            Value::Integer(0),
            empty,
        ];
        assert_eq!(found[2], last);
    }
}

#[test]
fn line_protocol_of_influxdb_client() {
    let config = r#"
format = "line_protocol"
[[stream]]
name = "climate.{line}"
key = "{machine}"
fields = [
    { name = "celsius", type = "double" }, { name = "people", type = "integer" },
    { name = "on", type = "boolean" }, { name = "note", type = "text" },
]
"#;
    let (elements, faults) = decode(config, include_bytes!("../data/influxdb-client.txt"));
    assert_eq!(faults, Vec::<String>::new());
    let (stream, first) = &elements[0];
    assert_eq!(stream, "climate.3");
    assert_eq!(
        (first.key.as_deref(), first.source_time),
        (Some("Press 1, north=a"), TIME)
    );
    assert_eq!(
        first.values,
        [
            Value::Double(21.5),
            Value::Integer(9_007_199_254_740_993),
            Value::Boolean(true),
            text("a \"b\" \\ c, d=e"),
        ]
    );
    // The client writes a blank after a last backslash, and InfluxDB reads it so.
    assert_eq!(elements[1].1.key.as_deref(), Some("x "));
    assert_eq!(
        elements[1].1.values[..2],
        [Value::Double(1e-7), Value::Integer(-1)]
    );
}

#[test]
fn sentences_of_pynmea2() {
    let config = r#"
format = "nmea"
[[stream]]
name = "a.{sentence}"
fields = [
    { name = "lat", type = "double" }, { name = "lon", type = "double" },
    { name = "speed", type = "double", unit = "m/s" },
]
"#;
    let (elements, faults) = decode(config, include_bytes!("../data/pynmea2.txt"));
    assert_eq!(faults, Vec::<String>::new());
    let names: Vec<_> = elements.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a.rmc", "a.gga", "a.vtg"]);
    assert_eq!(
        elements[0].1.values[..2],
        [Value::Double(48.125), Value::Double(-11.5)]
    );
    assert_eq!(elements[0].1.source_time, TIME);
    assert_eq!(elements[1].1.values[0], Value::Double(-33.0));
    assert_eq!(elements[1].1.source_time, TIME);
    assert_eq!(elements[2].1.values[2], elements[0].1.values[2]);
}

#[test]
fn structures_and_logs_of_python() {
    let config = r#"
format = { binary = { byte_order = "little", header_bytes = 6, record_bytes = 19,
    header = [{ name = "lab", at = 0, type = "text", length = 4 }, { name = "station", at = 4, type = "u16" }],
    layout = [
        { name = "a", at = 0, type = "u8" }, { name = "b", at = 1, type = "i16" }, { name = "c", at = 3, type = "u32" },
        { name = "d", at = 7, type = "f32" }, { name = "e", at = 11, type = "f64" },
    ] } }
[[stream]]
name = "{lab}.{station}"
fields = [
    { name = "a", type = "integer" }, { name = "b", type = "integer" }, { name = "c", type = "integer" },
    { name = "d", type = "double" }, { name = "e", type = "double" },
]
"#;
    let body = include_bytes!("../data/python-struct.bin");
    assert_eq!(decode(config, body).0[0].0, "lab.7");
    let found = values(config, body);
    let wanted = (1..4_i32).map(|number| {
        vec![
            Value::Integer(number.into()),
            Value::Integer((-number).into()),
            Value::Integer(u32::MAX.into()),
            Value::Double(f64::from(number) / 2.0),
            Value::Double(f64::from(number) / 3.0),
        ]
    });
    assert_eq!(found, wanted.collect::<Vec<_>>());

    let config = r#"
format = { regex = { pattern = '^(?<at>\S+ \S+) INFO oven\.(?<oven>\w+): celsius=(?<celsius>.*)$', time = "at", time_format = "%Y-%m-%d %H:%M:%S%f" } }
[[stream]]
name = "oven.{oven}"
fields = [{ name = "celsius", type = "double" }]
"#;
    let (elements, faults) = decode(config, include_bytes!("../data/python-logging.txt"));
    assert_eq!(faults, Vec::<String>::new());
    assert_eq!(elements[0].1.source_time, Timestamp(TIME.0 + 250_000_000));
    assert_eq!(elements[1].1.values, [Value::Double(-1.0)]);
}
