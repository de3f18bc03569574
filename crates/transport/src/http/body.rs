//! Reads bodies within limits, decompresses gzip and decodes EXI.

use std::io::Read as _;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use chappe_dpws::exi::{ServiceSchema, ServiceSchemas};
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
    /// EXI by a schema of this name, which is not known here.
    Schema(String),
    /// The peer closed the connection within the body.
    Broken(hyper::Error),
}

/// A body as it was read.
pub(super) struct Received {
    /// Its content, decoded.
    pub(super) bytes: Bytes,
    /// The room that it takes.
    pub(super) room: Option<RoomPermit>,
    /// The schema of a service by which it was EXI.
    pub(super) schema: Option<ServiceSchema>,
}

/// Reads one body.
pub(super) struct Reader<'a> {
    /// The largest body, coded and decoded.
    pub(super) bound: usize,
    /// The schemas of services by which EXI is understood, besides `dev1`; `None` if none is.
    pub(super) exi: Option<&'a ServiceSchemas>,
    /// The threads that decode large bodies.
    pub(super) parsers: &'a Parsers,
    /// The room for large bodies.
    pub(super) room: Option<(&'a Room, SocketAddr)>,
}

impl Reader<'_> {
    /// Reads the body, decoded.
    pub(super) async fn read(
        &self,
        headers: &HeaderMap,
        mut incoming: Incoming,
    ) -> Result<Received, BodyError> {
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
        let received = |(bytes, schema), room| Received {
            bytes,
            room,
            schema,
        };
        if coding == Coding::Identity {
            return Ok(received((bytes, None), held));
        }
        let schemas = self.exi.cloned().unwrap_or_default();
        let unpack = || coding.decode(&bytes, self.bound.min(SMALL_BYTES), &schemas);
        let unpacked = match unpack() {
            // Its schema may be one that was never used.
            Err(BodyError::Schema(_)) if schemas.must_compile() && !schemas.is_costly() => {
                schemas.compile();
                unpack()
            }
            unpacked => unpacked,
        };
        let unpacked = match unpacked {
            Err(BodyError::TooLarge) if self.bound > SMALL_BYTES => {
                if held.is_none() {
                    held = self.take(self.bound).await;
                }
                // The serving thread continues.
                self.unpack_apart(coding, bytes, schemas).await
            }
            // The same, and it takes long to compile.
            Err(BodyError::Schema(_)) if schemas.must_compile() => {
                self.unpack_apart(coding, bytes, schemas).await
            }
            unpacked => unpacked,
        };
        unpacked.map(|unpacked| received(unpacked, held))
    }

    /// Decodes a body on another thread.
    async fn unpack_apart(
        &self,
        coding: Coding,
        bytes: Bytes,
        schemas: ServiceSchemas,
    ) -> Result<Unpacked, BodyError> {
        let bound = self.bound;
        let unpacking = self
            .parsers
            .run(move || match coding.decode(&bytes, bound, &schemas) {
                Err(BodyError::Schema(_)) if schemas.must_compile() => {
                    schemas.compile();
                    coding.decode(&bytes, bound, &schemas)
                }
                unpacked => unpacked,
            });
        unpacking.await.unwrap_or(Err(BodyError::Encoding))
    }

    fn coding(&self, headers: &HeaderMap) -> Result<Coding, BodyError> {
        match headers.get(CONTENT_ENCODING).map(|value| value.as_bytes()) {
            None | Some(b"identity" | b"") => Ok(Coding::Identity),
            Some(b"gzip" | b"x-gzip") => Ok(Coding::Gzip),
            Some(_) if self.exi.is_some() && exi::is_coded(headers) => Ok(Coding::Exi),
            Some(_) => Err(BodyError::Encoding),
        }
    }

    async fn take(&self, bytes: usize) -> Option<RoomPermit> {
        let (room, peer) = self.room?;
        room.take(peer, bytes).await
    }
}

/// The content of a coded body, and the schema of a service by which it was EXI.
type Unpacked = (Bytes, Option<ServiceSchema>);

/// How a body is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Coding {
    Identity,
    Gzip,
    Exi,
}

impl Coding {
    /// The content of a coded body, of at most `bound` bytes.
    fn decode(
        self,
        bytes: &Bytes,
        bound: usize,
        schemas: &ServiceSchemas,
    ) -> Result<Unpacked, BodyError> {
        match self {
            Self::Identity => Ok((bytes.clone(), None)),
            Self::Gzip => Ok((inflate(bytes, bound)?, None)),
            Self::Exi => exi::decode(bytes, bound, schemas),
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
