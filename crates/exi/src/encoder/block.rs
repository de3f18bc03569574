//! Blocks of compressed and pre-compressed streams (9).

use alloc::vec::Vec;

use super::Encoder;
use super::kept::{Keeper, Kept};
use crate::bits::Packing;
use crate::channels::Channels;
use crate::error::Cause;
use crate::inflate::Deflater;
use crate::schema::NONE;
use crate::value::Value;

/// A value that waits for its channel, and its datatype, or [`NONE`].
#[derive(Clone, Copy, Debug)]
struct Waiting {
    datatype: u32,
    value: Kept,
}

/// The block at hand, and what is finished.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) out: Vec<u8>,
    channels: Channels,
    waiting: Vec<Waiting>,
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
        self.keeper.clear();
    }
}

impl Encoder {
    /// Puts a value, of which it is known that its datatype can represent it, into its channel.
    pub(super) fn enqueue(&mut self, name: u32, datatype: u32, value: &Value<'_>) {
        let block = &mut self.block;
        block.channels.add(name, block.waiting.len() as u32);
        let value = block.keeper.keep(value);
        block.waiting.push(Waiting { datatype, value });
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
                    let Waiting { datatype, value } = block.waiting[waiting as usize];
                    let value = block.keeper.value(value);
                    let ready = self.ready(datatype, &value);
                    let ready = ready.ok_or(Cause::Misuse("a value that was ready is not"))?;
                    self.write(channel.name, &ready)?;
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
