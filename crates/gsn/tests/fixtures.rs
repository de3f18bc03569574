//! Goal: frames of a running server are read exactly, and written as it writes them.
//! Method: the files of `fixtures/`, which a GSN 2.0.1 server sent (its `multiformat` wrapper; constants added by the
//! SQL of a virtual sensor). The expected values are those of its H2 database, read by H2's own shell.

use chappe_gsn::kryo::{
    DataType, GsnElement, GsnValue, KryoError, decode_element, decode_structure, encode_element,
    encode_structure,
};
use chappe_gsn::mapping;
use chappe_stream::{FieldType, Timestamp, Value};

const PRODUCER: &[u8] = include_bytes!("fixtures/producer.publication");
const PRODUCER_STRUCTURE: &[u8] = include_bytes!("fixtures/producer.structure");
const TYPES: &[u8] = include_bytes!("fixtures/types.publication");
const TYPES_STRUCTURE: &[u8] = include_bytes!("fixtures/types.structure");
const MANY: &[u8] = include_bytes!("fixtures/many.publication");
const DELIVERY: &[u8] = include_bytes!("fixtures/producer.delivery");

/// The element of a publication, whose topic is `name: `.
fn published(frame: &[u8], name: &str) -> GsnElement {
    let frame = frame.strip_prefix(format!("{name}: ").as_bytes()).unwrap();
    let element = decode_element(frame).unwrap();
    assert_eq!(
        encode_element(&element, Vec::new()).unwrap(),
        frame,
        "it is written as the server writes it"
    );
    element
}

#[test]
fn a_publication_has_the_values_of_the_database() {
    let element = published(PRODUCER, "producer");
    assert_eq!(
        (element.timed_ms, element.is_timed),
        (1_795_649_036_135, true)
    );
    assert_eq!(element.names, ["LIGHT", "TEMPERATURE", "PACKET_TYPE"]);
    assert_eq!(
        element.types,
        [DataType::Double, DataType::Double, DataType::Integer]
    );
    assert_eq!(
        element.values,
        [
            GsnValue::Double(539.2),
            GsnValue::Double(6.7),
            GsnValue::Integer(2)
        ]
    );
}

