//! Invariants of samples of DDS topics for any bytes.

use chappe_dds::{Bytes, ElementType, Endian, Octets, Payload, Stored};
use chappe_stream::{Field, FieldType, StreamSchema};

use crate::bounds::Bound;

/// An element and its copy, with a vector's spare room for each value.
const BOUND: Bound = Bound::memory(1 << 20, 200);

const TYPES: [FieldType; 6] = [
    FieldType::Boolean,
    FieldType::Integer,
    FieldType::Double,
    FieldType::Text,
    FieldType::Bytes,
    FieldType::Samples,
];

/// The first byte chooses the order of bytes and the number of fields, the next ones their types; the
/// rest is the sample.
///
/// No panic; a decoded sample is encoded to the same bytes.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let [choice, rest @ ..] = data else {
        return;
    };
    let endian = match choice & 1 {
        0 => Endian::Little,
        _ => Endian::Big,
    };
    let Some((types, sample)) = rest.split_at_checked(usize::from(choice >> 4)) else {
        return;
    };
    let payload = Payload {
        endian,
        bytes: Bytes::copy_from_slice(sample),
        ..Payload::default()
    };
    if let Ok(stored) = Stored::read(&payload) {
        assert_eq!(Stored::read(&stored.payload()), Ok(stored));
    }
    if let Ok(octets) = Octets::read(&payload) {
        assert_eq!(Octets::read(&octets.payload()), Ok(octets));
    }
    let fields = types.iter().enumerate().map(|(place, kind)| Field {
        name: format!("f{place}"),
        field_type: TYPES[usize::from(*kind) % TYPES.len()],
        unit: None,
        observed_property: None,
        description: None,
    });
    let schema = StreamSchema {
        fields: fields.collect(),
        key: None,
    };
    let of = ElementType::new("s", schema).expect("the names are distinct");
    let Ok(told) = of.decode(&payload) else {
        return;
    };
    let written = of.encode(&told.element, told.previous).expect("it fits");
    let again = of.decode(&written).expect("it was written here");
    // By their words, for a NaN is not itself.
    assert_eq!(
        format!("{:?}", again.element),
        format!("{:?}", told.element)
    );
    assert_eq!(again.previous, told.previous);
}
