//! Samples that Chappe writes of types that others defined: byte for byte what Cyclone DDS 11.0.1 wrote, read back equal for
//! any type and value, and made from the elements of a stream. Members and fields that do not fit are named.

use std::sync::Arc;

use chappe_dds::types::{
    Datum, Extensibility, Flat, MapRules, Member, Missing, SampleMap, Structure, Type, idl,
};
use chappe_dds::{Encoding, Endian, Payload};
use chappe_stream::{Field, FieldType, StreamElement, StreamSchema, Timestamp, Value};
use proptest::prelude::*;

mod pose;
use pose::{DELIMITED_2, POSE};

fn last_type(text: &str) -> Arc<Structure> {
    let mut types = idl("a.idl", text, &mut |file| Err(format!("no {file}"))).unwrap();
    types.pop().unwrap()
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
fn a_sample_is_written_as_another_library_writes_it() {
    let pose = last_type(POSE);
    let theirs = payload(Encoding::Delimited2, DELIMITED_2);
    let sample = pose.decode(&theirs).unwrap();
    assert_eq!(pose.encode(&sample).unwrap(), theirs);
}

#[test]
fn the_version_is_what_the_type_asks_for() {
    for (text, expected) in [
        ("struct A { long x; };", Encoding::Plain1),
        ("@final struct A { long x; };", Encoding::Plain1),
        ("@appendable struct A { long x; };", Encoding::Delimited2),
        ("@mutable struct A { long x; };", Encoding::Parameters2),
        ("@final struct A { @optional long x; };", Encoding::Plain2),
        (
            "@mutable struct B { long x; }; @final struct A { sequence<B> x; };",
            Encoding::Plain2,
        ),
    ] {
        let of = last_type(text);
        let sample = match &of.members[0].of {
            Type::Sequence(_) => Datum::List(Vec::new()),
            _ => Datum::Integer(1),
        };
        let sample = Datum::Structure(vec![Some(sample)]);
        let written = of.encode(&sample).unwrap();
        assert_eq!(written.encoding, expected, "{text}");
        assert_eq!(of.decode(&written).unwrap(), sample, "{text}");
    }
}

#[test]
fn a_value_that_the_type_does_not_have_is_named_with_its_path() {
    let pose = last_type(POSE);
    let theirs = payload(Encoding::Delimited2, DELIMITED_2);
    let sample = pose.decode(&theirs).unwrap();
    let with = |member: usize, value: Datum| {
        let Datum::Structure(mut values) = sample.clone() else {
            panic!("{sample:?}");
        };
        values[member] = Some(value);
        pose.encode(&Datum::Structure(values))
            .unwrap_err()
            .to_string()
    };
    let extra = |load| {
        let note = Some(Datum::Text("a".into()));
        Datum::Structure(vec![Some(Datum::Integer(load)), note])
    };
    assert_eq!(
        with(4, extra(40_000)),
        "extra.load: 40000 is not of type int16"
    );
    assert_eq!(
        with(1, Datum::Integer(-1)),
        "count: -1 is not of type uint64"
    );
    let text = |text: &str| Datum::Text(text.into());
    assert_eq!(
        with(2, text("LOST")),
        "mode: \"LOST\" is not a name of lab::Mode"
    );
    assert_eq!(with(0, text("a\0b")), "robot: a text has no zero byte");
    assert_eq!(
        with(7, Datum::Numbers(vec![1.5])),
        "ranges: 1.5 is not of type int32"
    );
    assert_eq!(
        with(3, Datum::Integer(1)),
        "isReady: it is not of type boolean"
    );
}

/// What a wrapper reads is what an exporter writes, but for members that no field holds.
#[test]
fn a_topic_that_was_read_is_published_with_the_same_values() {
    let text = POSE.replace(
        "sequence<Point> path;",
        "char mark; boolean bits[2]; Extra more;",
    );
    let pose = last_type(&text);
    let flat = Flat::new(&pose);
    let rules = MapRules::default();
    let map = SampleMap::new(&pose, flat.schema(), &rules).unwrap();
    assert!(map.unused().is_empty(), "{:?}", map.unused());
    let words = |text: &str| Some(Datum::Text(text.into()));
    let extra = |load| {
        Some(Datum::Structure(vec![
            Some(Datum::Integer(load)),
            words("ü"),
        ]))
    };
    let floats = vec![Some(Datum::Double(0.5)), Some(Datum::Double(-2.0))];
    let sample = Datum::Structure(vec![
        words("r/1"),
        Some(Datum::Unsigned(1 << 40)),
        words("FAILED"),
        Some(Datum::Boolean(true)),
        extra(-3),
        Some(Datum::Structure(floats)),
        Some(Datum::Bytes(vec![1, 2, 3])),
        Some(Datum::Numbers(vec![7.0, -7.0])),
        words("x"),
        Some(Datum::Numbers(vec![1.0, 0.0])),
        extra(4),
    ]);
    let element = flat.element(&sample, Timestamp(5)).unwrap();
    let written = map.encode(&element).unwrap();
    assert_eq!(pose.decode(&written).unwrap(), sample);
}

fn field(name: &str, field_type: FieldType) -> Field {
    Field {
        name: name.into(),
        field_type,
        unit: None,
        observed_property: None,
        description: None,
    }
}

const STAMPED: &str = "struct Time { long sec; unsigned long nanosec; };
    struct Part { long a; string b; };
    struct A { @key long id; @key string side; Time stamp; double level; Part part; @optional Part more; sequence<Part> all; };";

fn stamped(names: &[(&str, FieldType)]) -> StreamSchema {
    StreamSchema {
        fields: names.iter().map(|(name, of)| field(name, *of)).collect(),
        key: Some("side".into()),
    }
}

#[test]
fn what_does_not_fit_is_named_before_the_first_sample() {
    let of = last_type(STAMPED);
    let schema = stamped(&[("level", FieldType::Text), ("part_a", FieldType::Integer)]);
    let error = SampleMap::new(&of, &schema, &MapRules::default()).unwrap_err();
    for fault in [
        "stamp.sec: the stream has no field stamp_sec for this int32",
        "level: the field level is text, and no double",
        "part.b: the stream has no field part_b for this string",
        "all: the stream has no field all for this sequence<Part>",
    ] {
        assert!(error.contains(fault), "{fault}: {error}");
    }
    assert!(!error.contains("more"), "{error}");
    let rule = |time: Option<&str>, member: &str, field: &str| MapRules {
        time: time.map(str::to_owned),
        members: [(member.to_owned(), field.to_owned())].into(),
        missing: Missing::Default,
    };
    for (rules, expected) in [
        (
            rule(None, "level", "height"),
            "level: the stream has no field height",
        ),
        (
            rule(None, "levels", "level"),
            "levels: the type has no such member",
        ),
        (
            rule(Some("stamps"), "level", "part_a"),
            "stamps: the type has no such member",
        ),
        (
            rule(Some("part"), "level", "part_a"),
            "part: a Part is not a time",
        ),
    ] {
        let error = SampleMap::new(&of, &schema, &rules).unwrap_err();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let large = last_type("struct A { double all[2000000][2000]; };");
    let error = SampleMap::new(&large, &schema, &MapRules::default()).unwrap_err();
    assert!(error.contains("is above 4194304 bytes"), "{error}");
}

#[test]
fn times_keys_and_named_fields_become_members_and_the_rest_has_no_value() {
    let of = last_type(STAMPED);
    let names = [
        ("height", FieldType::Integer),
        ("more_a", FieldType::Integer),
        ("x", FieldType::Double),
    ];
    let mut rules = MapRules {
        time: Some("stamp".into()),
        members: [("level".to_owned(), "height".to_owned())].into(),
        missing: Missing::Default,
    };
    let schema = stamped(&names);
    let map = SampleMap::new(&of, &schema, &rules).unwrap();
    assert_eq!(map.unused(), ["x"]);
    let mut element = StreamElement {
        source_time: Timestamp(-1),
        key: Some("7/left%2Fup".into()),
        values: vec![Value::Integer(3), Value::Null, Value::Double(0.0)],
        ..element()
    };
    let written = map.encode(&element).unwrap();
    let whole = |value| Some(Datum::Integer(value));
    let text = |text: &str| Some(Datum::Text(text.into()));
    let stamp = Datum::Structure(vec![whole(-1), Some(Datum::Unsigned(999_999_999))]);
    let part = |a| Some(Datum::Structure(vec![whole(a), text("")]));
    let list = Some(Datum::List(Vec::new()));
    let mut expected = vec![
        whole(7),
        text("left/up"),
        Some(stamp),
        Some(Datum::Double(3.0)),
        part(0),
        None,
        list,
    ];
    assert_eq!(
        of.decode(&written).unwrap(),
        Datum::Structure(expected.clone())
    );
    // A member of an optional struct makes the struct.
    element.values[1] = Value::Integer(9);
    let written = map.encode(&element).unwrap();
    expected[5] = part(9);
    assert_eq!(of.decode(&written).unwrap(), Datum::Structure(expected));
    for (key, why) in [
        ("seven/left", "id: \"seven\" is not of type int32"),
        ("7", "id: it has no value"),
    ] {
        element.key = Some(key.into());
        rules.missing = if key == "7" {
            Missing::Refuse
        } else {
            Missing::Default
        };
        let names = [
            &names[..],
            &[("part_a", FieldType::Integer), ("part_b", FieldType::Text)],
        ]
        .concat();
        let without = STAMPED
            .replace(" sequence<Part> all;", "")
            .replace("@optional Part more;", "@optional long more_a;");
        let map = SampleMap::new(&last_type(&without), &stamped(&names), &rules).unwrap();
        element.values.truncate(3);
        element
            .values
            .extend([Value::Integer(1), Value::Text("b".into())]);
        assert_eq!(map.encode(&element).unwrap_err().to_string(), why);
    }
}

fn element() -> StreamElement {
    let of = last_type("struct A { long x; };");
    let sample = Datum::Structure(vec![Some(Datum::Integer(0))]);
    Flat::new(&of).element(&sample, Timestamp(0)).unwrap()
}

/// A type and values of it.
fn typed() -> impl Strategy<Value = (Type, Datum)> {
    let size = || prop::sample::select(&[1_u8, 2, 4, 8][..]);
    let mode = last_type(POSE).members[2].of.clone();
    let number = prop::num::f64::NORMAL | prop::num::f64::ZERO;
    let leaf = prop_oneof![
        any::<bool>().prop_map(|it| (Type::Boolean, Datum::Boolean(it))),
        any::<u8>().prop_map(|it| (Type::Char, Datum::Text(char::from(it).into()))),
        (size(), any::<i64>()).prop_map(|(bytes, it)| {
            let of = Type::Integer {
                bytes,
                is_signed: true,
            };
            (of, Datum::Integer(it >> (64 - 8 * u32::from(bytes))))
        }),
        (size(), any::<u64>(), any::<bool>()).prop_map(|(bytes, it, is_mask)| {
            let of = match is_mask {
                true => Type::Mask { bytes },
                false => Type::Integer {
                    bytes,
                    is_signed: false,
                },
            };
            (of, Datum::Unsigned(it >> (64 - 8 * u32::from(bytes))))
        }),
        any::<i16>().prop_map(|it| (Type::Float { bytes: 4 }, Datum::Double(f64::from(it) / 8.0))),
        number.prop_map(|it| (Type::Float { bytes: 8 }, Datum::Double(it))),
        "[a-zä]{0,9}".prop_map(|it| (Type::Text, Datum::Text(it))),
        prop::sample::select(&["IDLE", "FAILED", "3", "-1"][..])
            .prop_map(move |it| (mode.clone(), Datum::Text(it.into()))),
        prop::collection::vec(any::<u8>(), 0..9).prop_map(|it| {
            let of = Type::Integer {
                bytes: 1,
                is_signed: false,
            };
            (Type::Sequence(of.into()), Datum::Bytes(it))
        }),
        prop::collection::vec(any::<i16>(), 1..9).prop_map(|it| {
            let of = Type::Integer {
                bytes: 2,
                is_signed: true,
            };
            let count = u32::try_from(it.len()).unwrap();
            (
                Type::Array(of.into(), count),
                Datum::Numbers(it.into_iter().map(f64::from).collect()),
            )
        }),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        // A value without bytes at the end of an appendable struct is read as an absent one.
        let list = (inner.clone(), 1_u32..4, any::<bool>());
        prop_oneof![
            list.prop_filter_map("numbers have other lists", |((of, it), count, is_array)| {
                let is_list = matches!(
                    of,
                    Type::Text
                        | Type::Enumeration(_)
                        | Type::Structure(_)
                        | Type::Sequence(_)
                        | Type::Array(..)
                );
                let values = Datum::List(vec![it; count as usize]);
                let of = Arc::new(of);
                is_list.then_some(match is_array {
                    true => (Type::Array(of, count), values),
                    false => (Type::Sequence(of), values),
                })
            }),
            structure(inner).prop_map(|(of, it)| (Type::Structure(of.into()), it)),
        ]
    })
}

fn structure(
    inner: impl Strategy<Value = (Type, Datum)>,
) -> impl Strategy<Value = (Structure, Datum)> {
    let extensibility = [
        Extensibility::Final,
        Extensibility::Appendable,
        Extensibility::Mutable,
    ];
    let members = prop::collection::vec((inner, any::<bool>(), any::<bool>(), any::<bool>()), 1..6);
    (
        members,
        prop::sample::select(extensibility.to_vec()),
        any::<bool>(),
    )
        .prop_map(|(members, extensibility, is_stated)| {
            let (mut found, mut values) = (Vec::new(), Vec::new());
            for (id, ((of, value), is_optional, is_absent, is_key)) in (0..).zip(members) {
                values.push((!is_optional || !is_absent).then_some(value));
                found.push(Member {
                    name: format!("m{id}"),
                    id,
                    is_key,
                    is_optional,
                    of,
                });
            }
            let of = Structure {
                name: "S".into(),
                extensibility,
                // Only an annotation makes a struct mutable.
                is_extensibility_stated: is_stated || extensibility == Extensibility::Mutable,
                members: found,
            };
            (of, Datum::Structure(values))
        })
}

proptest! {
    #[test]
    fn any_sample_is_read_as_it_was_written((of, sample) in structure(typed())) {
        let written = of.encode(&sample).unwrap();
        prop_assert_eq!(of.decode(&written).unwrap(), sample);
    }

    /// Values of another type are refused, and nothing panics.
    #[test]
    fn any_value_is_written_or_refused((of, _) in structure(typed()), (_, sample) in structure(typed())) {
        if let Ok(written) = of.encode(&sample) {
            prop_assert!(of.decode(&written).is_ok());
        }
    }
}
