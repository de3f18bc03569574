//! Invariants of GSN's frames for any bytes.

use chappe_gsn::exchange::Question;
use chappe_gsn::kryo::{decode_element, decode_structure, encode_element, encode_structure};
use chappe_gsn::mapping;
use chappe_stream::Timestamp;

use crate::bounds::Bound;

/// Copies of texts that references name, up to their limit, in the frame, its element and its encoding; and a value of
/// 32 bytes for each byte.
const BOUND: Bound = Bound::memory(6 << 20, 300);

/// No panic; a decoded frame that is encoded decodes to the same again; a schema made of a structure is valid.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    if let Ok(element) = decode_element(data) {
        let bytes = encode_element(&element, Vec::new()).expect("what was read can be written");
        let again = decode_element(&bytes).expect("an element");
        // Not a number is not equal to itself.
        assert_eq!(format!("{again:?}"), format!("{element:?}"));
    }
    if let Ok(structure) = decode_structure(data) {
        let bytes = encode_structure(structure.as_deref()).expect("what was read can be written");
        assert_eq!(decode_structure(&bytes).as_ref(), Ok(&structure));
        let schema = structure.and_then(|fields| mapping::schema(&fields).ok());
        if let Some(schema) = schema {
            assert_eq!(schema.check_names(), Ok(()));
            if let Ok(element) = decode_element(data) {
                let _ = mapping::from_gsn(&element, &schema, Timestamp(0));
            }
        }
    }
    if let Ok(question) = Question::parse(data) {
        let text = question.to_string();
        assert_eq!(Question::parse(text.as_bytes()), Ok(question));
    }
}
