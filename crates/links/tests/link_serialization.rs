//! Goal: each serialization returns what was encoded, and hostile bytes end in a clear error.
//! Method: random documents through all three; documents cut, flipped and extended; arbitrary
//! bytes; documents as other programs write them.

use chappe_links::serialization::*;
use chappe_links::{LossReason, Serialization};
use chappe_stream::*;
use proptest::prelude::*;

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/link_serialization.rs"]
mod check;

const ALL: [Serialization; 3] = [
    Serialization::Xml,
    Serialization::Postcard,
    Serialization::MessagePack,
];
const TYPES: [FieldType; 6] = [
    FieldType::Boolean,
    FieldType::Integer,
    FieldType::Double,
    FieldType::Text,
    FieldType::Bytes,
    FieldType::Samples,
];

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        ".{0,12}",
        "[ \t\r\n<>&\"']{0,8}",
        "[\u{0}-\u{1f}\u{fffe}a]{0,6}"
    ]
}

fn double() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<f64>(),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(-0.0),
        Just(5e-324),
        Just(f64::MAX),
        (-100_000..100_000_i64).prop_map(|n| n as f64 / 100.0),
    ]
}

fn value(field_type: FieldType) -> BoxedStrategy<Value> {
    let value = match field_type {
        FieldType::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        FieldType::Integer => any::<i64>().prop_map(Value::Integer).boxed(),
        FieldType::Double => double().prop_map(Value::Double).boxed(),
        FieldType::Text => any_text().prop_map(Value::Text).boxed(),
        FieldType::Bytes => prop::collection::vec(any::<u8>(), 0..300)
            .prop_map(Value::Bytes)
            .boxed(),
        FieldType::Samples => (
            any::<i64>(),
            any::<u64>(),
            prop::collection::vec(double(), 0..20),
        )
            .prop_map(|(start, period_ns, values)| {
                let start = Timestamp(start);
                Value::Samples(Samples {
                    start,
                    period_ns,
                    values,
                })
            })
            .boxed(),
    };
    prop_oneof![9 => value, 1 => Just(Value::Null)].boxed()
}

fn schema() -> impl Strategy<Value = StreamSchema> {
    let field = (
        prop::sample::select(TYPES.to_vec()),
        prop::option::of(any_text()),
        prop::option::of(any_text()),
    );
    (
        prop::collection::vec(field, 0..20),
        prop::option::of(any_text()),
    )
        .prop_map(|(fields, key)| {
            let field = |(index, (field_type, unit, description))| Field {
                name: format!("f{index}"),
                field_type,
                unit,
                observed_property: None,
                description,
            };
            StreamSchema {
                fields: fields.into_iter().enumerate().map(field).collect(),
                key,
            }
        })
}

fn position() -> impl Strategy<Value = Position> {
    (any::<u64>(), 0..=NUMBER_MAX).prop_map(|(epoch, sequence)| Position {
        epoch: Epoch(epoch),
        sequence,
    })
}

fn element(schema: &StreamSchema) -> impl Strategy<Value = StreamElement> + use<> {
    let values: Vec<_> = schema
        .fields
        .iter()
        .map(|field| value(field.field_type))
        .collect();
    let quality = prop::sample::select(vec![Quality::Good, Quality::Questionable, Quality::Bad]);
    let times = any::<(i64, i64)>();
    (
        position(),
        times,
        prop::option::of(any_text()),
        values,
        quality,
        prop::option::of(position()),
    )
        .prop_map(
            |(position, times, key, values, quality, origin)| StreamElement {
                position,
                source_time: Timestamp(times.0),
                receive_time: Timestamp(times.1),
                key,
                values,
                quality,
                origin,
            },
        )
}

/// A document and the schema of its elements.
fn document() -> impl Strategy<Value = (StreamSchema, Document)> {
    let stream = || "[a-z]{1,5}(\\.[a-z0-9_-]{0,3}a)?";
    let reason = prop::sample::select(vec![
        LossReason::Trimmed,
        LossReason::Corrupt,
        LossReason::TooLarge,
        LossReason::Skipped,
    ]);
    prop_oneof![
        4 => (stream(), any::<u32>(), any::<Option<u64>>(), schema()).prop_flat_map(|(stream, version, last, schema)| {
            let elements = prop::collection::vec(element(&schema), 1..4);
            (Just(schema), elements).prop_map(move |(schema, elements)| {
                let id = SchemaId::of(&schema);
                let (stream, names) = (stream.clone(), Vec::new());
                let schema_ref = SchemaRef { id, version };
                let elements = Elements { stream, schema: schema_ref, names, elements, last };
                (schema, Document::Elements(elements))
            })
        }),
        1 => (stream(), any::<u32>(), schema()).prop_map(|(stream, version, schema)| {
            let structure = Structure { stream, version, schema: schema.clone() };
            (schema, Document::Structure(structure))
        }),
        1 => (stream(), any::<(u64, u64, u64)>(), reason).prop_map(|(stream, (epoch, from, next), reason)| {
            let lost = Lost { stream, epoch: Epoch(epoch), from, next, reason };
            (StreamSchema::default(), Document::Lost(lost))
        }),
        1 => (stream(), prop::option::of(position()), position()).prop_map(|(stream, kept, next)| {
            (StreamSchema::default(), Document::Rollback(Rollback { stream, kept, next }))
        }),
        1 => prop::option::of(position()).prop_map(|after| (StreamSchema::default(), Document::Alive(after))),
    ]
}

