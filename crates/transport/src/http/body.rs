//! Reads bodies within limits, decompresses gzip and decodes EXI.

use std::io::Read as _;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::HeaderMap;
use hyper::body::{Body as _, Incoming};
use hyper::header::CONTENT_ENCODING;

use super::exi;
use super::room::{Room, RoomPermit, SMALL_BYTES};
use crate::Parsers;

/// The reason why a body is refused.
#[derive(Debug)]
pub(super) enum BodyError {
    /// It exceeds the limit, compressed or decompressed.
    TooLarge,
    /// The content encoding is unsupported, or the coded data are broken.
    Encoding,
    /// The peer closed the connection within the body.
    Broken(hyper::Error),
}

/// Reads one body.
pub(super) struct Reader<'a> {
    /// The largest body, coded and decoded.
    pub(super) bound: usize,
    /// Whether EXI is understood.
    pub(super) exi: bool,
    /// The threads that decode large bodies.
    pub(super) parsers: &'a Parsers,
    /// The room for large bodies.
    pub(super) room: Option<(&'a Room, SocketAddr)>,
}

impl Reader<'_> {
    /// Reads the body, decoded, with the room that it takes.
    pub(super) async fn read(
        &self,
        headers: &HeaderMap,
        mut incoming: Incoming,
    ) -> Result<(Bytes, Option<RoomPermit>), BodyError> {
        let size = incoming.size_hint();
        if size.lower() > self.bound as u64 {
            return Err(BodyError::TooLarge);
        }
        let coding = self.coding(headers)?;
        let sent = size.exact().map_or(self.bound, |size| size as usize);
        let needed = match coding {
            Coding::Identity => sent,
            Coding::Gzip | Coding::Exi => sent + self.bound,
        };
        let mut held = None;
        let mut bytes = BytesMut::new();
        while let Some(frame) = incoming.frame().await {
            let Ok(data) = frame.map_err(BodyError::Broken)?.into_data() else {
                continue;
            };
            let length = bytes.len() + data.len();
            if length > self.bound {
                return Err(BodyError::TooLarge);
            }
            if length > SMALL_BYTES && held.is_none() {
                held = self.take(needed).await;
            }
            if bytes.is_empty() {
                // A small body is not copied while it grows.
                let small = (size.lower() as usize).min(SMALL_BYTES);
                bytes.reserve(small.max(data.len()));
            }
            bytes.extend_from_slice(&data);
        }
        let bytes = bytes.freeze();
        if coding == Coding::Identity {
            return Ok((bytes, held));
        }
        let unpacked = match coding.decode(&bytes, self.bound.min(SMALL_BYTES)) {
            Err(BodyError::TooLarge) if self.bound > SMALL_BYTES => {
                if held.is_none() {
                    held = self.take(self.bound).await;
                }
                // The serving thread continues.
                let bound = self.bound;
                let unpacking = self.parsers.run(move || coding.decode(&bytes, bound)).await;
                unpacking.unwrap_or(Err(BodyError::Encoding))
            }
            unpacked => unpacked,
        };
        unpacked.map(|bytes| (bytes, held))
    }

    fn coding(&self, headers: &HeaderMap) -> Result<Coding, BodyError> {
        match headers.get(CONTENT_ENCODING).map(|value| value.as_bytes()) {
            None | Some(b"identity" | b"") => Ok(Coding::Identity),
            Some(b"gzip" | b"x-gzip") => Ok(Coding::Gzip),
            Some(_) if self.exi && exi::is_coded(headers) => Ok(Coding::Exi),
            Some(_) => Err(BodyError::Encoding),
        }
    }

    async fn take(&self, bytes: usize) -> Option<RoomPermit> {
        let (room, peer) = self.room?;
        room.take(peer, bytes).await
    }
}

/// How a body is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Identity,
    Gzip,
    Exi,
}

impl Coding {
    /// The content of a coded body, of at most `bound` bytes.
    fn decode(self, bytes: &Bytes, bound: usize) -> Result<Bytes, BodyError> {
        match self {
            Self::Identity => Ok(bytes.clone()),
            Self::Gzip => inflate(bytes, bound),
            Self::Exi => exi::decode(bytes, bound),
        }
    }
}

/// Decompresses gzip; stops at `bound`, so that a small body cannot become a large one.
fn inflate(bytes: &[u8], bound: usize) -> Result<Bytes, BodyError> {
    let mut unpacked = Vec::new();
    let decoder = flate2::read::GzDecoder::new(bytes);
    let limit = bound as u64 + 1;
    match decoder.take(limit).read_to_end(&mut unpacked) {
        Ok(_) if unpacked.len() > bound => Err(BodyError::TooLarge),
        Ok(_) => Ok(unpacked.into()),
        Err(_) => Err(BodyError::Encoding),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn gzip_is_decompressed_up_to_the_limit() {
        assert_eq!(inflate(&gzip(b"abc"), 3).unwrap(), "abc");
        assert!(matches!(
            inflate(&gzip(b"abcd"), 3),
            Err(BodyError::TooLarge)
        ));
        let bomb = gzip(&vec![0; 8 << 20]);
        assert!(bomb.len() < 10_000);
        assert!(matches!(inflate(&bomb, 1 << 20), Err(BodyError::TooLarge)));
        assert!(matches!(
            inflate(&gzip(b"abc")[..12], 9),
            Err(BodyError::Encoding)
        ));
        assert!(matches!(inflate(b"no gzip", 9), Err(BodyError::Encoding)));
    }
}
