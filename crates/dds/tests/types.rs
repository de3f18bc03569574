//! Samples of types that others defined: what Cyclone DDS 11.0.1 (its Python package) wrote in both versions of CDR is read
//! with the type from an IDL file, as elements of a stream. Any other bytes are read or refused, within bounds.

use std::sync::Arc;

use chappe_dds::types::{Datum, Extensibility, Flat, Member, Structure, Type, idl, time_of};
use chappe_dds::{Encoding, Endian, Payload};
use chappe_stream::{FieldType, Samples, Timestamp, Value};
use proptest::prelude::*;

mod pose;
use pose::{DELIMITED_2, POSE};

const PLAIN_1: &str = "030000007230000002000000000000000700000001000000017f08000000000004000000feff0000017f0800010000\
    001000000009000000c3a472676572203200000000027f00000000003f0000004003000000020202000200000002000000feffffff0200000000\
    00803f000000400000803f00000040";

fn types(text: &str) -> Vec<Arc<Structure>> {
    idl("a.idl", text, &mut |file| Err(format!("no {file}"))).unwrap()
}

fn payload(encoding: Encoding, hex: &str) -> Payload {
    let digits = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let bytes: Vec<u8> = (0..hex.len()).step_by(2).map(digits).collect();
    Payload {
        endian: Endian::Little,
        encoding,
        bytes: bytes.into(),
    }
}

#[test]
fn a_sample_of_another_library_becomes_an_element_from_both_versions_of_cdr() {
    let pose = types(POSE).pop().unwrap();
    let flat = Flat::new(&pose);
    let schema = flat.schema();
    let fields = schema.fields.iter().map(|it| (&*it.name, it.field_type));
    let fields: Vec<_> = fields.collect();
    let expected = [
        ("count", FieldType::Integer),
        ("mode", FieldType::Text),
        ("is_ready", FieldType::Boolean),
        ("extra_load", FieldType::Integer),
        ("extra_note", FieldType::Text),
        ("at_x", FieldType::Double),
        ("at_y", FieldType::Double),
        ("raw", FieldType::Bytes),
        ("ranges", FieldType::Samples),
    ];
    assert_eq!(fields, expected);
    assert_eq!(schema.fields[3].description.as_deref(), Some("extra.load"));
    assert_eq!(schema.key.as_deref(), Some("robot"));
    assert_eq!(
        flat.left_out(),
        ["path: no field holds a sequence<lab::Point>"]
    );

    for (encoding, hex) in [
        (Encoding::Plain1, PLAIN_1),
        (Encoding::Delimited2, DELIMITED_2),
    ] {
        let sample = pose.decode(&payload(encoding, hex)).unwrap();
        let element = flat.element(&sample, Timestamp(5)).unwrap();
        assert_eq!(element.key.as_deref(), Some("r0"));
        assert_eq!(
            element.values,
            [
                Value::Integer(2),
                Value::Text("FAILED".into()),
                Value::Boolean(true),
                Value::Integer(-2),
                Value::Text("ärger 2".into()),
                Value::Double(0.5),
                Value::Double(2.0),
                Value::Bytes(vec![2; 3]),
                Value::Samples(Samples {
                    start: Timestamp(5),
                    period_ns: 0,
                    values: vec![2.0, -2.0],
                }),
            ],
            "{encoding:?}"
        );
        schema.check(&element).unwrap();
    }
}

#[test]
fn a_cut_sample_and_another_encoding_are_refused() {
    let pose = types(POSE).pop().unwrap();
    for (encoding, hex) in [
        (Encoding::Plain1, PLAIN_1),
        (Encoding::Delimited2, DELIMITED_2),
    ] {
        for end in (0..hex.len()).step_by(2) {
            let cut = payload(encoding, &hex[..end]);
            assert!(pose.decode(&cut).is_err(), "{end} of {encoding:?}");
        }
    }
    let error = pose
        .decode(&payload(Encoding::Plain2, DELIMITED_2))
        .unwrap_err();
    assert!(error.to_string().contains("extensibility"), "{error}");
}

#[test]
fn an_appended_member_of_a_newer_or_older_writer_is_skipped_or_absent() {
    let old = types("@appendable struct A { long x; };").pop().unwrap();
    let new = types("@appendable struct A { long x; long y; };")
        .pop()
        .unwrap();
    let long = payload(Encoding::Delimited2, "080000000100000002000000");
    let short = payload(Encoding::Delimited2, "0400000001000000");
    let one = Some(Datum::Integer(1));
    assert_eq!(old.decode(&long), Ok(Datum::Structure(vec![one.clone()])));
    assert_eq!(new.decode(&short), Ok(Datum::Structure(vec![one, None])));
}