/// The decoded document, with its elements in the shape of the schema.
fn read(serialization: Serialization, bytes: &[u8], schema: &StreamSchema) -> (Document, usize) {
    let (document, used) = serialization.decode(bytes).expect("a document");
    let document = match document {
        Document::Elements(elements) => {
            let mut shaped = Elements {
                names: Vec::new(),
                ..elements.clone()
            };
            shaped.elements = elements.shape(schema).expect("fits");
            Document::Elements(shaped)
        }
        other => other,
    };
    (document, used)
}

proptest! {
    #[test]
    fn what_is_written_is_read((schema, document) in document(), more in document()) {
        for serialization in ALL {
            let mut bytes = Vec::new();
            serialization.encode(&document, &schema, &mut bytes).expect("written");
            let length = bytes.len();
            let (found, used) = read(serialization, &bytes, &schema);
            prop_assert_eq!((&found, used), (&document, length), "{:?}", serialization);
            // Concatenated, as in an endless response.
            serialization.encode(&more.1, &more.0, &mut bytes).expect("written");
            let (found, used) = read(serialization, &bytes, &schema);
            prop_assert_eq!((&found, used), (&document, length), "{:?}", serialization);
            let (found, _) = read(serialization, &bytes[used..], &more.0);
            prop_assert_eq!(&found, &more.1);
        }
    }

    #[test]
    fn a_document_that_is_cut_is_none((schema, document) in document(), at in any::<prop::sample::Index>()) {
        for serialization in ALL {
            let mut bytes = Vec::new();
            serialization.encode(&document, &schema, &mut bytes).expect("written");
            if serialization == Serialization::Xml {
                bytes.pop(); // the line's end adds nothing
            }
            let cut = at.index(bytes.len());
            let outcome = serialization.decode(&bytes[..cut]);
            match serialization {
                // A line is complete or incomplete as a whole.
                Serialization::Xml => prop_assert!(outcome.is_err()),
                _ => prop_assert_eq!(outcome, Err(SerializationError::Incomplete)),
            }
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        check::check(&bytes);
    }

    #[test]
    fn no_changed_document_panics(
        (schema, document) in document(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        for serialization in ALL {
            let mut bytes = Vec::new();
            serialization.encode(&document, &schema, &mut bytes).expect("written");
            for (at, flip) in &flips {
                let at = at.index(bytes.len());
                bytes[at] ^= flip;
            }
            check::check(&bytes);
        }
    }
}

#[test]
fn not_a_number_stays_one() {
    let fields = vec![Field {
        name: "v".into(),
        field_type: FieldType::Double,
        unit: None,
        observed_property: None,
        description: None,
    }];
    let schema = StreamSchema { fields, key: None };
    let document = Document::Elements(Elements {
        stream: "a".into(),
        elements: vec![StreamElement {
            position: Position::default(),
            source_time: Timestamp(0),
            receive_time: Timestamp(0),
            key: None,
            values: vec![Value::Double(f64::NAN)],
            quality: Quality::Good,
            origin: None,
        }],
        ..Elements::default()
    });
    for serialization in ALL {
        let mut bytes = Vec::new();
        serialization
            .encode(&document, &schema, &mut bytes)
            .expect("written");
        let Document::Elements(found) = read(serialization, &bytes, &schema).0 else {
            panic!("other")
        };
        assert!(matches!(found.elements[0].values[0], Value::Double(n) if n.is_nan()));
    }
}

#[test]
fn xml_of_other_programs_is_read() {
    let text = r#"<?xml version="1.0" encoding="UTF-8"?>
<stream-element stream="ward.a" schema="0123456789abcdef" version="2"
    epoch="a1" number="5" timestamp="1700000000000000000">
  <field name="b" type="integer">9007199254740993</field>
  <field name="a" type="integer"> 3 </field>
</stream-element>
"#;
    let (document, _) = Serialization::Xml
        .decode(text.as_bytes())
        .expect("a document");
    let Document::Elements(elements) = document else {
        panic!("{document:?}")
    };
    let field = |name: &str, field_type| Field {
        name: name.into(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    };
    let mut schema = StreamSchema {
        fields: vec![
            field("a", FieldType::Double),
            field("b", FieldType::Integer),
            field("c", FieldType::Text),
        ],
        key: None,
    };
    let shaped = elements.clone().shape(&schema).expect("fits");
    let expected = [
        Value::Double(3.0),
        Value::Integer(9_007_199_254_740_993),
        Value::Null,
    ];
    assert_eq!(shaped[0].values, expected);
    assert_eq!(shaped[0].receive_time, shaped[0].source_time);
    schema.fields.remove(1);
    let refused = elements.shape(&schema);
    assert_eq!(refused, Err(SerializationError::Field("b".into())));
}

#[test]
fn blank_lines_are_skipped_however_many_there_are() {
    let mut bytes = "\r\n".repeat(1_000_000).into_bytes();
    let blank = Serialization::Xml.decode(&bytes);
    assert_eq!(blank, Err(SerializationError::Incomplete));
    bytes.extend_from_slice(b"<alive/>\n");
    let (document, used) = Serialization::Xml.decode(&bytes).expect("a document");
    assert_eq!((document, used), (Document::Alive(None), bytes.len()));
}

#[test]
fn errors_name_the_fault() {
    let element = |inside: &str| {
        format!(
            "<stream-element stream='a' schema='0123456789abcdef' version='0' epoch='1' number='1' \
             timestamp='0'>{inside}</stream-element>"
        )
    };
    let cases = [
        (
            element("<field name='a' type='integer'>1e3</field>"),
            "a value does not parse as integer",
        ),
        (
            element("<field name='a' type='complex'>1</field>"),
            "unknown type",
        ),
        (
            element("<field name='a' type='bytes'>!</field>"),
            "a value does not parse as bytes",
        ),
        (
            element("<field type='text'>x</field>"),
            "missing attribute name",
        ),
        (
            element("<field name='a' type='text'/><field name='a' type='text'/>"),
            "field \"a\" occurs twice",
        ),
        ("<stream-element/>".into(), "missing attribute"),
        ("<html/>".into(), "\"html\" is not a document of a link"),
        ("<!DOCTYPE a><alive/>".into(), "document type declaration"),
        ("<a>\n".repeat(20), "limit"),
    ];
    for (text, wanted) in cases {
        let error = Serialization::Xml
            .decode(text.as_bytes())
            .expect_err("wrong")
            .to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
    let cases: [(&[u8], &str); 6] = [
        (&[0x01], "the document is not a map"),
        (&[0x81, 0x01, 0x01], "a member's name is not a text"),
        (&[0xc1], "0xc1"),
        (&[0x80], "missing or invalid member type"),
        (
            &[
                0x81, 0xa1, b'x', 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91, 0x91,
            ],
            "nested too deeply",
        ),
        (
            &[
                0x81, 0xa8, b'e', b'l', b'e', b'm', b'e', b'n', b't', b's', 0xdd, 255, 255, 255,
                255,
            ],
            "above the limit",
        ),
    ];
    for (bytes, wanted) in cases {
        let error = Serialization::MessagePack
            .decode(bytes)
            .expect_err("wrong")
            .to_string();
        assert!(error.contains(wanted), "{bytes:?}: {error}");
    }
    let error = Serialization::Postcard
        .decode(&[0xff; 9])
        .expect_err("wrong");
    assert!(
        error
            .to_string()
            .contains("the length takes more than four bytes"),
        "{error}"
    );
    let error = Serialization::Postcard
        .decode(&[0xff, 0xff, 0xff, 0x7f])
        .expect_err("wrong");
    assert!(error.to_string().contains("above the limit"), "{error}");
}

#[test]
fn the_corpus_passes() {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../fuzz/corpus/link_serialization"
    );
    let files: Vec<_> = std::fs::read_dir(folder).expect("the corpus").collect();
    assert!(files.len() >= 6, "{} files", files.len());
    for file in files {
        let bytes = std::fs::read(file.expect("an entry").path()).expect("a file");
        check::check(&bytes);
    }
}

#[test]
fn documents_written_by_hand_are_read() {
    let lost = b"\x86\xa4type\xa4lost\xa6stream\xa1a\xa5epoch\xa2a1\xa4from\x06\xa4next\x09\xa6reason\xa7skipped";
    let (document, used) = Serialization::MessagePack.decode(lost).expect("a document");
    assert_eq!(used, lost.len());
    let Document::Lost(lost) = document else {
        panic!("{document:?}")
    };
    assert_eq!((lost.from, lost.next, lost.epoch), (6, 9, Epoch(0xa1)));
    let (document, _) = Serialization::Postcard
        .decode(b"\x02\x04\x00")
        .expect("a document");
    assert_eq!(document, Document::Alive(None));
}

#[test]
fn numbers_without_a_successor_are_refused() {
    for form in ALL {
        let lost = |next| {
            let document = Document::Lost(Lost {
                stream: "a".into(),
                epoch: Epoch(1),
                from: 1,
                next,
                reason: LossReason::Trimmed,
            });
            let mut bytes = Vec::new();
            let encoded = form.encode(&document, &StreamSchema::default(), &mut bytes);
            encoded.expect("a document");
            form.decode(&bytes)
        };
        assert!(lost(NUMBER_MAX).is_ok());
        let refused = matches!(lost(u64::MAX), Err(SerializationError::Limit { .. }));
        assert!(refused, "{form:?}");
    }
}
