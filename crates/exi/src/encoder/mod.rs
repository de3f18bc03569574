//! From events to a stream.

mod attributes;
mod block;
mod body;
mod canonical;
mod kept;

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::bits::{BitWriter, Packing};
use crate::datatype::Scratch;
use crate::error::{Cause, Error};
use crate::event::Event;
use crate::grammar::Grammar;
use crate::header::{self, Header};
use crate::limits::Limits;
use crate::options::Options;
use crate::schema::Schema;
use crate::tables::Values;
use attributes::Attributes;
use block::Block;
use body::Saved;
pub use canonical::Canonical;

/// What the header of a stream says (5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeaderOptions {
    /// Begin with the four bytes `$EXI`.
    pub cookie: bool,
    /// Write the options, so that a reader need not know them.
    pub options: bool,
}

/// Encodes documents of one schema, one after another; its tables and buffers are reused.
/// [`Decoder`](crate::Decoder) has an example.
#[derive(Debug)]
pub struct Encoder {
    pub(crate) grammar: Grammar,
    pub(crate) values: Values,
    limits: Limits,
    writer: BitWriter,
    scratch: Scratch,
    attributes: Attributes,
    /// The prefix of the open start tag.
    lexical: String,
    block: Block,
    /// Prefixes in scope: depth, prefix, namespace.
    scope: Vec<(usize, String, String)>,
    saved: Vec<Saved>,
    /// Set for canonical streams.
    canonical: Option<Canonical>,
    waiting: canonical::Waiting,
    header: Option<alloc::boxed::Box<Encoder>>,
    /// The options document that was written last, as the next one is likely the same.
    known: Known,
}

impl Encoder {
    /// An encoder for documents of this schema.
    #[must_use]
    pub fn new(schema: Arc<Schema>) -> Self {
        Self {
            grammar: Grammar::new(schema),
            values: Values::default(),
            limits: Limits::default(),
            writer: BitWriter::new(Packing::Bits),
            scratch: Scratch::default(),
            attributes: Attributes::default(),
            lexical: String::new(),
            block: Block::default(),
            scope: Vec::new(),
            saved: Vec::new(),
            canonical: None,
            waiting: canonical::Waiting::default(),
            header: None,
            known: Known::default(),
        }
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Begins a stream without options in its header.
    ///
    /// # Errors
    /// Options that exclude each other.
    pub fn begin(&mut self, options: &Options) -> Result<Writing<'_>, Error> {
        self.begin_with(options, HeaderOptions::default())
    }

    /// Begins a stream with such a header.
    ///
    /// # Errors
    /// Options that exclude each other.
    pub fn begin_with(
        &mut self,
        options: &Options,
        header: HeaderOptions,
    ) -> Result<Writing<'_>, Error> {
        let mut writer = core::mem::replace(&mut self.writer, BitWriter::new(Packing::Bits));
        writer.clear(Packing::Bits);
        let start = Header {
            cookie: header.cookie,
            preview: false,
            options: header.options,
        };
        header::write_start(&mut writer, &start);
        if header.options {
            writer = self.options_document(writer, options)?;
        }
        self.begin_body(writer, options)
    }

    /// Writes the options document.
    fn options_document(
        &mut self,
        mut writer: BitWriter,
        options: &Options,
    ) -> Result<BitWriter, Error> {
        if self.known.options.as_ref() == Some(options) {
            let (last, bits) = self.known.behind;
            writer.octets(&self.known.bytes);
            // Fewer than eight bits, at the high end.
            writer.raw_bits(u32::from(last) >> (8 - bits), bits);
            return Ok(writer);
        }
        let encoder = self.header.get_or_insert_with(|| {
            alloc::boxed::Box::new(Self::new(Arc::new(header::options_schema())))
        });
        // All in front of it are whole bytes.
        let from = (writer.bit_offset() / 8) as usize;
        let mut writer = header::write_options(encoder, writer, options)?;
        self.known.bytes.clear();
        self.known.behind = writer.written_from(from, &mut self.known.bytes);
        self.known.options = Some(options.clone());
        Ok(writer)
    }

    /// Begins a body behind what is written.
    pub(crate) fn begin_body(
        &mut self,
        mut writer: BitWriter,
        options: &Options,
    ) -> Result<Writing<'_>, Error> {
        let begun = self.grammar.begin(options, &self.limits);
        begun.map_err(|cause| Error {
            offset: writer.bit_offset(),
            path: String::new(),
            cause,
        })?;
        self.grammar.profile = options.profile;
        writer.set_packing(options.packing());
        self.reset_values();
        self.scope.clear();
        self.saved.clear();
        self.attributes.clear();
        self.block.reset();
        self.canonical = None;
        self.waiting.clear();
        if options.channels() {
            self.block.out.extend_from_slice(writer.finish());
            writer.clear(Packing::Bytes);
        }
        self.writer = writer;
        Ok(Writing {
            encoder: self,
            failed: None,
        })
    }

    fn reset_values(&mut self) {
        let options = &self.grammar.options;
        self.values.reset(
            true,
            options.value_partition_capacity,
            options.value_max_length,
            self.limits.table_bytes,
        );
        let profile = options.profile.unwrap_or_default();
        self.values.global_only = !profile.local_value_partitions;
    }
}

/// An options document in bits.
#[derive(Debug, Default)]
struct Known {
    options: Option<Options>,
    bytes: Vec<u8>,
    /// Bits behind the bytes, at the high end, and how many.
    behind: (u8, u32),
}

/// A stream that is being encoded. After an error it repeats it.
#[derive(Debug)]
pub struct Writing<'e> {
    encoder: &'e mut Encoder,
    failed: Option<Error>,
}

impl<'e> Writing<'e> {
    /// Takes the next event. Comments, processing instructions, the document type and namespace
    /// declarations are passed over unless the options preserve them.
    ///
    /// # Errors
    /// An event or a value for which a strict schema has no place, or events that make no document.
    pub fn event(&mut self, event: Event<'_>) -> Result<(), Error> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let taken = match self.encoder.canonical {
            Some(_) => self.encoder.take_canonical(event),
            None => self.encoder.take(&event),
        };
        taken.map_err(|cause| self.fail(cause))
    }

    fn canonical(&mut self, canonical: Canonical) {
        self.encoder.canonical = Some(canonical);
    }

    fn fail(&mut self, cause: Cause) -> Error {
        let error = Error {
            offset: self.encoder.writer.bit_offset(),
            path: self.encoder.grammar.path(),
            cause,
        };
        self.failed = Some(error.clone());
        error
    }

    /// Hands over the bytes that are final, so that a long stream is never in memory as a whole; none
    /// when there are none yet. Then [`Writing::finish`] gives only those behind them.
    pub fn drain(&mut self, take: impl FnOnce(&[u8])) {
        let Encoder {
            grammar,
            writer,
            block,
            ..
        } = &mut *self.encoder;
        if grammar.options.channels() {
            take(&block.out);
            block.out.clear();
        } else {
            take(writer.whole());
            writer.drained();
        }
    }

    /// The whole stream, once the document has ended.
    ///
    /// # Errors
    /// A document that has not ended.
    pub fn finish(mut self) -> Result<&'e [u8], Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        if !self.encoder.ended() {
            return Err(self.fail(Cause::Misuse("the document has not ended")));
        }
        Ok(self.encoder.finished())
    }

    /// The writer behind a body without a header, its bits as they are.
    pub(crate) fn into_writer(self) -> Result<BitWriter, Error> {
        let writer = &mut self.encoder.writer;
        Ok(core::mem::replace(writer, BitWriter::new(Packing::Bits)))
    }
}
