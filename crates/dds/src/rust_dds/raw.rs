//! Samples as bytes: the adapters of RustDDS.

use std::convert::Infallible;

use rustdds::RepresentationIdentifier as Representation;
use rustdds::bytes::Bytes;
use rustdds::{Keyed, no_key, with_key};

use crate::{Endian, Payload};

/// A sample in CDR.
pub(super) struct Raw(pub(super) Payload);

/// Converts between RustDDS and bytes.
pub(super) struct RawAdapter;

/// Decodes bytes without change.
#[derive(Clone)]
pub(super) struct RawDecoder;

const READ: [Representation; 2] = [Representation::CDR_LE, Representation::CDR_BE];

impl Keyed for Raw {
    /// The same for all samples: see the documentation of the parent module.
    type K = ();
    fn key(&self) {}
}

impl no_key::DeserializerAdapter<Raw> for RawAdapter {
    type Error = Infallible;
    type Decoded = Raw;
    fn supported_encodings() -> &'static [Representation] {
        &READ
    }
    fn transform_decoded(decoded: Raw) -> Raw {
        decoded
    }
}

impl with_key::DeserializerAdapter<Raw> for RawAdapter {
    type DecodedKey = ();
    fn transform_decoded_key((): ()) {}
}

impl no_key::DefaultDecoder<Raw> for RawAdapter {
    type Decoder = RawDecoder;
    const DECODER: RawDecoder = RawDecoder;
}

impl with_key::DefaultDecoder<Raw> for RawAdapter {
    type Decoder = RawDecoder;
    const DECODER: RawDecoder = RawDecoder;
}

impl no_key::Decode<'_, Raw> for RawDecoder {
    type Error = Infallible;
    fn decode_bytes(self, bytes: &[u8], encoding: Representation) -> Result<Raw, Infallible> {
        let endian = match encoding {
            Representation::CDR_BE => Endian::Big,
            _ => Endian::Little,
        };
        let bytes = Bytes::copy_from_slice(bytes);
        Ok(Raw(Payload { endian, bytes }))
    }
}

impl with_key::Decode<'_, Raw, ()> for RawDecoder {
    fn decode_key_bytes(self, _: &[u8], _: Representation) -> Result<(), Infallible> {
        Ok(())
    }
}

impl no_key::SerializerAdapter<Raw> for RawAdapter {
    type Error = Infallible;
    fn output_encoding() -> Representation {
        Representation::CDR_LE
    }
    fn to_bytes(value: &Raw) -> Result<Bytes, Infallible> {
        Ok(value.0.bytes.clone())
    }
}

impl with_key::SerializerAdapter<Raw> for RawAdapter {
    fn key_to_bytes((): &()) -> Result<Bytes, Infallible> {
        Ok(Bytes::new())
    }
}