/// A bit mask is no primitive type: in version 2 of CDR its collections have a size before them.
#[test]
fn sequences_of_bit_masks_have_their_size_in_version_2() {
    let member = |name: &str, of| Member {
        name: name.into(),
        id: 0,
        is_key: false,
        is_optional: false,
        of,
    };
    let of = Structure {
        name: "A".into(),
        extensibility: Extensibility::Final,
        is_extensibility_stated: true,
        members: vec![
            member("flags", Type::Sequence(Type::Mask { bytes: 1 }.into())),
            member("next", Type::Mask { bytes: 1 }),
        ],
    };
    let counted = [2, 0, 0, 0, 3, 1, 4];
    let sized = [[6, 0, 0, 0].as_slice(), &counted].concat();
    for (encoding, bytes) in [
        (Encoding::Plain1, counted.to_vec()),
        (Encoding::Plain2, sized),
    ] {
        let payload = Payload {
            endian: Endian::Little,
            encoding,
            bytes: bytes.into(),
        };
        let expected = vec![Some(Datum::Bytes(vec![3, 1])), Some(Datum::Unsigned(4))];
        assert_eq!(of.decode(&payload).unwrap(), Datum::Structure(expected));
    }
}

#[test]
fn members_of_a_struct_are_of_the_key_if_the_struct_is() {
    let inner = "struct Keyed { @key long id; long x; }; struct Plain { long a; long b; };";
    for (text, key, fields) in [
        ("@key long n; Keyed at;", "n", vec!["at_id", "at_x"]),
        ("@key Keyed at; long n;", "at_id", vec!["at_x", "n"]),
        (
            "@key Plain at; Plain to;",
            "at_a_at_b",
            vec!["to_a", "to_b"],
        ),
        ("Keyed at;", "", vec!["at_id", "at_x"]),
    ] {
        let of = types(&format!("{inner} struct A {{ {text} }};"));
        let flat = Flat::new(of.last().unwrap());
        let names: Vec<_> = flat.schema().fields.iter().map(|it| &*it.name).collect();
        assert_eq!(
            (flat.schema().key.as_deref().unwrap_or(""), names),
            (key, fields),
            "{text}"
        );
    }
}

#[test]
fn the_time_is_a_member_of_the_sample() {
    let text = "struct Time { long sec; unsigned long nanosec; }; struct Header { Time stamp; };
                @final struct A { Header header; long long ns; };";
    let of = types(text).pop().unwrap();
    let sample = of
        .decode(&payload(
            Encoding::Plain1,
            "01000000020000000700000000000000",
        ))
        .unwrap();
    assert_eq!(
        time_of(&of, "header.stamp", &sample),
        Some(Timestamp(1_000_000_002))
    );
    assert_eq!(time_of(&of, "ns", &sample), Some(Timestamp(7)));
    for path in ["header", "header.stam", "ns.x", ""] {
        assert_eq!(time_of(&of, path, &sample), None, "{path}");
    }
}

#[test]
fn types_that_differ_are_named_member_by_member() {
    let here = types(POSE).pop().unwrap();
    assert!(here.differences(&here).is_empty());
    let there = POSE
        .replace("short load", "long load")
        .replace("boolean isReady;", "")
        .replace(
            "sequence<Point> path;",
            "sequence<Point> path; double more;",
        );
    let there = types(&there).pop().unwrap();
    let found = there.differences(&here);
    let expected = [
        "isReady: not announced, expected boolean",
        "extra.load: announced as int32, expected int16",
        "more: announced as double, not expected",
    ];
    for text in expected {
        assert!(found.iter().any(|it| it == text), "{text}: {found:?}");
    }
}

#[test]
fn a_number_that_no_field_holds_is_named() {
    let of = types("@final struct A { unsigned long long big; };")
        .pop()
        .unwrap();
    let sample = of
        .decode(&payload(Encoding::Plain1, "ffffffffffffffff"))
        .unwrap();
    let error = Flat::new(&of).element(&sample, Timestamp(0)).unwrap_err();
    assert!(error.starts_with("big: 18446744073709551615"), "{error}");
}

#[test]
fn values_without_bytes_are_bounded() {
    let of = types("struct Nothing {}; @final struct A { sequence<Nothing> all; };")
        .pop()
        .unwrap();
    let error = of
        .decode(&payload(Encoding::Plain1, "ffffffff"))
        .unwrap_err();
    assert!(error.to_string().contains("too many values"), "{error}");
    let of = Structure {
        members: vec![chappe_dds::types::Member {
            of: Type::Array(Arc::new(Type::Float { bytes: 8 }), u32::MAX),
            ..of.members[0].clone()
        }],
        ..(*of).clone()
    };
    assert!(of.decode(&payload(Encoding::Plain1, "0000")).is_err());
}

proptest! {
    #[test]
    fn any_sample_is_read_or_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        changed in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        is_big in any::<bool>(),
    ) {
        let endian = if is_big { Endian::Big } else { Endian::Little };
        let encodings = [Encoding::Plain1, Encoding::Parameters1, Encoding::Plain2, Encoding::Delimited2, Encoding::Parameters2];
        for of in types(POSE) {
            let flat = Flat::new(&of);
            for encoding in encodings {
                let mut near = payload(encoding, DELIMITED_2).bytes.to_vec();
                for (index, byte) in &changed {
                    let at = index.index(near.len());
                    near[at] = *byte;
                }
                for bytes in [bytes.clone(), near] {
                    let payload = Payload { endian, encoding, bytes: bytes.into() };
                    let Ok(sample) = of.decode(&payload) else { continue };
                    if let Ok(element) = flat.element(&sample, Timestamp(0)) {
                        prop_assert_eq!(flat.schema().check(&element), Ok(()));
                    }
                }
            }
        }
    }
}
