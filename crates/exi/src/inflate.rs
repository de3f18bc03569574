//! DEFLATE streams one behind the other (9.3).
//!
//! What comes from strangers is inflated by a library without `unsafe`. What is our own is deflated by one
//! that takes less time and makes fewer bytes of it, where there is the standard library that it needs.

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

/// Room at first, in bytes.
const ROOM: usize = 4096;

/// Inflates one stream after another; its state is reused.
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
    /// Inflates the stream that comes next, at most `limit` bytes. `out` is not cleared but
    /// overwritten; says how many bytes of it count.
    pub(crate) fn inflate(
        &mut self,
        reader: &mut BitReader<'_>,
        out: &mut Vec<u8>,
        limit: usize,
    ) -> Result<usize, Cause> {
        let state = self.state.get_or_insert_with(Box::default);
        state.init();
        if out.len() < ROOM {
            out.resize(ROOM, 0);
        }
        let mut written = 0;
        let mut last = false;
        reader.skip(0);
        loop {
            let more = if last { 0 } else { TINFL_FLAG_HAS_MORE_INPUT };
            let (status, taken, given) = decompress(
                state,
                reader.rest(),
                out,
                written,
                TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF | more,
            );
            reader.skip(taken);
            written += given;
            if written > limit {
                return Err(Cause::limit("block_bytes", limit as u64));
            }
            match status {
                TINFLStatus::Done => return Ok(written),
                TINFLStatus::HasMoreOutput if written >= limit => {
                    return Err(Cause::limit("block_bytes", limit as u64));
                }
                TINFLStatus::HasMoreOutput => out.resize(out.len() * 2, 0),
                TINFLStatus::NeedsMoreInput if !last => last = !reader.more()?,
                _ => return Err(Cause::Inflate),
            }
        }
    }
}

/// Compresses one stream after another; its state is reused.
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
    /// Appends one stream; false when the library refuses, which it has no reason to.
    #[must_use]
    pub(crate) fn deflate(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        deflate::append(&mut self.state, bytes, out)
    }
}

#[cfg(feature = "std")]
mod deflate {
    use alloc::vec::Vec;
    use zlib_rs::{Deflate, DeflateFlush, Status};

    /// The level of zlib when none is said.
    const LEVEL: i32 = 6;
    /// The largest window that DEFLATE has, as a power of two.
    const WINDOW_BITS: u8 = 15;

    pub(super) type State = Deflate;

    pub(super) fn append(state: &mut Option<State>, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let state = match state {
            Some(state) => {
                state.reset();
                state
            }
            none => none.insert(Deflate::new(LEVEL, false, WINDOW_BITS)),
        };
        let (mut taken, mut end) = (0, out.len());
        // As a rule it becomes less.
        out.resize(end + bytes.len() + super::ROOM, 0);
        loop {
            let (read, written) = (state.total_in(), state.total_out());
            let done = state.compress(&bytes[taken..], &mut out[end..], DeflateFlush::Finish);
            // Neither is more than what was handed over.
            taken += (state.total_in() - read) as usize;
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
        let take = |piece: &[u8]| {
            out.extend_from_slice(piece);
            true
        };
        let (status, _) = compress_to_output(state, bytes, TDEFLFlush::Finish, take);
        status == TDEFLStatus::Done
    }
}
