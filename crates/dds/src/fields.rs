//! The fields of Chappe's own types, which their writers and readers announce to each other.
//!
//! The name of a type doesn't contain its members, so ends with different fields match, and a reader would
//! read the bytes of a double as an integer. The fields are announced in the policy `USER_DATA` (DDS 1.4,
//! clause 2.2.3.1), as text: a letter for the type of each field, then a line for each field with its name and unit.
//! Programs of others announce none, and are not compared. A reader of any type learns the type from it.

use std::fmt::Write as _;

use std::sync::Arc;

use chappe_stream::ucum::Unit;
use chappe_stream::{Field, FieldType};

use crate::types::{Enumeration, Extensibility, Member, Structure, Type};

/// The largest announcement in bytes; reason: any host in the domain can announce thousands of writers.
pub(crate) const BYTES_MAX: usize = 4 << 10;
/// The largest number of fields that are announced: twice as many as other wrappers read.
const FIELDS_MAX: usize = 2_048;
/// The largest number of named differences; reason: a person reads them.
const DIFFERENCES_MAX: usize = 16;

/// The start of an announcement, with the version of its form.
const HEAD: &str = "chappe.fields 1 ";

const LETTERS: [(FieldType, char); 6] = [
    (FieldType::Boolean, 'b'),
    (FieldType::Integer, 'i'),
    (FieldType::Double, 'd'),
    (FieldType::Text, 't'),
    (FieldType::Bytes, 'y'),
    (FieldType::Samples, 's'),
];

/// The announcement of these fields. Names that have no room are left out; without fields, or with too many, it is empty.
pub(crate) fn announcement(fields: &[Field]) -> String {
    if fields.is_empty() || fields.len() > FIELDS_MAX {
        return String::new();
    }
    let mut text = HEAD.to_owned();
    let letter = |of: FieldType| LETTERS.iter().find(|(one, _)| *one == of);
    text.extend(
        fields
            .iter()
            .filter_map(|field| Some(letter(field.field_type)?.1)),
    );
    for field in fields {
        let unit = field.unit.as_deref().unwrap_or_default();
        let unit = unit.replace(char::is_control, " ");
        if text.len() + field.name.len() + unit.len() + 2 > BYTES_MAX {
            break;
        }
        let _ = write!(text, "\n{} {unit}", field.name);
    }
    text
}

/// A field of another end; its name and unit are empty if they are not known.
struct Announced<'a> {
    name: &'a str,
    of: FieldType,
    unit: &'a str,
}

/// The announced fields; `None` for the data of other programs.
fn announced(text: &str) -> Option<Vec<Announced<'_>>> {
    let mut lines = text.strip_prefix(HEAD)?.lines();
    let type_of = |letter: char| LETTERS.iter().find(|(_, one)| *one == letter);
    let letters = lines.next().unwrap_or_default().chars();
    let types: Option<Vec<FieldType>> = letters.map(|one| Some(type_of(one)?.0)).collect();
    let mut names = lines.map(|line| line.split_once(' ').unwrap_or((line, "")));
    let field = |of| {
        let (name, unit) = names.next().unwrap_or_default();
        Announced { name, of, unit }
    };
    Some(types?.into_iter().map(field).collect())
}

