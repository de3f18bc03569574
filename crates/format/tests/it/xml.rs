//! Goal: XML by paths: repeated elements, attributes, namespaces and units.

use chappe_stream::Value;

use crate::common::{decode, refused, values};

#[test]
fn elements_and_attributes() {
    let config = r#"
format = { xml = { each = "Readings/Reading", time = "@at" } }
[[stream]]
name = "scale.{site}"
key = "{sensor}"
variables = { site = "//@site", sensor = "Sensor/@id" }
fields = [{ name = "kg", path = "{urn:scale}Value", type = "double", required = true }, { name = "stable", path = "Value/@stable", type = "boolean" }]
"#;
    let body = b"<Weighed xmlns='urn:scale' site='North' at='2026-11-21T09:00:00Z'><Readings>
       <Reading at='2026-11-21T09:30:00Z'><Sensor id='left'/><Value stable='true'> 71.5 </Value></Reading>
       <Reading><Sensor id='right'/><Value>x</Value></Reading>
       <Reading><Sensor id='right'/><Value>2</Value></Reading>
     </Readings></Weighed>";
    let (elements, faults) = decode(config, body);
    assert_eq!(elements.len(), 2);
    assert_eq!(elements[0].0, "scale.north");
    assert_eq!(elements[0].1.key.as_deref(), Some("left"));
    assert_eq!(
        elements[0].1.values,
        [Value::Double(71.5), Value::Boolean(true)]
    );
    assert_eq!(
        elements[0].1.source_time.to_string(),
        "2026-11-21T09:30:00Z"
    );
    assert_eq!(
        elements[1].1.source_time.to_string(),
        "2026-11-21T09:00:00Z"
    );
    assert_eq!(
        faults,
        ["record 2: scale.{site}: field \"kg\": \"x\" is not of type double"]
    );
    assert!(refused(config, b"<a><b></a>").starts_with("message, byte"));
}

#[test]
fn a_path_of_the_message_is_searched_once_for_all_records() {
    let config = r#"
format = { xml = { each = "R" } }
[[stream]]
name = "a"
fields = [{ name = "v", path = "//last", type = "integer" }]
"#;
    let body = format!("<m>{}<last> 7 </last></m>", "<R/>".repeat(32_000));
    let start = std::time::Instant::now();
    let found = values(config, body.as_bytes());
    assert_eq!(found.len(), 32_000);
    assert_eq!(found[0], [Value::Integer(7)]);
    // Searched for each record, this takes a billion steps.
    assert!(start.elapsed().as_secs() < 8, "{:?}", start.elapsed());
}
