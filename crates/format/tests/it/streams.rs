//! Goal: templates name streams, keys and fields from the values of messages, within their limits.

use chappe_format::Attributes;
use chappe_stream::Value;

use crate::common::{decode, decode_with, decoder};

#[test]
fn templates_make_a_bounded_number_of_streams() {
    let config = r#"
format = { json = { each = "$[*]" } }
[[stream]]
name = "s.{id}"
streams_max = 3
variables = { id = "$.id" }
fields = [{ name = "v", type = "integer" }]
"#;
    let body: Vec<String> = (0..6)
        .map(|id| format!(r#"{{"id": {}, "v": 1}}"#, id % 5))
        .collect();
    let (elements, faults) = decode(config, format!("[{}]", body.join(",")).as_bytes());
    let names: Vec<_> = elements.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["s.0", "s.1", "s.2", "s.0"]);
    assert_eq!(faults.len(), 2);
    assert!(faults[0].contains("streams_max"), "{faults:?}");
}

#[test]
fn values_that_give_one_name_are_told_apart() {
    let config = r#"
names = ["line"]
format = "json"
[[stream]]
name = "s.{line}"
fields = [{ name = "v", type = "integer" }]
"#;
    let mut decoder = decoder(config);
    let mut decode = |line: &str| {
        let mut attributes = Attributes::new();
        attributes.set("line", line);
        decode_with(&mut decoder, br#"{"v": 1}"#, &attributes)
    };
    assert_eq!(decode("Line A").0[0].0, "s.line-a");
    let (elements, faults) = decode("line/a");
    assert!(
        elements.is_empty() && faults[0].contains("as other values did"),
        "{faults:?}"
    );
    assert_eq!(decode("Line A").0[0].0, "s.line-a");
    assert!(decode(&"x".repeat(300)).1[0].contains("value_bytes"));
    assert!(decode("").1[0].contains("no value for {line}"));
}

#[test]
fn names_may_be_refused_instead_of_converted() {
    let config = r#"
names = ["line"]
format = "json"
[[stream]]
name = "s.{line}"
name_values = "refuse"
fields = [{ name = "v", type = "integer" }]
"#;
    let mut decoder = decoder(config);
    for (line, is_accepted) in [("a_b", true), ("A", false), ("a.b", false), ("ä", false)] {
        let mut attributes = Attributes::new();
        attributes.set("line", line);
        let (elements, faults) = decode_with(&mut decoder, br#"{"v": 1}"#, &attributes);
        assert_eq!(
            (elements.len() == 1, faults.is_empty()),
            (is_accepted, is_accepted),
            "{line}"
        );
    }
}

#[test]
fn a_field_may_be_named_by_the_topic() {
    let config = r#"
names = ["room", "quantity"]
format = "json"
[[stream]]
name = "{room}.{quantity}"
fields = [{ name = "{quantity}", path = "$", type = "double" }]
"#;
    let mut decoder = decoder(config);
    for (quantity, name) in [("Air-Temp", "air_temp"), ("2nd", "_2nd")] {
        let mut attributes = Attributes::new();
        attributes.set("room", "a");
        attributes.set("quantity", quantity);
        let (elements, faults) = decode_with(&mut decoder, b"21.5", &attributes);
        assert_eq!(faults, Vec::<String>::new());
        assert_eq!(elements[0].1.values, [Value::Double(21.5)]);
        assert_eq!(
            decoder.streams().last().unwrap().schema.fields[0].name,
            name
        );
    }
}

#[test]
fn several_streams_take_their_records() {
    let config = r#"
format = { json = { lines = true } }
[[stream]]
name = "a"
fields = [{ name = "t", type = "double" }]
[[stream]]
name = "b"
fields = [{ name = "h", type = "double" }]
[[stream]]
name = "a"
fields = [{ name = "t", path = "$.temp", type = "double" }]
[[stream]]
name = "b"
fields = [{ name = "x", type = "double" }]
"#;
    let body = b"{\"t\": 1}\n{\"t\": 1, \"h\": 2}\n{\"temp\": 3}\n{\"x\": 1}\n{}\n";
    let (elements, faults) = decode(config, body);
    let names: Vec<_> = elements.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "a", "b", "a"]);
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(
        faults[0].contains("has other fields by another"),
        "{faults:?}"
    );
    assert!(faults[1].contains("no field of any stream"), "{faults:?}");
}