/// The differences of the announced fields of another end from the ones here, at most 16; empty if elements of one are
/// elements of the other. Fields may have other names, but not change places.
pub(crate) fn differences(text: &str, here: &[Field]) -> Vec<String> {
    let Some(there) = announced(text).filter(|_| !here.is_empty()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (place, (field, other)) in here.iter().zip(&there).enumerate() {
        let name = &field.name;
        let moved = there.iter().position(|it| it.name == *name);
        let expected = field.field_type.name();
        if moved.is_some_and(|at| at != place) {
            let at = moved.unwrap_or_default();
            found.push(format!("{name}: announced as field {at}, expected {place}"));
        } else if other.of != field.field_type {
            let announced = other.of.name();
            found.push(format!(
                "{name}: announced as {announced}, expected {expected}"
            ));
        } else if let Some(unit) = &field.unit
            && !is_same_unit(unit, other.unit)
        {
            let announced = other.unit;
            found.push(format!("{name}: announced in {announced}, expected {unit}"));
        }
    }
    for field in here.iter().skip(there.len()) {
        let expected = field.field_type.name();
        found.push(format!(
            "{}: not announced, expected {expected}",
            field.name
        ));
    }
    for (place, other) in there.iter().enumerate().skip(here.len()) {
        let announced = other.of.name();
        let name = match other.name {
            "" => format!("field {place}"),
            name => name.to_owned(),
        };
        found.push(format!("{name}: announced as {announced}, not expected"));
    }
    found.truncate(DIFFERENCES_MAX);
    found
}

/// The type of the samples of another end with this announcement (`ElementType` has its IDL); `None` for the data of other
/// programs.
pub(crate) fn structure(type_name: &str, text: &str) -> Option<Structure> {
    const U16: Type = Type::Integer {
        bytes: 2,
        is_signed: false,
    };
    const U64: Type = Type::Integer {
        bytes: 8,
        is_signed: false,
    };
    const I64: Type = Type::Integer {
        bytes: 8,
        is_signed: true,
    };
    let quality = ["GOOD", "QUESTIONABLE", "BAD"].map(str::to_owned);
    let quality = Enumeration::new("chappe::Quality".into(), 4, (0..).zip(quality).collect());
    let sequence = |of: Type| Type::Sequence(of.into());
    let samples = final_struct(
        "chappe::Samples",
        [
            ("start_ns".to_owned(), I64),
            ("period_ns".to_owned(), U64),
            ("values".to_owned(), sequence(Type::Float { bytes: 8 })),
        ],
    );
    let samples = Type::Structure(samples.into());
    let head = [
        ("stream", Type::Text),
        ("instance", Type::Text),
        ("epoch", U64),
        ("number", U64),
        ("previous", U64),
        ("source_time_ns", I64),
        ("quality", Type::Enumeration(Arc::new(quality))),
        ("absent", sequence(U16)),
    ];
    let head = head.map(|(name, of)| (name.to_owned(), of));
    let field = |(place, field): (usize, Announced<'_>)| {
        let name = match field.name {
            "" => format!("field_{place}"),
            name => name.to_owned(),
        };
        let of = match field.of {
            FieldType::Boolean => Type::Boolean,
            FieldType::Integer => I64,
            FieldType::Double => Type::Float { bytes: 8 },
            FieldType::Text => Type::Text,
            FieldType::Bytes => sequence(Type::Integer {
                bytes: 1,
                is_signed: false,
            }),
            FieldType::Samples => samples.clone(),
        };
        (name, of)
    };
    let fields = announced(text)?.into_iter().enumerate().map(field);
    let mut of = final_struct(type_name, head.into_iter().chain(fields));
    for key in &mut of.members[..2] {
        key.is_key = true;
    }
    Some(of)
}

fn final_struct(name: &str, members: impl IntoIterator<Item = (String, Type)>) -> Structure {
    let member = |(id, (name, of))| Member {
        name,
        id,
        is_key: false,
        is_optional: false,
        of,
    };
    Structure {
        name: name.to_owned(),
        extensibility: Extensibility::Final,
        is_extensibility_stated: true,
        members: (0..).zip(members).map(member).collect(),
    }
}

/// Whether two codes are the same unit, as far as both are known.
fn is_same_unit(here: &str, there: &str) -> bool {
    let parsed = || Some(Unit::parse(here).ok()? == Unit::parse(there).ok()?);
    here.is_empty() || there.is_empty() || here == there || parsed().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use chappe_stream::{
        Epoch, Position, Quality, Samples, StreamElement, StreamSchema, Timestamp, Value,
    };
    use proptest::prelude::*;

    use crate::ElementType;
    use crate::types::Datum;

    fn field(name: &str, field_type: FieldType, unit: &str) -> Field {
        Field {
            name: name.to_owned(),
            field_type,
            unit: Some(unit.to_owned()).filter(|unit| !unit.is_empty()),
            observed_property: None,
            description: None,
        }
    }

    #[test]
    fn differences_are_named_field_by_field() {
        use FieldType::{Double, Integer, Text};
        let here = [
            field("rate", Double, "/min"),
            field("systolic", Integer, "mm[Hg]"),
            field("place", Text, ""),
        ];
        let from = |there: &[Field]| differences(&announcement(there), &here);
        assert!(from(&here).is_empty());
        // Another name, another code of the same unit, and a unit that is not stated.
        let renamed = [
            field("pulse", Double, "{beat}/min"),
            field("systolic", Integer, ""),
            field("ward", Text, "1"),
        ];
        assert!(from(&renamed).is_empty(), "{:?}", from(&renamed));
        let other = [
            field("rate", Integer, "/min"),
            field("systolic", Integer, "kPa"),
        ];
        assert_eq!(
            from(&other),
            [
                "rate: announced as integer, expected double",
                "systolic: announced in kPa, expected mm[Hg]",
                "place: not announced, expected text",
            ]
        );
        let longer = [&here[..], &[field("more", Double, "")]].concat();
        assert_eq!(from(&longer), ["more: announced as double, not expected"]);
        let swapped = [field("low", Double, ""), field("high", Double, "")];
        let exchanged = [swapped[1].clone(), swapped[0].clone()];
        assert_eq!(
            differences(&announcement(&exchanged), &swapped),
            [
                "low: announced as field 1, expected 0",
                "high: announced as field 0, expected 1"
            ]
        );
        assert!(differences("data of another program", &here).is_empty());
        assert!(differences("", &here).is_empty());
        assert!(differences(&announcement(&other), &[]).is_empty());
    }

    #[test]
    fn many_fields_are_announced_by_their_types() {
        let mut there: Vec<Field> = (0..FIELDS_MAX)
            .map(|n| {
                field(
                    &format!("a_rather_long_name_of_a_field_{n}"),
                    FieldType::Double,
                    "m",
                )
            })
            .collect();
        let text = announcement(&there);
        assert!(text.len() <= BYTES_MAX && text.len() > BYTES_MAX - 64);
        assert!(differences(&text, &there).is_empty());
        let last = FIELDS_MAX - 1;
        there[last].field_type = FieldType::Integer;
        let expected =
            format!("a_rather_long_name_of_a_field_{last}: announced as double, expected integer");
        assert_eq!(differences(&text, &there), [expected]);
        there.push(field("one_more", FieldType::Double, ""));
        assert_eq!(announcement(&there), "");
    }

    #[test]
    fn a_sample_is_read_by_the_announced_type() {
        let fields = LETTERS.map(|(of, _)| field(of.name(), of, ""));
        let schema = StreamSchema {
            fields: fields.to_vec(),
            key: None,
        };
        let samples = Samples {
            start: Timestamp(5),
            period_ns: 6,
            values: vec![0.5, 1.5],
        };
        let element = StreamElement {
            position: Position {
                epoch: Epoch(2),
                sequence: 3,
            },
            source_time: Timestamp(4),
            receive_time: Timestamp(0),
            key: None,
            values: vec![
                Value::Boolean(true),
                Value::Integer(-1),
                Value::Double(2.5),
                Value::Text("on".to_owned()),
                Value::Bytes(vec![1, 2]),
                Value::Samples(samples),
            ],
            quality: Quality::Bad,
            origin: None,
        };
        let of = ElementType::new("ward.a", schema).unwrap();
        let payload = of.encode(&element, 2).unwrap();
        let announced = structure(&of.type_name(), &announcement(&fields)).unwrap();
        announced.check().unwrap();
        let Datum::Structure(members) = announced.decode(&payload).unwrap() else {
            panic!("{announced:?}");
        };
        let names: Vec<&str> = announced.members.iter().map(|it| &*it.name).collect();
        assert_eq!(names[8..], LETTERS.map(|(of, _)| of.name()));
        assert_eq!(members[0], Some(Datum::Text("ward.a".to_owned())));
        assert_eq!(members[6], Some(Datum::Text("BAD".to_owned())));
        assert_eq!(members[9], Some(Datum::Integer(-1)));
        assert_eq!(members[11], Some(Datum::Text("on".to_owned())));
        assert!(structure("lab::Pose", "other data").is_none());
    }

    proptest! {
        #[test]
        fn any_text_is_compared(text in "(chappe.fields 1 )?[bidtysx]{0,8}(\n[a-z]{0,3} ?[a-z/]{0,3}){0,9}|\\PC*") {
            let here = [field("a", FieldType::Double, "m"), field("b", FieldType::Text, "")];
            prop_assert!(differences(&text, &here).len() <= DIFFERENCES_MAX);
            structure("a", &text);
        }
    }
}
