//! Goal: a decoded sample equals the encoded element, for any schema; no bytes make the decoder panic or use more
//! memory than their size.
//! Method: random schemas with elements that fit them, both byte orders by hand, and random bytes.

use chappe_dds::{Decoder, ElementType, Endian, Payload, Stored};
use chappe_stream::{
    Epoch, Field, FieldType, Position, Quality, Samples, StreamElement, StreamSchema, Timestamp,
    Value,
};
use proptest::prelude::*;

fn value(field: FieldType) -> BoxedStrategy<Value> {
    let some = match field {
        FieldType::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        FieldType::Integer => any::<i64>().prop_map(Value::Integer).boxed(),
        FieldType::Double => any::<f64>().prop_map(Value::Double).boxed(),
        FieldType::Text => ".{0,12}".prop_map(Value::Text).boxed(),
        FieldType::Bytes => prop::collection::vec(any::<u8>(), 0..20)
            .prop_map(Value::Bytes)
            .boxed(),
        FieldType::Samples => (
            any::<i64>(),
            any::<u64>(),
            prop::collection::vec(any::<f64>(), 0..9),
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
    prop_oneof![3 => some, 1 => Just(Value::Null)].boxed()
}

fn field_type() -> impl Strategy<Value = FieldType> {
    prop_oneof![
        Just(FieldType::Boolean),
        Just(FieldType::Integer),
        Just(FieldType::Double),
        Just(FieldType::Text),
        Just(FieldType::Bytes),
        Just(FieldType::Samples),
    ]
}

fn schema(types: &[FieldType]) -> StreamSchema {
    let fields = types.iter().enumerate().map(|(index, field_type)| Field {
        name: format!("f{index}"),
        field_type: *field_type,
        unit: None,
        observed_property: None,
        description: None,
    });
    StreamSchema {
        fields: fields.collect(),
        key: None,
    }
}

fn typed() -> impl Strategy<Value = (ElementType, StreamElement)> {
    let types = prop::collection::vec(field_type(), 0..8);
    types.prop_flat_map(|types| {
        let of = ElementType::new("ward.bed-3", schema(&types)).unwrap();
        let values: Vec<_> = types.into_iter().map(value).collect();
        let key = prop::option::of("[a-z]{1,8}");
        let numbers = (any::<u64>(), any::<u64>(), any::<i64>(), 0..3_usize);
        (values, key, numbers).prop_map(move |(values, key, (epoch, sequence, time, quality))| {
            let epoch = Epoch(epoch);
            let element = StreamElement {
                position: Position { epoch, sequence },
                source_time: Timestamp(time),
                receive_time: Timestamp(0),
                key,
                values,
                quality: [Quality::Good, Quality::Questionable, Quality::Bad][quality],
                origin: None,
            };
            (of.clone(), element)
        })
    })
}

/// Equality that includes NaNs.
fn same(left: &StreamElement, right: &StreamElement) -> bool {
    format!("{left:?}") == format!("{right:?}")
}

proptest! {
    #[test]
    fn a_decoded_sample_equals_its_element((of, element) in typed()) {
        let payload = of.encode(&element, 7).unwrap();
        let told = of.decode(&payload).unwrap();
        prop_assert_eq!((&*told.stream, told.previous), ("ward.bed-3", 7));
        prop_assert!(same(&told.element, &element), "{:?} became {:?}", element, told);
    }

    #[test]
    fn truncated_or_changed_samples_do_not_panic((of, element) in typed(), at: usize, to: u8) {
        let whole = of.encode(&element, 1).unwrap().bytes.to_vec();
        let at = at % whole.len();
        let mut changed = whole.clone();
        changed[at] = to;
        for bytes in [whole[..at].to_vec(), changed] {
            for endian in [Endian::Little, Endian::Big] {
                let _ = of.decode(&Payload { endian, bytes: bytes.clone().into(), ..Payload::default() });
            }
        }
    }

    #[test]
    fn no_bytes_panic(types in prop::collection::vec(field_type(), 0..8), bytes: Vec<u8>) {
        let of = ElementType::new("s", schema(&types)).unwrap();
        for endian in [Endian::Little, Endian::Big] {
            let payload = Payload { endian, bytes: bytes.clone().into(), ..Payload::default() };
            let _ = of.decode(&payload);
            let _ = Stored::read(&payload);
        }
    }
}

#[test]
fn the_bytes_follow_the_standard_in_both_orders() {
    let of = ElementType::new("s", schema(&[FieldType::Boolean, FieldType::Double])).unwrap();
    let element = StreamElement {
        position: Position {
            epoch: Epoch(1),
            sequence: 2,
        },
        source_time: Timestamp(3),
        receive_time: Timestamp(0),
        key: None,
        values: vec![Value::Boolean(true), Value::Null],
        quality: Quality::Bad,
        origin: None,
    };
    // stream: length, "s", zero; fill; instance: length, zero; fill; epoch, number, previous, time; quality;
    // absent: one, index 1; the boolean; fill; the double.
    let little = [
        &[2, 0, 0, 0, b's', 0, 0, 0][..],
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &[2, 0, 0, 0, 0, 0, 0, 0],
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &[3, 0, 0, 0, 0, 0, 0, 0],
        &[2, 0, 0, 0, 1, 0, 0, 0],
        &[1, 0, 1, 0, 0, 0, 0, 0],
        &[0; 8],
    ]
    .concat();
    assert_eq!(of.encode(&element, 1).unwrap().bytes, little);
    let big = [
        &[0, 0, 0, 2, b's', 0, 0, 0][..],
        &[0, 0, 0, 1, 0, 0, 0, 0],
        &[0, 0, 0, 0, 0, 0, 0, 1],
        &[0, 0, 0, 0, 0, 0, 0, 2],
        &[0, 0, 0, 0, 0, 0, 0, 1],
        &[0, 0, 0, 0, 0, 0, 0, 3],
        &[0, 0, 0, 2, 0, 0, 0, 1],
        &[0, 1, 1, 0, 0, 0, 0, 0],
        &[0; 8],
    ]
    .concat();
    let big = Payload {
        endian: Endian::Big,
        bytes: big.into(),
        ..Payload::default()
    };
    assert_eq!(of.decode(&big).unwrap().element, element);
}

#[test]
fn invalid_idl_names_are_changed() {
    let names = ["double", "stream", "_x", "temperature"];
    let mut of = schema(&[FieldType::Text; 4]);
    for (field, name) in of.fields.iter_mut().zip(names) {
        field.name = name.into();
        field.description = Some("a */ in\nit".into());
    }
    let same = ElementType::new("temperature", of.clone()).unwrap().idl();
    assert!(same.contains("struct Temperature {") && same.contains("string temperature_;"));
    let idl = ElementType::new("3rd.floor", of).unwrap().idl();
    for line in [
        "@final struct Stream_3rd_floor {",
        "string _double; /* a * / in it */",
        "string stream_;",
        "string __x;",
        "string temperature;",
    ] {
        assert!(idl.contains(line), "{line} is not in\n{idl}");
    }
}

#[test]
fn the_longest_length_takes_no_memory() {
    let bytes = [u32::MAX.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
    let payload = Payload {
        endian: Endian::Little,
        bytes: bytes.into(),
        ..Payload::default()
    };
    assert!(Decoder::new(&payload).text().is_err());
    assert!(Decoder::new(&payload).length(8).is_err());
    let of = ElementType::new("s", schema(&[FieldType::Samples])).unwrap();
    assert!(of.decode(&payload).is_err());
}
