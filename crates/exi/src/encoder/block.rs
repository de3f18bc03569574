//! Encoding blocks of compressed and pre-compressed streams (9).

use alloc::vec::Vec;

use super::Encoder;
use super::body::write_prepared;
use super::kept::{StoredRange, ValueStore};
use crate::bits::{BitWriter, Packing};
use crate::channels::Channels;
use crate::datatype::PreparedValue;
use crate::error::Cause;
use crate::inflate::Deflater;
use crate::schema::NONE;

/// A value to be written to its channel.
#[derive(Clone, Copy, Debug)]
enum PendingValue {
    /// An encoded value: its range in the block's encoded bytes.
    Encoded(usize, usize),
    /// The lexical form of a value, for a datatype or [`NONE`]. It is encoded when its channel is
    /// written, because the string table depends on all values before it.
    Text(u32, StoredRange),
}

/// The current block and the finished output.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) out: Vec<u8>,
    channels: Channels,
    pending: Vec<PendingValue>,
    /// Encoded values that do not use the string table.
    encoded: BitWriter,
    store: ValueStore,
    deflater: Deflater,
}

impl Block {
    pub(crate) fn reset(&mut self) {
        self.out.clear();
        self.clear();
    }

    fn clear(&mut self) {
        self.channels.clear();
        self.pending.clear();
        self.encoded.clear(Packing::Bytes);
        self.store.clear();
    }
}

impl Encoder {
    /// Adds a value that its datatype can represent to its channel.
    pub(super) fn enqueue(&mut self, name: u32, datatype: u32, ready: &PreparedValue<'_>) {
        let Self { block, scratch, .. } = self;
        block.channels.add(name, block.pending.len() as u32);
        let value = match ready {
            PreparedValue::Text(text)
            | PreparedValue::Restricted(_, text)
            | PreparedValue::List(_, text, _) => {
                PendingValue::Text(datatype, block.store.store_text(text))
            }
            PreparedValue::Lexical(_) => {
                PendingValue::Text(datatype, block.store.store_text(&scratch.text))
            }
            plain => {
                let start = block.encoded.byte_length();
                write_prepared(&mut block.encoded, plain, scratch, self.canonical);
                PendingValue::Encoded(start, block.encoded.byte_length())
            }
        };
        block.pending.push(value);
    }

    /// Ends the block if it has reached the block size.
    pub(super) fn end_full_block(&mut self) -> Result<(), Cause> {
        match self.block.channels.value_count() >= self.grammar.options.block_size {
            true => self.end_block(),
            false => Ok(()),
        }
    }

    /// Writes the block: the structure, then the channels.
    pub(super) fn end_block(&mut self) -> Result<(), Cause> {
        let mut block = core::mem::take(&mut self.block);
        let ended = self.write_block(&mut block);
        block.clear();
        self.block = block;
        ended
    }

    fn write_block(&mut self, block: &mut Block) -> Result<(), Cause> {
        if !block.channels.share_one_stream() {
            self.flush_stream(block)?;
        }
        for small in [true, false] {
            for at in 0..block.channels.len() {
                let channel = block.channels.channel(at);
                if block.channels.is_small(&channel) != small {
                    continue;
                }
                let mut waiting = Channels::first_value(&channel);
                while waiting != NONE {
                    match block.pending[waiting as usize] {
                        PendingValue::Encoded(start, end) => {
                            self.writer.octets(&block.encoded.whole_bytes()[start..end]);
                        }
                        PendingValue::Text(datatype, piece) => {
                            self.write_text(channel.name, datatype, block.store.text(piece))?;
                        }
                    }
                    waiting = block.channels.next_value(waiting);
                }
                if !small {
                    self.flush_stream(block)?;
                }
            }
            if small {
                self.flush_stream(block)?;
            }
        }
        Ok(())
    }

    /// Moves the pending bytes, compressed or not, to the output. An empty stream is omitted.
    fn flush_stream(&mut self, block: &mut Block) -> Result<(), Cause> {
        let bytes = self.writer.finish();
        if bytes.is_empty() {
            return Ok(());
        }
        if !self.grammar.options.compression {
            block.out.extend_from_slice(bytes);
        } else if !block.deflater.deflate(bytes, &mut block.out) {
            return Err(Cause::Misuse("the block could not be compressed"));
        }
        self.writer.clear(Packing::Bytes);
        Ok(())
    }
}
