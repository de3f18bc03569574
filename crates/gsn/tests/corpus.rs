//! Goal: every test run checks the properties of the fuzz targets.
//! Method: replays `fuzz/corpus/gsn_kryo`, `fuzz/corpus/gsn_rest` and changes of them through the targets' checks, and
//! properties over elements and structures.

#[path = "../../../fuzz/checks/bounds.rs"]
mod bounds;
#[path = "../../../fuzz/checks/corpus.rs"]
mod corpus;
#[path = "../../../fuzz/checks/gsn_kryo.rs"]
mod gsn_kryo;
#[path = "../../../fuzz/checks/gsn_rest.rs"]
mod gsn_rest;

use chappe_gsn::kryo::{
    DataField, DataType, GsnElement, GsnValue, decode_element, decode_structure, encode_element,
    encode_structure,
};
use proptest::prelude::*;

/// Replays a corpus, and each input with a bit changed and cut off at each place.
fn replay(name: &str, inputs_min: usize, check: fn(&[u8])) {
    corpus::replay(name, inputs_min, |input| {
        check(input);
        for at in 0..input.len().min(400) {
            let mut changed = input.to_vec();
            changed[at] ^= 1 << (at % 8);
            check(&changed);
            check(&input[..at]);
        }
    });
}

#[test]
fn the_corpus_of_frames_holds() {
    replay("gsn_kryo", 10, gsn_kryo::check);
}

#[test]
fn the_corpus_of_answers_holds() {
    replay("gsn_rest", 6, gsn_rest::check);
}

fn value() -> impl Strategy<Value = GsnValue> {
    let edges = prop_oneof![
        Just(i64::MIN),
        Just(i64::MAX),
        Just(0),
        Just(-1),
        any::<i64>()
    ];
    prop_oneof![
        Just(GsnValue::Null),
        ".{0,80}".prop_map(GsnValue::Text),
        "[ -~]{60,70}".prop_map(GsnValue::Text),
        any::<i8>().prop_map(GsnValue::Byte),
        any::<i16>().prop_map(GsnValue::Short),
        any::<i32>().prop_map(GsnValue::Integer),
        edges.prop_map(GsnValue::Long),
        any::<f32>().prop_map(GsnValue::Float),
        any::<f64>().prop_map(GsnValue::Double),
        prop::collection::vec(any::<u8>(), 0..300).prop_map(GsnValue::Bytes),
    ]
}

fn data_type() -> impl Strategy<Value = DataType> {
    prop::sample::select(&DataType::ALL[..])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn elements_round_trip(
        timed_ms in any::<i64>(),
        is_timed in any::<bool>(),
        fields in prop::collection::vec((".{0,20}", data_type(), value()), 0..12),
        topic in "[a-z]{0,9}",
    ) {
        let mut element = GsnElement { timed_ms, is_timed, names: vec![], types: vec![], values: vec![] };
        for (name, kind, value) in fields {
            element.names.push(name);
            element.types.push(kind);
            element.values.push(value);
        }
        let bytes = encode_element(&element, topic.clone().into_bytes()).unwrap();
        let frame = bytes.strip_prefix(topic.as_bytes()).unwrap();
        prop_assert_eq!(decode_element(frame).unwrap(), element);
        for end in (0..frame.len()).step_by(1 + frame.len() / 40) {
            prop_assert!(decode_element(&frame[..end]).is_err());
        }
        prop_assert!(decode_element(&[frame, &[0]].concat()).is_err());
    }

    #[test]
    fn structures_round_trip(
        fields in prop::collection::vec((".{0,70}", data_type(), ".{0,9}", ".{0,9}", ".{0,99}"), 0..20),
    ) {
        let field = |(name, data_type, declared, unit, description)| {
            DataField { name, data_type, declared, unit, description }
        };
        let fields: Vec<_> = fields.into_iter().map(field).collect();
        let bytes = encode_structure(Some(&fields)).unwrap();
        prop_assert_eq!(decode_structure(&bytes).unwrap(), Some(fields));
    }

    #[test]
    fn arbitrary_bytes_hold(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        gsn_kryo::check(&bytes);
        gsn_rest::check(&bytes);
    }
}
