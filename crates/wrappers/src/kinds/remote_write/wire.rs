//! Fields of protocol buffers in a slice, without copies: a message costs no memory beyond its own bytes, however
//! many parts it has.
//!
//! Source: the encoding of protocol buffers (protobuf.dev/programming-guides/encoding). Groups are refused.

/// A field: its number and its value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'m> {
    Varint(u64),
    Fixed64([u8; 8]),
    Bytes(&'m [u8]),
    Fixed32,
}

/// The bytes are no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the body is not a message of protocol buffers")]
pub(super) struct Broken;

impl From<Broken> for String {
    fn from(broken: Broken) -> Self {
        broken.to_string()
    }
}

/// The fields of a message, one after another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'m>(pub(super) &'m [u8]);

impl<'m> Fields<'m> {
    /// The next field.
    pub(super) fn next(&mut self) -> Result<Option<(u64, Value<'m>)>, Broken> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let key = self.varint()?;
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(self.take(8)?.try_into().map_err(|_| Broken)?),
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Broken)?;
                Value::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Value::Fixed32
            }
            _ => return Err(Broken),
        };
        match key >> 3 {
            0 => Err(Broken),
            number => Ok(Some((number, value))),
        }
    }

    fn take(&mut self, length: usize) -> Result<&'m [u8], Broken> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Broken)?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number of variable length.
    pub(super) fn varint(&mut self) -> Result<u64, Broken> {
        let mut number = 0;
        for (index, byte) in self.0.iter().enumerate().take(10) {
            // The tenth byte has one bit.
            if index == 9 && *byte > 1 {
                return Err(Broken);
            }
            number |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.0 = &self.0[index + 1..];
                return Ok(number);
            }
        }
        Err(Broken)
    }
}

impl<'m> Value<'m> {
    pub(super) fn bytes(self) -> Result<&'m [u8], Broken> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(Broken),
        }
    }

    pub(super) fn text(self) -> Result<&'m str, Broken> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Broken)
    }

    pub(super) fn double(self) -> Result<f64, Broken> {
        match self {
            Self::Fixed64(bytes) => Ok(f64::from_le_bytes(bytes)),
            _ => Err(Broken),
        }
    }

    pub(super) fn signed(self) -> Result<i64, Broken> {
        match self {
            Self::Varint(number) => Ok(number.cast_signed()),
            _ => Err(Broken),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut fields = Fields(&bytes);
            let mut left = bytes.len();
            while let Ok(Some(_)) = fields.next() {
                prop_assert!(fields.0.len() < left);
                left = fields.0.len();
            }
        }

        #[test]
        fn numbers_are_read_back(number in any::<u64>()) {
            let mut bytes = Vec::new();
            prost::encoding::encode_varint(number, &mut bytes);
            let mut fields = Fields(&bytes);
            prop_assert_eq!((fields.varint(), fields.0.len()), (Ok(number), 0));
        }
    }
}
