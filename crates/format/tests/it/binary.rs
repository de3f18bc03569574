//! Goal: binary layouts: offsets, endianness, bits, scales, repeated records, and bytes that are too short.

use chappe_stream::{Samples, Value};

use crate::common::{NOW, decode, refused, text, values};

#[test]
fn all_types_in_both_orders() {
    let config = r#"
format = { binary = { layout = [
    { name = "u8", at = 0, type = "u8" },
    { name = "i16", at = 1, type = "i16", scale = 0.1, add = -40 },
    { name = "i24", at = 3, type = "i24", byte_order = "little" },
    { name = "u64", at = 6, type = "u64" },
    { name = "f32", at = 14, type = "f32" },
    { name = "name", at = 18, type = "text", length = 4 },
    { name = "flag", at = 0, type = "u8", bit = 7 },
    { name = "low", at = 0, type = "u8", bit = 0, bits = 4 },
    { name = "wave", at = 22, type = "u8", count = 3, scale = 2 },
    { name = "rest", at = 25, type = "bytes" },
    { name = "gone", at = 0, type = "u8", null_number = 133 },
] } }
[[stream]]
name = "{name}"
fields = [
    { name = "u8", type = "integer" }, { name = "i16", type = "double" }, { name = "i24", type = "integer" },
    { name = "u64", type = "integer" }, { name = "f32", type = "double" }, { name = "name", type = "text" },
    { name = "flag", type = "boolean" }, { name = "low", type = "integer" },
    { name = "wave", type = "samples", period_s = 1 }, { name = "rest", type = "bytes" },
    { name = "gone", type = "integer" },
]
"#;
    let mut body = vec![0x85, 0x02, 0x58, 0xfe, 0xff, 0xff];
    body.extend(9_007_199_254_740_993_u64.to_be_bytes());
    body.extend(1.5_f32.to_be_bytes());
    body.extend(b"ab\0x\x01\x02\x03\xff");
    let samples = Samples {
        start: NOW,
        period_ns: 1_000_000_000,
        values: vec![2.0, 4.0, 6.0],
    };
    let wanted = vec![
        Value::Integer(0x85),
        Value::Double(20.0),
        Value::Integer(-2),
        Value::Integer(9_007_199_254_740_993),
        Value::Double(1.5),
        text("ab"),
        Value::Boolean(true),
        Value::Integer(5),
        Value::Samples(samples),
        Value::Bytes(vec![0xff]),
        Value::Null,
    ];
    assert_eq!(values(config, &body), [wanted]);
    assert_eq!(
        refused(config, &body[..20]),
        "message: the record needs 25 bytes, the message has 20 left"
    );
}

#[test]
fn records_repeat_after_a_header() {
    let config = r#"
format = { binary = { header_bytes = 2, record_bytes = 3, byte_order = "little", header = [
    { name = "station", at = 0, type = "u16" },
], layout = [
    { name = "channel", at = 0, type = "u8" },
    { name = "v", at = 1, type = "i16" },
] } }
[[stream]]
name = "station.{station}"
key = "{channel}"
fields = [{ name = "v", type = "integer" }]
"#;
    let (elements, faults) = decode(config, &[1, 1, 7, 1, 0, 8, 0xff, 0xff, 9, 1]);
    assert_eq!(elements.len(), 2);
    assert_eq!(elements[1].0, "station.257");
    assert_eq!(elements[1].1.key.as_deref(), Some("8"));
    assert_eq!(elements[1].1.values, [Value::Integer(-1)]);
    assert_eq!(
        faults,
        ["record 3, byte 8: the record needs 3 bytes, the message has 2 left"]
    );
}
