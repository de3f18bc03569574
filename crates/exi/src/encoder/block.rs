//! Blocks of compressed and pre-compressed streams (9).

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use super::Encoder;
use crate::bits::Packing;
use crate::decoder::SMALL_CHANNEL;
use crate::error::Cause;
use crate::inflate::deflate;

use crate::value::Value;

/// A value that waits for its channel: its datatype, or [`NONE`], and its lexical form.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    datatype: u32,
    start: usize,
    end: usize,
}

/// The block at hand, and what is finished.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) out: Vec<u8>,
    channels: Vec<(u32, Vec<Waiting>)>,
    of_name: BTreeMap<u32, usize>,
    text: String,
    values: usize,
}

impl Block {
    pub(crate) fn reset(&mut self) {
        self.out.clear();
        self.clear();
    }

    fn clear(&mut self) {
        self.channels.clear();
        self.of_name.clear();
        self.text.clear();
        self.values = 0;
    }
}

impl Encoder {
    /// Puts a value, of which it is known that its datatype can represent it, into its channel.
    pub(super) fn enqueue(&mut self, name: u32, datatype: u32, value: &Value<'_>) {
        let block = &mut self.block;
        let start = block.text.len();
        value.write_lexical(&mut block.text);
        let waiting = Waiting {
            datatype,
            start,
            end: block.text.len(),
        };
        let channels = &mut block.channels;
        let at = *block.of_name.entry(name).or_insert_with(|| {
            channels.push((name, Vec::new()));
            channels.len() - 1
        });
        channels[at].1.push(waiting);
        block.values += 1;
    }

    /// Ends the block when it has its number of values.
    pub(super) fn end_full_block(&mut self) -> Result<(), Cause> {
        match self.block.values >= self.grammar.options.block_size as usize {
            true => self.end_block(),
            false => Ok(()),
        }
    }

    /// Writes the structure, then the channels.
    pub(super) fn end_block(&mut self) -> Result<(), Cause> {
        let channels = core::mem::take(&mut self.block.channels);
        let text = core::mem::take(&mut self.block.text);
        let few = self.block.values <= SMALL_CHANNEL;
        let small = |values: &[Waiting]| few || values.len() <= SMALL_CHANNEL;
        if !few {
            self.end_stream();
        }
        for (name, values) in channels.iter().filter(|(_, values)| small(values)) {
            self.channel(*name, values, &text)?;
        }
        self.end_stream();
        for (name, values) in channels.iter().filter(|(_, values)| !small(values)) {
            self.channel(*name, values, &text)?;
            self.end_stream();
        }
        self.block.clear();
        Ok(())
    }

    fn channel(&mut self, name: u32, values: &[Waiting], text: &str) -> Result<(), Cause> {
        for value in values {
            let lexical = Value::Text(&text[value.start..value.end]);
            let ready = self.ready(value.datatype, &lexical);
            let ready = ready.ok_or(Cause::Misuse("a value that was ready is not"))?;
            self.write(name, &ready)?;
        }
        Ok(())
    }

    /// Hands over what is written, compressed or not; nothing when there is nothing.
    fn end_stream(&mut self) {
        let bytes = self.writer.finish();
        if bytes.is_empty() {
            return;
        }
        match self.grammar.options.compression {
            true => deflate(bytes, &mut self.block.out),
            false => self.block.out.extend_from_slice(bytes),
        }
        self.writer.clear(Packing::Bytes);
    }
}