#[test]
fn every_type_is_exact() {
    let element = published(TYPES, "types");
    assert_eq!(element.timed_ms, 1_795_649_036_349);
    let text = |text: &str| GsnValue::Text(text.to_owned());
    let expected = [
        ("LIGHT", DataType::Double, GsnValue::Double(223.5)),
        (
            "BIG",
            DataType::Bigint,
            GsnValue::Long(9_007_199_254_740_993),
        ),
        ("BIGNEG", DataType::Bigint, GsnValue::Long(-i64::MAX)),
        ("I", DataType::Integer, GsnValue::Integer(-2_147_483_647)),
        ("S", DataType::Smallint, GsnValue::Short(-300)),
        ("T", DataType::Tinyint, GsnValue::Byte(-5)),
        ("F", DataType::Float, GsnValue::Float(1.5)),
        ("VC", DataType::Varchar, text("hello world")),
        ("CH", DataType::Char, text("ab")),
        (
            "BIN",
            DataType::Binary,
            GsnValue::Bytes(vec![0x00, 0xFF, 0x80, 0xDE, 0xAD, 0xBE, 0xEF]),
        ),
        ("NUL", DataType::Integer, GsnValue::Null),
        ("NULVC", DataType::Varchar, GsnValue::Null),
        ("ONE", DataType::Varchar, text("x")),
        ("EMPTY", DataType::Varchar, text("")),
        ("UNI", DataType::Varchar, text("grün 漢字")),
        (
            "LONG_TEXT",
            DataType::Varchar,
            text(&"0123456789".repeat(12)),
        ),
    ];
    let found = element
        .names
        .iter()
        .zip(&element.types)
        .zip(&element.values);
    let found: Vec<_> = found
        .map(|((name, kind), value)| (name.as_str(), *kind, value.clone()))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn a_hundred_and_fifty_fields_keep_their_order() {
    let element = published(MANY, "many");
    assert_eq!(element.values.len(), 150);
    for (index, (name, value)) in element.names.iter().zip(&element.values).enumerate() {
        assert_eq!(*name, format!("F{index:03}"));
        assert_eq!(*value, GsnValue::Integer((index * index * index) as i32));
    }
}

#[test]
fn a_delivery_has_no_topic() {
    let element = decode_element(DELIVERY).unwrap();
    assert_eq!(element.timed_ms, 1_795_649_043_035);
    assert_eq!(element.values[0], GsnValue::Double(670.5));
}

#[test]
fn a_structure_becomes_a_schema_and_its_elements_fit() {
    let structure = decode_structure(TYPES_STRUCTURE).unwrap().unwrap();
    assert_eq!(structure[7].declared, "varchar(64)");
    let schema = mapping::schema(&structure).unwrap();
    let kinds: Vec<_> = schema.fields.iter().map(|field| field.field_type).collect();
    use FieldType::{Bytes, Double, Integer, Text};
    assert_eq!(
        kinds,
        [
            Double, Integer, Integer, Integer, Integer, Integer, Double, Text, Text, Bytes,
            Integer, Text, Text, Text, Text, Text
        ]
    );
    let element = mapping::from_gsn(&published(TYPES, "types"), &schema, Timestamp(7)).unwrap();
    schema.check(&element).unwrap();
    assert_eq!(element.source_time, Timestamp(1_795_649_036_349_000_000));
    assert_eq!(element.values[1], Value::Integer(9_007_199_254_740_993));
    assert_eq!(element.values[10], Value::Null);

    // And back: the same values in GSN's widest types, which make the same element again.
    let again = mapping::to_gsn(&element, &schema).unwrap();
    let back = mapping::from_gsn(&again, &schema, Timestamp(7)).unwrap();
    assert_eq!(back, element);
    let structure = mapping::structure(&schema).unwrap();
    assert_eq!(mapping::schema(&structure).unwrap(), schema);
}

#[test]
fn an_unknown_sensor_has_no_structure() {
    let answer = include_bytes!("fixtures/unknown.structure");
    assert_eq!(decode_structure(answer), Ok(None));
    assert_eq!(encode_structure(None).unwrap(), answer);
    let producer = decode_structure(PRODUCER_STRUCTURE).unwrap().unwrap();
    let names: Vec<_> = producer.iter().map(|field| field.name.as_str()).collect();
    assert_eq!(names, ["LIGHT", "TEMPERATURE", "PACKET_TYPE"]);
    assert_eq!(producer[1].description, "Not Provided");
}

#[test]
fn other_classes_cycles_and_long_lengths_are_refused_in_words() {
    let replaced = |from: &[u8], to: &[u8]| {
        let at = DELIVERY
            .windows(from.len())
            .position(|it| it == from)
            .unwrap();
        [&DELIVERY[..at], to, &DELIVERY[at + from.len()..]].concat()
    };
    let other = replaced(b"[Ljava.io.Serializable\xBB", b"[Ljava.lang.Object\xBB");
    let error = decode_element(&other).unwrap_err();
    assert!(
        error.to_string().contains("\"[Ljava.lang.Object;\""),
        "{error}"
    );
    // A name that is the element itself.
    let cycle = decode_element(&replaced(b"\x01LIGH\xD4", b"\x02")).unwrap_err();
    assert!(matches!(cycle, KryoError::Reference { reference: 0, .. }));
    // A name that is an earlier name is accepted.
    let shared = decode_element(&replaced(b"\x01TEMPERATUR\xC5", b"\x04")).unwrap();
    assert_eq!(shared.names[1], "LIGHT");
    let long = [&[1, 1][..], b"\xFF\xFF\xFF\xFF\x0F"].concat();
    let error = decode_element(&long).unwrap_err();
    assert!(
        matches!(error, KryoError::Truncated { offset: 2, .. }),
        "{error}"
    );
    assert!(decode_element(&[0]).is_err());
}
