//! Invariants of types from IDL and of their samples, for any bytes.

use chappe_dds::types::{Flat, idl};
use chappe_dds::{Bytes, Encoding, Endian, Payload};
use chappe_stream::Timestamp;

use crate::bounds::Bound;

/// Sixteen encodings of the sample; a value of a decoded sample takes 32 bytes for at least one, and a type has up to 4,096
/// members.
const BOUND: Bound = Bound::memory(8 << 20, 2_000);

/// The file ends with the first zero byte; the byte after it chooses the encoding and the order of bytes; the rest is a
/// sample of each struct of the file.
///
/// No panic; a decoded sample that becomes an element fits the stream of its type.
///
/// # Panics
/// When that does not hold.
pub(crate) fn check(data: &[u8]) {
    BOUND.hold(data.len(), || check_unbounded(data));
}

fn check_unbounded(data: &[u8]) {
    let end = data
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(data.len());
    let Ok(text) = std::str::from_utf8(&data[..end]) else {
        return;
    };
    let Ok(types) = idl("a.idl", text, &mut |_| Err(String::new())) else {
        return;
    };
    let [_, choice, sample @ ..] = &data[end..] else {
        return;
    };
    let encodings = [
        Encoding::Plain1,
        Encoding::Parameters1,
        Encoding::Plain2,
        Encoding::Delimited2,
        Encoding::Parameters2,
    ];
    let payload = Payload {
        endian: match choice & 1 {
            0 => Endian::Little,
            _ => Endian::Big,
        },
        encoding: encodings[usize::from(choice >> 1) % encodings.len()],
        bytes: Bytes::copy_from_slice(sample),
    };
    for of in types.iter().take(4) {
        assert!(of.differences(of).is_empty());
        let flat = Flat::new(of);
        flat.schema()
            .check_names()
            .expect("names are those of columns");
        let Ok(sample) = of.decode(&payload) else {
            continue;
        };
        if let Ok(element) = flat.element(&sample, Timestamp(0)) {
            flat.schema().check(&element).expect("it is of its stream");
        }
    }
}
