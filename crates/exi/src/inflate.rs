//! DEFLATE streams one behind the other (9.3).

use alloc::vec;
use alloc::vec::Vec;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use crate::error::Cause;

/// What the stream at the front inflates to, and how many bytes it takes.
pub(crate) fn inflate(bytes: &[u8], limit: usize) -> Result<(Vec<u8>, usize), Cause> {
    let mut state = DecompressorOxide::new();
    let guess = bytes.len().saturating_mul(4).clamp(256, limit.max(256));
    let mut out = vec![0; guess];
    let (mut read, mut written) = (0, 0);
    loop {
        let (status, taken, given) = decompress(
            &mut state,
            &bytes[read..],
            &mut out,
            written,
            TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
        );
        read += taken;
        written += given;
        match status {
            TINFLStatus::Done => {
                out.truncate(written);
                return Ok((out, read));
            }
            TINFLStatus::HasMoreOutput if out.len() < limit => {
                out.resize((out.len() * 2).min(limit), 0);
            }
            TINFLStatus::HasMoreOutput => {
                return Err(Cause::limit("block_bytes", limit as u64));
            }
            _ => return Err(Cause::Inflate),
        }
    }
}

/// Compresses one stream.
pub(crate) fn deflate(bytes: &[u8], out: &mut Vec<u8>) {
    out.extend(miniz_oxide::deflate::compress_to_vec(bytes, 6));
}
