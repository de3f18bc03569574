//! Frames: flags, size, body (37/ZMTP, section Framing).

use bytes::{Buf as _, BufMut as _, BytesMut};

use crate::error::Error;

/// More frames of the message follow.
pub(crate) const MORE: u8 = 1;
/// The size has eight bytes.
const LONG: u8 = 2;
/// The frame is a command.
pub(crate) const COMMAND: u8 = 4;

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// `MORE` and `COMMAND`.
    pub(crate) flags: u8,
    /// The size of the body.
    pub(crate) size: u64,
    /// The size of the header itself.
    pub(crate) bytes: usize,
}

impl Header {
    /// Reads the header, if all its bytes are available.
    pub(crate) fn read(bytes: &[u8], offset: u64) -> Result<Option<Self>, Error> {
        let protocol = |what| Err(Error::Protocol { what, offset });
        let Some(flags) = bytes.first().copied() else {
            return Ok(None);
        };
        if flags & !(MORE | LONG | COMMAND) != 0 {
            return protocol("reserved flags of a frame are set");
        }
        if flags & (MORE | COMMAND) == MORE | COMMAND {
            return protocol("a command has several frames");
        }
        let kind = flags & !LONG;
        let mut rest = &bytes[1..];
        if flags & LONG == 0 {
            let size = rest.first().map(|size| u64::from(*size));
            return Ok(size.map(|size| Self {
                flags: kind,
                size,
                bytes: 2,
            }));
        }
        if rest.len() < 8 {
            return Ok(None);
        }
        let size = rest.get_u64();
        if size > i64::MAX as u64 {
            return protocol("a frame's size has its highest bit set");
        }
        Ok(Some(Self {
            flags: kind,
            size,
            bytes: 9,
        }))
    }

    /// Writes the header for a body of `size` bytes.
    pub(crate) fn write(out: &mut BytesMut, flags: u8, size: usize) {
        match u8::try_from(size) {
            Ok(size) => out.put_slice(&[flags, size]),
            Err(_) => {
                out.put_u8(flags | LONG);
                out.put_u64(size as u64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip_and_wait_for_their_bytes() {
        for (flags, size) in [(0, 0), (MORE, 255), (COMMAND, 256), (0, 70_000)] {
            let mut out = BytesMut::new();
            Header::write(&mut out, flags, size);
            for end in 0..out.len() {
                assert_eq!(Header::read(&out[..end], 0), Ok(None));
            }
            let header = Header {
                flags,
                size: size as u64,
                bytes: out.len(),
            };
            assert_eq!(Header::read(&out, 0), Ok(Some(header)));
        }
    }

    #[test]
    fn invalid_headers_are_refused() {
        for bytes in [&[8][..], &[5, 0], &[0x80], &[2, 0x80, 0, 0, 0, 0, 0, 0, 0]] {
            assert!(Header::read(bytes, 7).is_err(), "{bytes:?}");
        }
    }
}
