//! Blocks of compressed and pre-compressed streams (9).

use alloc::vec::Vec;

use super::Encoder;
use super::body::write_plain;
use super::kept::{Keeper, Piece};
use crate::bits::{BitWriter, Packing};
use crate::channels::Channels;
use crate::datatype::Ready;
use crate::error::Cause;
use crate::inflate::Deflater;
use crate::schema::NONE;

/// A value that waits for its channel.
#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// It is among the bytes that are written already, from a place to another.
    Written(usize, usize),
    /// By its lexical form, for a datatype or [`NONE`]. Which string the tables have is not known before
    /// those in front of it are written.
    Text(u32, Piece),
}

/// The block at hand, and what is finished.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) out: Vec<u8>,
    channels: Channels,
    waiting: Vec<Waiting>,
    /// Values that go by no string table.
    written: BitWriter,
    keeper: Keeper,
    deflater: Deflater,
}

impl Block {
    pub(crate) fn reset(&mut self) {
        self.out.clear();
        self.clear();
    }

    fn clear(&mut self) {
        self.channels.clear();
        self.waiting.clear();
        self.written.clear(Packing::Bytes);
        self.keeper.clear();
    }
}

impl Encoder {
    /// Puts a value, of which it is known that its datatype can represent it, into its channel.
    pub(super) fn enqueue(&mut self, name: u32, datatype: u32, ready: &Ready<'_>) {
        let Self { block, scratch, .. } = self;
        block.channels.add(name, block.waiting.len() as u32);
        let value = match ready {
            Ready::Text(text) | Ready::Restricted(_, text) | Ready::List(_, text, _) => {
                Waiting::Text(datatype, block.keeper.keep_text(text))
            }
            Ready::Lexical(_) => Waiting::Text(datatype, block.keeper.keep_text(&scratch.text)),
            plain => {
                let start = block.written.length();
                write_plain(&mut block.written, plain, scratch, self.canonical);
                Waiting::Written(start, block.written.length())
            }
        };
        block.waiting.push(value);
    }

    /// Ends the block when it has its number of values.
    pub(super) fn end_full_block(&mut self) -> Result<(), Cause> {
        match self.block.channels.values() >= self.grammar.options.block_size {
            true => self.end_block(),
            false => Ok(()),
        }
    }

    /// Writes the structure, then the channels.
    pub(super) fn end_block(&mut self) -> Result<(), Cause> {
        let mut block = core::mem::take(&mut self.block);
        let ended = self.end(&mut block);
        block.clear();
        self.block = block;
        ended
    }

    fn end(&mut self, block: &mut Block) -> Result<(), Cause> {
        if !block.channels.few() {
            self.end_stream(block)?;
        }
        for small in [true, false] {
            for at in 0..block.channels.len() {
                let channel = block.channels.channel(at);
                if block.channels.is_small(&channel) != small {
                    continue;
                }
                let mut waiting = Channels::first(&channel);
                while waiting != NONE {
                    match block.waiting[waiting as usize] {
                        Waiting::Written(start, end) => {
                            self.writer.octets(&block.written.whole()[start..end]);
                        }
                        Waiting::Text(datatype, piece) => {
                            self.write_text(channel.name, datatype, block.keeper.text(piece))?;
                        }
                    }
                    waiting = block.channels.behind(waiting);
                }
                if !small {
                    self.end_stream(block)?;
                }
            }
            if small {
                self.end_stream(block)?;
            }
        }
        Ok(())
    }

    /// Hands over what is written, compressed or not; nothing when there is nothing.
    fn end_stream(&mut self, block: &mut Block) -> Result<(), Cause> {
        let bytes = self.writer.finish();
        if bytes.is_empty() {
            return Ok(());
        }
        if !self.grammar.options.compression {
            block.out.extend_from_slice(bytes);
        } else if !block.deflater.deflate(bytes, &mut block.out) {
            return Err(Cause::Misuse("a block that cannot be compressed"));
        }
        self.writer.clear(Packing::Bytes);
        Ok(())
    }
}
