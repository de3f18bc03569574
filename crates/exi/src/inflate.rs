//! Consecutive DEFLATE streams (9.3).
//!
//! Untrusted input is inflated by a library without `unsafe`. Output is deflated, where the
//! standard library is available, by a library that is faster and compresses better.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::{
    TINFL_FLAG_HAS_MORE_INPUT, TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF,
};
use miniz_oxide::inflate::core::{DecompressorOxide, decompress};

use crate::bits::BitReader;
use crate::error::Cause;

/// Initial size of the output buffer, in bytes.
const BUFFER_BYTES_MIN: usize = 4096;

/// Inflates consecutive streams and reuses its state.
#[derive(Default)]
pub(crate) struct Inflater {
    state: Option<Box<DecompressorOxide>>,
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflater").finish_non_exhaustive()
    }
}

impl Inflater {
    /// Inflates the next stream, up to `limit` bytes. Overwrites `out` without clearing it and
    /// returns the number of valid bytes.
    pub(crate) fn inflate(
        &mut self,
        reader: &mut BitReader<'_>,
        out: &mut Vec<u8>,
        limit: usize,
    ) -> Result<usize, Cause> {
        let state = self.state.get_or_insert_with(Box::default);
        state.init();
        if out.len() < BUFFER_BYTES_MIN {
            out.resize(BUFFER_BYTES_MIN, 0);
        }
        let mut written = 0;
        let mut input_ended = false;
        reader.skip(0);
        loop {
            let more = if input_ended {
                0
            } else {
                TINFL_FLAG_HAS_MORE_INPUT
            };
            let (status, consumed, produced) = decompress(
                state,
                reader.rest(),
                out,
                written,
                TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF | more,
            );
            reader.skip(consumed);
            written += produced;
            if written > limit {
                return Err(Cause::limit("block_bytes", limit as u64));
            }
            match status {
                TINFLStatus::Done => return Ok(written),
                TINFLStatus::HasMoreOutput if written >= limit => {
                    return Err(Cause::limit("block_bytes", limit as u64));
                }
                TINFLStatus::HasMoreOutput => out.resize(out.len() * 2, 0),
                TINFLStatus::NeedsMoreInput if !input_ended => input_ended = !reader.read_more()?,
                _ => return Err(Cause::Inflate),
            }
        }
    }
}

/// Compresses consecutive streams and reuses its state.
#[derive(Default)]
pub(crate) struct Deflater {
    state: Option<deflate::State>,
}

impl fmt::Debug for Deflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deflater").finish_non_exhaustive()
    }
}

impl Deflater {
    /// Appends one compressed stream. Returns false if the library fails, which it has no reason to
    /// do.
    #[must_use]
    pub(crate) fn deflate(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        deflate::append(&mut self.state, bytes, out)
    }
}

#[cfg(feature = "std")]
mod deflate {
    use alloc::vec::Vec;
    use zlib_rs::{Deflate, DeflateFlush, Status};

    /// The default level of zlib.
    const LEVEL: i32 = 6;
    /// Windows of DEFLATE, as powers of two: of streams that fit into it, and the largest. Reason: the state has 260 KiB
    /// with the one and 370 with the other, which small devices do not have to spare; most messages are short.
    const WINDOWS_BITS: [u8; 2] = [12, 15];

    pub(super) struct State {
        window_bits: u8,
        deflate: Deflate,
    }

    pub(super) fn append(state: &mut Option<State>, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let [short, largest] = WINDOWS_BITS;
        let window_bits = if bytes.len() <= 1 << short {
            short
        } else {
            largest
        };
        let state = match state {
            Some(state) if state.window_bits >= window_bits => {
                state.deflate.reset();
                state
            }
            other => other.insert(State {
                window_bits,
                deflate: Deflate::new(LEVEL, false, window_bits),
            }),
        };
        let state = &mut state.deflate;
        let (mut consumed, mut end) = (0, out.len());
        // The output is usually smaller than the input.
        out.resize(end + bytes.len() + super::BUFFER_BYTES_MIN, 0);
        loop {
            let (read, written) = (state.total_in(), state.total_out());
            let done = state.compress(&bytes[consumed..], &mut out[end..], DeflateFlush::Finish);
            // Neither exceeds the length of its buffer.
            consumed += (state.total_in() - read) as usize;
            end += (state.total_out() - written) as usize;
            match done {
                Ok(Status::StreamEnd) => break,
                Ok(_) if end == out.len() => out.resize(out.len() * 2, 0),
                _ => return false,
            }
        }
        out.truncate(end);
        true
    }
}

#[cfg(not(feature = "std"))]
mod deflate {
    use alloc::boxed::Box;
    use alloc::vec::Vec;
    use miniz_oxide::DataFormat;
    use miniz_oxide::deflate::CompressionLevel;
    use miniz_oxide::deflate::core::{
        CompressorOxide, TDEFLFlush, TDEFLStatus, compress_to_output,
    };

    pub(super) type State = Box<CompressorOxide>;

    pub(super) fn append(state: &mut Option<State>, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let state = match state {
            Some(state) => {
                state.reset();
                state
            }
            none => {
                let mut state = Box::<CompressorOxide>::default();
                state.set_format_and_level(DataFormat::Raw, CompressionLevel::DefaultLevel as u8);
                none.insert(state)
            }
        };
        let append = |piece: &[u8]| {
            out.extend_from_slice(piece);
            true
        };
        let (status, _) = compress_to_output(state, bytes, TDEFLFlush::Finish, append);
        status == TDEFLStatus::Done
    }
}
