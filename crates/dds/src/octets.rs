//! Octets: a type for measurements, without encoding cost.

use bytes::{BufMut as _, Bytes, BytesMut};

use crate::cdr::Decoder;
use crate::{CdrError, Encoding, Endian, Payload};

/// A numbered sample of a given size.
///
/// ```idl
/// module chappe {
///   @final struct Octets {
///     @key unsigned long source;
///     unsigned long long number;
///     long long time_ns;
///     sequence<octet> data;
///   };
/// };
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Octets {
    /// The sender: the key.
    pub source: u32,
    /// The number of the sample at its source.
    pub number: u64,
    /// The send time, in nanoseconds of a clock that both ends share.
    pub time_ns: i64,
    /// The bytes.
    pub octets: Bytes,
}

impl Octets {
    /// The name of the type.
    pub const TYPE_NAME: &str = "chappe::Octets";
    /// Bytes of CDR before the data.
    pub const HEAD_BYTES: usize = 28;
    /// Its IDL.
    pub const IDL: &str = "module chappe {\n  @final struct Octets {\n    @key unsigned long source;\n    unsigned long long number;\n    long long time_ns;\n    sequence<octet> data;\n  };\n};\n";

    /// Encodes it in CDR.
    #[must_use]
    pub fn payload(&self) -> Payload {
        self.payload_with(&self.octets)
    }

    /// Encodes it in CDR, with these bytes in place of its own: they need no copy before this one.
    #[must_use]
    pub fn payload_with(&self, octets: &[u8]) -> Payload {
        let mut bytes = BytesMut::with_capacity(Self::HEAD_BYTES + octets.len());
        bytes.put_u32_le(self.source);
        bytes.put_u32_le(0);
        bytes.put_u64_le(self.number);
        bytes.put_i64_le(self.time_ns);
        bytes.put_u32_le(u32::try_from(octets.len()).unwrap_or(u32::MAX));
        bytes.put_slice(octets);
        Payload {
            endian: Endian::Little,
            encoding: Encoding::Plain1,
            bytes: bytes.freeze(),
        }
    }

    /// Decodes it from CDR; the data are shared with the payload.
    ///
    /// # Errors
    /// The payload is not of this type.
    pub fn read(payload: &Payload) -> Result<Self, CdrError> {
        let mut cdr = Decoder::new(payload);
        let source = cdr.u32()?;
        let number = cdr.u64()?;
        let time_ns = cdr.i64()?;
        let length = cdr.length(1)?;
        let begin = cdr.offset();
        cdr.skip(length)?;
        cdr.finish()?;
        Ok(Self {
            source,
            number,
            time_ns,
            octets: payload.bytes.slice(begin..begin + length),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn octets_are_decoded_and_hostile_lengths_refused() {
        let octets = Octets {
            source: 7,
            number: 3,
            time_ns: -5,
            octets: Bytes::from_static(b"abc"),
        };
        let payload = octets.payload();
        assert_eq!(payload.bytes.len(), Octets::HEAD_BYTES + 3);
        assert_eq!(Octets::read(&payload), Ok(octets));
        let mut bytes = payload.bytes.to_vec();
        bytes[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
        let hostile = Payload {
            bytes: bytes.into(),
            ..payload
        };
        assert!(matches!(
            Octets::read(&hostile),
            Err(CdrError::Short { left: 3, .. })
        ));
    }
}
