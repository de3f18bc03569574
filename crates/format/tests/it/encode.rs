//! What an encoder writes, its decoder reads.

use std::sync::Arc;

use chappe_format::{Decoder, EncodeError, Encoder, Encoding, Format, Message, Output};
use chappe_stream::lines::{ElementReader, Format as LinesFormat};
use chappe_stream::{Field, FieldType, Quality, StreamElement, StreamSchema, Timestamp, Value};
use proptest::prelude::*;

use crate::common::NOW;

fn schema() -> Arc<StreamSchema> {
    let field = |(name, field_type): (&str, FieldType)| Field {
        name: name.to_owned(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    let fields = [
        ("b", FieldType::Boolean),
        ("i", FieldType::Integer),
        ("d", FieldType::Double),
        ("t", FieldType::Text),
        ("x", FieldType::Bytes),
    ];
    Arc::new(StreamSchema {
        fields: fields.map(field).to_vec(),
        key: Some("machine".to_owned()),
    })
}

fn encoder(encoding: Encoding) -> Encoder {
    Encoder::new(encoding, "plant.climate", schema())
}

fn element(values: Vec<Value>, key: &str, time: Timestamp, quality: Quality) -> StreamElement {
    StreamElement {
        position: Default::default(),
        source_time: time,
        receive_time: NOW,
        key: Some(key.to_owned()),
        values,
        quality,
        origin: None,
    }
}

prop_compose! {
    fn any_values()(
        b in prop::option::of(any::<bool>()),
        i in any::<i64>(),
        d in prop::option::of(prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL),
        t in prop::option::of("[a-zA-Z0-9 ,;=\"'\\\\#{}\\[\\]é°_-]{0,12}"),
        x in prop::option::of(prop::collection::vec(any::<u8>(), 1..9)),
    ) -> Vec<Value> {
        vec![
            b.map_or(Value::Null, Value::Boolean),
            Value::Integer(i),
            d.map_or(Value::Null, Value::Double),
            t.map_or(Value::Null, Value::Text),
            x.map_or(Value::Null, Value::Bytes),
        ]
    }
}

const FIELDS: &str = r#"fields = [
    { name = "b", type = "boolean" }, { name = "i", type = "integer" }, { name = "d", type = "double" },
    { name = "t", type = "text" }, { name = "x", type = "bytes" },
]"#;

fn decode(config: &str, text: &str) -> StreamElement {
    let format = Format::parse("f.toml", &format!("{config}\n{FIELDS}")).unwrap();
    let mut output = Output::default();
    let mut decoder = Decoder::new(format.into());
    decoder
        .decode(&Message::new(text.as_bytes(), NOW), &mut output)
        .unwrap();
    assert_eq!(output.faults, [], "{text}");
    assert_eq!(decoder.streams()[0].name, "plant.climate");
    output.elements.remove(0).1
}

proptest! {
    #[test]
    fn decoders_read_what_encoders_write(
        values in any_values(), key in "[a-z0-9]{1,4}([ ,=/é]?[a-z0-9]){0,4}", nanos in 0..NOW.0,
    ) {
        let time = Timestamp(nanos);
        let element = element(values, &key, time, Quality::Good);
        let mut text = String::new();
        encoder(Encoding::Json).encode(&element, &mut text).unwrap();
        let found = decode(
            "format = { json = { lines = true, time = \"$.source_time\" } }\n[[stream]]\nname = \"plant.climate\"\nkey = \"{k}\"\nvariables = { k = \"$.key\" }",
            &text,
        );
        prop_assert_eq!(&found, &element);

        let csv = encoder(Encoding::Csv(Default::default()));
        let mut text = csv.header().unwrap();
        csv.encode(&element, &mut text).unwrap();
        let found = decode(
            "format = { csv = { time = \"source_time\" } }\n[[stream]]\nname = \"plant.climate\"\nkey = \"{key}\"",
            &text,
        );
        prop_assert_eq!(&found, &element);

        let mut text = String::new();
        encoder(Encoding::LineProtocol).encode(&element, &mut text).unwrap();
        let found = decode(
            "format = \"line_protocol\"\n[[stream]]\nname = \"plant.climate\"\nkey = \"{machine}\"",
            &text,
        );
        prop_assert_eq!(&found, &element);
    }

    #[test]
    fn senml_keeps_values_and_microseconds(values in any_values(), nanos in 1_000_000_000_000_000_000..NOW.0) {
        let element = element(values, "m1", Timestamp(nanos), Quality::Good);
        let mut text = String::new();
        encoder(Encoding::Senml).encode(&element, &mut text).unwrap();
        let config = "format = { senml = { each = \"time\" } }\n[[stream]]\nname = \"plant.climate\"\nkey = \"m1\"";
        let found = decode(config, &text);
        prop_assert!((found.source_time.0 - nanos).abs() < 1_000);
        prop_assert_eq!(found.values, element.values);
    }
}

#[test]
fn exported_text_can_be_written_into_a_node() {
    let values = vec![
        Value::Boolean(false),
        Value::Integer(i64::MIN),
        Value::Double(1e-300),
        Value::Text("a,\"b\"\nc".to_owned()),
        Value::Bytes(vec![0, 255]),
    ];
    let element = element(values, "press, 1", Timestamp(1), Quality::Questionable);
    for (encoding, format) in [
        (Encoding::Json, LinesFormat::Ndjson),
        (Encoding::Csv(Default::default()), LinesFormat::Csv),
    ] {
        let encoder = encoder(encoding);
        let mut text = encoder.header().unwrap_or_default();
        encoder.encode(&element, &mut text).unwrap();
        let mut reader = ElementReader::new(format, schema(), 0);
        let mut lines = Vec::new();
        reader.push(text.as_bytes(), NOW, &mut lines).unwrap();
        reader.finish(NOW, &mut lines).unwrap();
        assert_eq!(lines[0].element.as_ref(), Ok(&element), "{text}");
    }
}

#[test]
fn elements_that_do_not_fit_leave_the_text_as_it_was() {
    let empty = element(vec![Value::Null; 5], "k", NOW, Quality::Good);
    let mut wrong_key = element(vec![Value::Null; 5], "k\n", NOW, Quality::Good);
    wrong_key.values[1] = Value::Integer(1);
    let mut text = "before".to_owned();
    for encoding in [Encoding::LineProtocol, Encoding::Senml] {
        let encoder = encoder(encoding);
        assert_eq!(encoder.encode(&empty, &mut text), Err(EncodeError::Empty));
        assert!(matches!(
            encoder.encode(&wrong_key, &mut text),
            Err(EncodeError::Text { .. })
        ));
        let short = element(vec![], "k", NOW, Quality::Good);
        assert!(matches!(
            encoder.encode(&short, &mut text),
            Err(EncodeError::Schema(_))
        ));
    }
    assert_eq!(text, "before");
}

#[test]
fn an_encoding_is_a_name_or_a_table() {
    #[derive(Debug, serde::Deserialize)]
    struct Document {
        format: Encoding,
    }
    let parse = |text: &str| toml::from_str::<Document>(text).map(|document| document.format);
    assert_eq!(parse("format = \"json\""), Ok(Encoding::Json));
    assert_eq!(parse("format = { senml = {} }"), Ok(Encoding::Senml));
    let Ok(Encoding::Csv(csv)) = parse("format = { csv = { delimiter = \";\" } }") else {
        panic!("it is CSV")
    };
    assert_eq!((csv.delimiter, csv.decimal), (';', '.'));
    for wrong in [
        "\"xml\"",
        "{}",
        "{ json = {}, csv = {} }",
        "{ json = { x = 1 } }",
        "{ csv = { x = 1 } }",
    ] {
        assert!(parse(&format!("format = {wrong}")).is_err(), "{wrong}");
    }
}
