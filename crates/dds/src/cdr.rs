//! CDR, the plain encoding of version 1 (DDS-XTypes 1.3, clause 7.4.1; CORBA 3.3, clause 9.3): numbers are aligned
//! to their size, texts end with a zero byte, sequences start with their length.

use crate::{CdrError, Encoding, Endian, Payload};

/// Encodes little-endian CDR.
#[derive(Debug, Default)]
pub struct Encoder {
    bytes: Vec<u8>,
}

macro_rules! encode {
    ($($name:ident: $type:ty),*) => {$(
        #[doc = concat!("Writes a number (`", stringify!($type), "`).")]
        pub fn $name(&mut self, value: $type) {
            self.align(size_of::<$type>());
            self.bytes.extend_from_slice(&value.to_le_bytes());
        }
    )*};
}

impl Encoder {
    encode!(u8: u8, u16: u16, u32: u32, u64: u64, i64: i64, f64: f64);

    /// Writes true or false.
    pub fn boolean(&mut self, value: bool) {
        self.bytes.push(value.into());
    }

    /// Writes the length of a sequence. Overlong ones are refused by the limit on samples
    /// ([`crate::SAMPLE_BYTES_MAX`]).
    pub fn length(&mut self, length: usize) {
        self.u32(u32::try_from(length).unwrap_or(u32::MAX));
    }

    /// Writes a text.
    pub fn text(&mut self, value: &str) {
        self.length(value.len() + 1);
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.push(0);
    }

    /// Writes a sequence of bytes.
    pub fn octets(&mut self, value: &[u8]) {
        self.length(value.len());
        self.bytes.extend_from_slice(value);
    }

    /// The number of bytes so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The encoded bytes.
    #[must_use]
    pub fn finish(self) -> Payload {
        Payload {
            endian: Endian::Little,
            encoding: Encoding::Plain1,
            bytes: self.bytes.into(),
        }
    }

    fn align(&mut self, size: usize) {
        let length = self.bytes.len().next_multiple_of(size);
        self.bytes.resize(length, 0);
    }
}

/// Decodes CDR of either byte order.
#[derive(Debug)]
pub struct Decoder<'a> {
    bytes: &'a [u8],
    offset: usize,
    endian: Endian,
}

macro_rules! decode {
    ($($name:ident: $type:ty),*) => {$(
        #[doc = concat!("Reads a number (`", stringify!($type), "`).")]
        ///
        /// # Errors
        /// The payload is too short.
        pub fn $name(&mut self) -> Result<$type, CdrError> {
            let size = size_of::<$type>();
            self.align(size)?;
            let mut bytes = [0; size_of::<$type>()];
            bytes.copy_from_slice(self.take(size)?);
            Ok(match self.endian {
                Endian::Little => <$type>::from_le_bytes(bytes),
                Endian::Big => <$type>::from_be_bytes(bytes),
            })
        }
    )*};
}

impl<'a> Decoder<'a> {
    decode!(u8: u8, u16: u16, u32: u32, u64: u64, i64: i64, f64: f64);

    /// Starts at the beginning of a sample.
    #[must_use]
    pub fn new(payload: &'a Payload) -> Self {
        Self {
            bytes: &payload.bytes,
            offset: 0,
            endian: payload.endian,
        }
    }

    /// The number of decoded bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Reads true or false.
    ///
    /// # Errors
    /// The payload is too short, or the value is neither 0 nor 1.
    pub fn boolean(&mut self) -> Result<bool, CdrError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.wrong("a boolean is neither 0 nor 1")),
        }
    }

    /// Reads the length of a sequence, whose members take at least `member` bytes.
    ///
    /// # Errors
    /// The payload is too short for the length, or for the number of members.
    pub fn length(&mut self, member: usize) -> Result<usize, CdrError> {
        let length = usize::try_from(self.u32()?).unwrap_or(usize::MAX);
        let (wanted, left) = (length.saturating_mul(member), self.left());
        if wanted > left {
            let offset = self.offset;
            return Err(CdrError::Short {
                offset,
                wanted,
                left,
            });
        }
        Ok(length)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// The payload is too short, or the text does not end with a zero byte or is not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, CdrError> {
        let length = self.length(1)?;
        let bytes = self.take(length)?;
        // Some writers omit the zero byte of an empty text.
        let text = match bytes.split_last() {
            Some((0, text)) => text,
            None => &[],
            Some(_) => return Err(self.wrong("a text does not end with a zero byte")),
        };
        std::str::from_utf8(text).map_err(|_| self.wrong("a text is not UTF-8"))
    }

    /// Reads a sequence of bytes.
    ///
    /// # Errors
    /// The payload is too short.
    pub fn octets(&mut self) -> Result<&'a [u8], CdrError> {
        let length = self.length(1)?;
        self.take(length)
    }

    /// Skips bytes.
    ///
    /// # Errors
    /// The payload is too short.
    pub fn skip(&mut self, bytes: usize) -> Result<(), CdrError> {
        self.take(bytes).map(drop)
    }

    /// Checks the end; up to three bytes of padding may be left (RTPS 2.5, clause 10.2).
    ///
    /// # Errors
    /// More bytes are left.
    pub fn finish(self) -> Result<(), CdrError> {
        let (offset, left) = (self.offset, self.left());
        match left {
            0..=3 => Ok(()),
            _ => Err(CdrError::Long { offset, left }),
        }
    }

    /// An error at this offset.
    pub(crate) fn wrong(&self, what: &'static str) -> CdrError {
        let offset = self.offset;
        CdrError::Value { offset, what }
    }

    fn left(&self) -> usize {
        self.bytes.len() - self.offset
    }

    fn align(&mut self, size: usize) -> Result<(), CdrError> {
        self.skip(self.offset.next_multiple_of(size) - self.offset)
    }

    fn take(&mut self, wanted: usize) -> Result<&'a [u8], CdrError> {
        let (offset, left) = (self.offset, self.left());
        if wanted > left {
            return Err(CdrError::Short {
                offset,
                wanted,
                left,
            });
        }
        self.offset += wanted;
        Ok(&self.bytes[offset..self.offset])
    }
}
