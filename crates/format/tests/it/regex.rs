//! Goal: lines by regular expressions with named groups.

use chappe_stream::Value;

use crate::common::{decode, refused, values};

#[test]
fn groups_of_lines() {
    let config = r#"
format = { regex = { pattern = '^(?<at>\S+) (?<unit>\w+): (?<celsius>[-0-9.]+)', time = "at" } }
[[stream]]
name = "oven.{unit}"
fields = [{ name = "celsius", type = "double" }]
"#;
    let body = b"2026-11-21T09:00:00Z north: 180.5 C\nnoise\n2026-11-21T09:00:01Z south: 1.2.3\n";
    let (elements, faults) = decode(config, body);
    assert_eq!(elements.len(), 1);
    assert_eq!(elements[0].0, "oven.north");
    assert_eq!(
        elements[0].1.source_time.to_string(),
        "2026-11-21T09:00:00Z"
    );
    assert_eq!(
        faults[0],
        "record 2, line 2, byte 36: the expression does not match \"noise\""
    );
    assert!(faults[1].contains("not of type double"));
}

#[test]
fn a_whole_message_is_searched() {
    let config = r#"
format = { regex = { pattern = '(?s)<v>(?<v>.*?)</v>', whole = true, unmatched = "skip" } }
[[stream]]
name = "a"
fields = [{ name = "v", type = "integer" }]
"#;
    assert_eq!(
        values(config, b"<v>1</v> <v>\n2</v>"),
        [[Value::Integer(1)], [Value::Integer(2)]]
    );
    assert!(values(config, b"none").is_empty());
    let strict = config.replace(", unmatched = \"skip\"", "");
    assert!(refused(&strict, b"none").contains("does not match"));
}
