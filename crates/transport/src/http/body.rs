//! Bodies within limits, gzip undone.

use std::io::Read as _;

use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::HeaderMap;
use hyper::body::{Body as _, Incoming};
use hyper::header::CONTENT_ENCODING;

/// Why a body is not taken.
#[derive(Debug)]
pub(super) enum BodyError {
    /// Larger than the limit, as sent or unpacked.
    TooLarge,
    /// A content encoding that is not read, or broken gzip.
    Encoding,
    /// The peer ended within the body.
    Broken(hyper::Error),
}

/// Reads a body of at most `bound` bytes and undoes gzip.
pub(super) async fn read(
    headers: &HeaderMap,
    body: Incoming,
    bound: usize,
) -> Result<Bytes, BodyError> {
    if body.size_hint().lower() > bound as u64 {
        return Err(BodyError::TooLarge);
    }
    let bytes = match Limited::new(body, bound).collect().await {
        Ok(collected) => collected.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return Err(BodyError::TooLarge),
        Err(error) => {
            return Err(match error.downcast() {
                Ok(error) => BodyError::Broken(*error),
                Err(_) => BodyError::Encoding,
            });
        }
    };
    match headers.get(CONTENT_ENCODING).map(|value| value.as_bytes()) {
        None | Some(b"identity" | b"") => Ok(bytes),
        Some(b"gzip" | b"x-gzip") => inflate(&bytes, bound),
        Some(_) => Err(BodyError::Encoding),
    }
}

/// Undoes gzip; stops at `bound`, so that a small body cannot become a large one.
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
    fn gzip_is_undone_to_the_limit_and_no_further() {
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
